"""The methods of `Runtime` for video frames (tensors §12): NV12 bytes; samples of Media Foundation are refused."""

from __future__ import annotations

from typing import Any

from .errors import NOT_SUPPORTED, NotSupportedError
from .handles import Closeable
from .media.image_layout import ImageLayout, image_layout, image_options, image_size, is_gray
from .media.image_tensors import image_storage, write_image
from .media.nv12 import frame_metadata, nv12_bytes, nv12_source
from .media.options import ImageTensorOptions, TensorLayout, VideoFrameMetadata
from .target import ExecutionTarget, RuntimeCore, tensor_target
from .tensor import Tensor, bindable

_MEND = "Media Foundation is not used here; pass the bytes of the frame to {}"


class VideoFactories(Closeable[RuntimeCore]):
    """What `Runtime` has for video frames."""

    __slots__ = ()

    def tensor_from_nv12(
        self,
        frame: bytes | bytearray | memoryview,
        *,
        metadata: VideoFrameMetadata,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a picture tensor of an NV12 frame (BT.709, studio range), as decoders and cameras give it.

        `frame` holds rows of luma, then half as many rows of interleaved U and V; `metadata` says its even width and
        height, and the bytes of a row when that is more than the width. The colours go on as `tensor_from_image` says,
        without being rounded. ValueError without a size or with too few bytes, 0x80070057 for an odd size.
        """
        core = self._core
        keeper = tensor_target(target, core)
        context = "IWinMLRuntime.TensorFromNv12"
        wanted = image_options(options)
        source = nv12_source(frame, frame_metadata(metadata), is_gray(wanted), context)
        return Tensor(image_storage(source, image_layout(wanted, (source.width, source.height), context)), core, keeper)

    def write_tensor_from_nv12(
        self,
        destination: Tensor,
        frame: bytes | bytearray | memoryview,
        *,
        metadata: VideoFrameMetadata,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> None:
        """Write an NV12 frame into a tensor that is there already, as `tensor_from_nv12` would make a new one.

        Errors of the destination as in `write_tensor_from_image`.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        storage = bindable(destination)
        destination._resolve(target)
        context = "IWinMLRuntime.WriteTensorFromNv12"
        wanted = image_options(options)
        source = nv12_source(frame, frame_metadata(metadata), is_gray(wanted), context)
        write_image(source, image_layout(wanted, (source.width, source.height), context), storage, context)

    def nv12_bytes_from_tensor(
        self, tensor: Tensor, *, options: ImageTensorOptions | None = None, target: ExecutionTarget | None = None
    ) -> bytes:
        """Return a picture tensor as an NV12 frame (BT.709, studio range) without gaps: 1.5 bytes per pixel.

        `options` say what the elements mean, as they did when the tensor was made; the size is the tensor's, which must
        be even (0x80070057). Chroma is the mean of 2 x 2 pixels.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        storage = bindable(tensor)
        tensor._resolve(target)
        context = "IWinMLRuntime.Nv12BytesFromTensor"
        return nv12_bytes(storage, _tensor_layout(tensor, options, (0, 0), context), context)

    def tensor_from_mf_sample(
        self,
        sample: Any,
        *,
        options: ImageTensorOptions | None = None,
        metadata: VideoFrameMetadata | None = None,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Check the options, then raise NotSupportedError 0x80070032; `tensor_from_nv12` takes the bytes of a frame."""
        core = self._core
        tensor_target(target, core)
        context = "IWinMLRuntime.TensorFromMFSample"
        _check_sample(sample, options, metadata, context)
        raise NotSupportedError(NOT_SUPPORTED, context, _MEND.format("tensor_from_nv12"))

    def write_tensor_from_mf_sample(
        self,
        destination: Tensor,
        sample: Any,
        *,
        options: ImageTensorOptions | None = None,
        metadata: VideoFrameMetadata | None = None,
        target: ExecutionTarget | None = None,
    ) -> None:
        """Check the options, then raise NotSupportedError 0x80070032; see `write_tensor_from_nv12`."""
        self._core  # noqa: B018  (raises on a closed Runtime)
        bindable(destination)
        destination._resolve(target)
        context = "IWinMLRuntime.WriteTensorFromMFSample"
        _check_sample(sample, options, metadata, context)
        raise NotSupportedError(NOT_SUPPORTED, context, _MEND.format("write_tensor_from_nv12"))

    def mf_sample_from_tensor(
        self,
        tensor: Tensor,
        *,
        options: ImageTensorOptions | None = None,
        metadata: VideoFrameMetadata | None = None,
        media_type: Any = None,
        target: ExecutionTarget | None = None,
    ) -> Any:
        """Check the options, then raise NotSupportedError 0x80070032; `nv12_bytes_from_tensor` gives the bytes."""
        self._core  # noqa: B018  (raises on a closed Runtime)
        bindable(tensor)
        tensor._resolve(target)
        context = "IWinMLRuntime.MFSampleFromTensor"
        checked = frame_metadata(metadata)
        _tensor_layout(tensor, options, (checked.source_width, checked.source_height), context)
        raise NotSupportedError(
            NOT_SUPPORTED, context, "Media Foundation is not used here; take the bytes of nv12_bytes_from_tensor"
        )


def _check_sample(
    sample: Any, options: ImageTensorOptions | None, metadata: VideoFrameMetadata | None, context: str
) -> None:
    if sample is None:
        raise ValueError("sample must be an IMFSample, not None")
    frame_metadata(metadata)
    image_layout(image_options(options), (1, 1), context)


def _tensor_layout(
    tensor: Tensor, options: ImageTensorOptions | None, size: tuple[int, int], context: str
) -> ImageLayout:
    """Return what the options say of a tensor; a size that neither they nor `size` have is that of its shape."""
    wanted = image_options(options)
    if wanted.size is not None:
        size = image_size(wanted.size)
    elif 0 in size:
        shape = tensor.desc()[1]
        if len(shape) != 4:
            raise ValueError(f"a picture tensor has four dimensions, not {shape}")
        size = (shape[2], shape[1]) if wanted.layout == TensorLayout.NHWC else (shape[3], shape[2])
    return image_layout(wanted, size, context)
