"""`ImageTensorOptions` checked and put in the form that the conversions use (tensors §5.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..checks import enum_value, member_of, number_value
from ..errors import E_INVALIDARG, WinMLError
from ..values import Descriptor, TensorDataType
from .options import (
    Four,
    ImageResizeMode,
    ImageTensorOptions,
    TensorChannelOrder,
    TensorLayout,
    TensorNormalization,
    TensorQuantization,
    TensorQuantizationMode,
)

_LETTERS = {
    TensorChannelOrder.RGB: "RGB",
    TensorChannelOrder.BGR: "BGR",
    TensorChannelOrder.GRAY: "L",
    TensorChannelOrder.RGBA: "RGBA",
    TensorChannelOrder.BGRA: "BGRA",
}
_FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_INTEGERS = {TensorDataType.INT8: (-128, 127), TensorDataType.UINT8: (0, 255)}
_LAYOUTS = (TensorLayout.UNSPECIFIED, TensorLayout.NCHW, TensorLayout.NHWC)


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """A picture tensor, settled: all that lies between pixel values 0..255 and its elements."""

    data_type: TensorDataType
    letters: str
    """The channels in their order, of "RGBA" or "L"."""
    is_planar: bool
    """NCHW, else NHWC."""
    width: int
    height: int
    resize_mode: ImageResizeMode
    letterbox_value: Four
    scale: Four
    mean: Four
    divisor: float | None = None
    """What normalized values are divided by before they are rounded."""
    zero_point: float = 0.0
    """What is added after."""

    @property
    def descriptor(self) -> Descriptor:
        """Element type and shape of the tensor."""
        channels = len(self.letters)
        if self.is_planar:
            return self.data_type, (1, channels, self.height, self.width)
        return self.data_type, (1, self.height, self.width, channels)

    @property
    def limits(self) -> tuple[int, int] | None:
        """Least and greatest element of an integer tensor."""
        return _INTEGERS.get(self.data_type)

    @property
    def is_identity(self) -> bool:
        """Whether elements are the pixel values themselves, but for rounding and saturation."""
        count = len(self.letters)
        return self.divisor is None and set(self.scale[:count]) == {1.0} and set(self.mean[:count]) == {0.0}


def is_gray(options: ImageTensorOptions) -> bool:
    """Whether the tensor has the one channel GRAY."""
    return member_of(options.channel_order, TensorChannelOrder) is TensorChannelOrder.GRAY


def image_options(options: ImageTensorOptions | None) -> ImageTensorOptions:
    """Return the options or the default ones; another class is TypeError."""
    if options is None:
        return ImageTensorOptions()
    if not isinstance(options, ImageTensorOptions):
        raise TypeError(f"options must be ImageTensorOptions or None, not {type(options).__name__}")
    return options


def image_size(size: Any) -> tuple[int, int]:
    """Return (width, height), each in 1..2**32-1, else ValueError."""
    try:
        width, height = size
    except (TypeError, ValueError):
        raise ValueError(f"size must be (width, height), not {size!r}") from None
    return number_value(width, "width", minimum=1), number_value(height, "height", minimum=1)


def image_layout(options: ImageTensorOptions, size: tuple[int, int], context: str) -> ImageLayout:
    """Check all options; `size` is the size to be taken when they have none."""
    order = member_of(options.channel_order, TensorChannelOrder)
    letters = None if order is None else _LETTERS.get(order)
    if letters is None:
        known = "RGB, BGR, GRAY, RGBA or BGRA of TensorChannelOrder"
        raise ValueError(f"channel_order must be {known}, not {options.channel_order!r}")
    width, height = size if options.size is None else image_size(options.size)
    mode = enum_value(options.resize_mode, ImageResizeMode, "resize_mode")
    letterbox = _four(options.letterbox_value, "letterbox_value")
    normalization = options.normalization
    if not isinstance(normalization, TensorNormalization):
        raise TypeError(f"normalization must be TensorNormalization, not {type(normalization).__name__}")
    scale, mean = _four(normalization.scale, "scale"), _four(normalization.mean, "mean")
    quantization = _checked(options.quantization)
    data_type = member_of(options.data_type, TensorDataType)
    if data_type is None or (data_type not in _FLOATS and data_type not in _INTEGERS):
        known = "FLOAT32, FLOAT16, INT8 or UINT8 of TensorDataType"
        raise WinMLError(E_INVALIDARG, context, f"an image tensor is {known}, not {options.data_type!r}")
    layout = member_of(options.layout, TensorLayout)
    if layout not in _LAYOUTS:
        known = "NCHW or NHWC of TensorLayout"
        raise WinMLError(E_INVALIDARG, context, f"the layout of an image tensor is {known}, not {options.layout!r}")
    divisor, zero_point = _rounding(quantization, data_type in _FLOATS, context)
    return ImageLayout(
        data_type,
        letters,
        layout is not TensorLayout.NHWC,
        width,
        height,
        mode,
        letterbox,
        scale,
        mean,
        divisor,
        zero_point,
    )


def _four(values: Any, name: str) -> Four:
    try:
        if isinstance(values, str | bytes):
            raise TypeError("text is not a number")
        first, second, third, fourth = map(_number, values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be four numbers, not {values!r}: {error}") from None
    return first, second, third, fourth


def _number(value: Any) -> float:
    """Return a float; text that `float` would read is no number, nor is a bool."""
    if isinstance(value, bool | str | bytes):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _checked(quantization: TensorQuantization | None) -> TensorQuantization:
    if quantization is None:
        return TensorQuantization()
    if not isinstance(quantization, TensorQuantization):
        raise TypeError(f"quantization must be TensorQuantization or None, not {type(quantization).__name__}")
    mode = enum_value(quantization.mode, TensorQuantizationMode, "the mode of a quantization")
    if mode is TensorQuantizationMode.NONE:
        if quantization.scale is not None or quantization.zero_point is not None:
            raise ValueError("quantization with mode NONE takes neither scale nor zero_point")
        return quantization
    if quantization.scale is None:
        raise ValueError(f"quantization with mode {mode.name} needs a scale")
    scale = _finite(quantization.scale, "scale")
    if scale <= 0:
        raise ValueError(f"the scale of a quantization must be above 0, not {scale}")
    zero_point = None if quantization.zero_point is None else _finite(quantization.zero_point, "zero_point")
    return TensorQuantization(mode, scale, zero_point)


def _finite(value: Any, name: str) -> float:
    try:
        number = _number(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the {name} of a quantization must be a finite number, not {value!r}")
    return number


def _rounding(quantization: TensorQuantization, is_float: bool, context: str) -> tuple[float | None, float]:
    """Return the divisor before and the addend after the rounding."""
    mode = quantization.mode
    if mode == TensorQuantizationMode.NONE:
        return None, 0.0
    if is_float:
        raise WinMLError(E_INVALIDARG, context, "quantization is for INT8 and UINT8 tensors")
    if mode == TensorQuantizationMode.RAW:
        return None, 0.0
    zero_point = quantization.zero_point or 0.0
    if mode == TensorQuantizationMode.SYMMETRIC_PER_TENSOR and zero_point:
        raise WinMLError(E_INVALIDARG, context, f"symmetric quantization has zero_point 0, not {zero_point}")
    return quantization.scale, float(round(zero_point))  # round goes half to even
