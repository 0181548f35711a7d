"""The methods of `Runtime` that make tensors of pictures, and pictures of tensors (tensors §5)."""

from __future__ import annotations

from typing import Any

from .handles import Closeable
from .media.image_bytes import image_bytes
from .media.image_layout import image_layout, image_options, is_gray
from .media.image_tensors import image_storage, write_image
from .media.options import ImageFormat, ImageTensorOptions
from .media.pixels import RawPicture, pixel_source
from .target import ExecutionTarget, RuntimeCore, tensor_target
from .tensor import Tensor, bindable


class ImageFactories(Closeable[RuntimeCore]):
    """What `Runtime` has for pictures."""

    __slots__ = ()

    def tensor_from_image(
        self,
        image: Any,
        *,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
        width: int | None = None,
        height: int | None = None,
        row_pitch: int | None = None,
        image_format: ImageFormat | int | None = None,
    ) -> Tensor:
        """Make a tensor of a picture: (1, C, H, W) or (1, H, W, C), FLOAT32 values 0..255 unless `options` say more.

        `image` is one of:

        - a Pillow picture: its mode is brought to L or RGBA by Pillow itself. EXIF orientation is not looked at.
        - an array of uint8, shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), in the order R, G, B[, A]; with
          `image_format=ImageFormat.BGRA8` in the order B, G, R[, A], as OpenCV has it.
        - bytes, with `width`, `height` and `image_format`; a row takes `row_pitch` bytes (default: no gap).

        Pixels are resampled to `options.size` bilinearly at half-pixel centres, without a filter before a reduction and
        without rounding; then each channel becomes `(value - mean) * scale` and is quantized. Alpha is dropped for
        three channels, never blended. Errors: ValueError for pixels and options that do not fit together, 0x80070057
        for element types, layouts and quantizations that picture tensors do not have.
        """
        core = self._core
        keeper = tensor_target(target, core)
        wanted = image_options(options)
        pixels = pixel_source(image, RawPicture(width, height, row_pitch, image_format), is_gray(wanted))
        layout = image_layout(wanted, (pixels.width, pixels.height), "IWinMLRuntime.TensorFromImage")
        return Tensor(image_storage(pixels, layout), core, keeper)

    def write_tensor_from_image(
        self,
        destination: Tensor,
        image: Any,
        *,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
        width: int | None = None,
        height: int | None = None,
        row_pitch: int | None = None,
        image_format: ImageFormat | int | None = None,
    ) -> None:
        """Write a picture into a tensor that is there already, as `tensor_from_image` would make a new one.

        The tensor must have the very element type and shape (0x80070057), no open lock (0x800700D4), and no access READ
        (0x80070005).
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        storage = bindable(destination)
        destination._resolve(target)
        wanted = image_options(options)
        pixels = pixel_source(image, RawPicture(width, height, row_pitch, image_format), is_gray(wanted))
        context = "IWinMLRuntime.WriteTensorFromImage"
        write_image(pixels, image_layout(wanted, (pixels.width, pixels.height), context), storage, context)

    def image_bytes_from_tensor(
        self,
        tensor: Tensor,
        *,
        size: tuple[int, int],
        image_format: ImageFormat | int = ImageFormat.RGBA8,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> bytes:
        """Return the pixels of a picture tensor, packed: 4 bytes each, or 1 for GRAY8.

        `options` say what the elements mean, as they did when the tensor was made: quantization and normalization are
        undone, the values rounded half to even and limited to 0..255. `size` is (width, height) of the tensor; nothing
        is resampled. A missing alpha becomes 255, gray stands for each colour, and the gray of colours is their luma.
        ValueError for a size unlike `options.size`, 0x80070057 for a tensor unlike the options, and for a scale of 0.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        storage = bindable(tensor)
        tensor._resolve(target)
        return image_bytes(storage, size, image_format, options)
