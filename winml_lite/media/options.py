"""Enumerations and frozen records of media tensors (tensors §1.1 and 1.3). The numbers are part of the contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ..values import TensorDataType

Four = tuple[float, float, float, float]
"""One number per channel; a picture with fewer channels uses the first ones."""


class TensorLayout(IntEnum):
    """Order of the dimensions of a media tensor."""

    UNSPECIFIED = 0
    NCHW = 1
    """Pictures: batch, channel, row, column; each channel is a plane of its own."""
    NHWC = 2
    """Pictures: batch, row, column, channel; the channels of a pixel lie together."""
    NCT = 16
    """Sound: batch, channel, time."""
    NT = 17
    """Sound of one channel: batch, time."""
    NL = 32
    """Tokens: batch, length."""


class TensorChannelOrder(IntEnum):
    """Channels of a picture tensor, in their order."""

    UNSPECIFIED = 0
    RGB = 1
    BGR = 2
    GRAY = 3
    RGBA = 4
    BGRA = 5


class ImageResizeMode(IntEnum):
    """How a picture comes to the size of the tensor."""

    STRETCH = 0
    """The whole picture, stretched or squeezed in each direction."""
    CENTER_CROP = 1
    """The largest middle part that has the right proportions."""
    LETTERBOX = 2
    """The whole picture in its proportions, in the middle, with bars of `letterbox_value` beside it."""


class TensorQuantizationMode(IntEnum):
    """How normalized values become 8-bit integers."""

    NONE = 0
    """Rounded."""
    SYMMETRIC_PER_TENSOR = 1
    """Divided by the scale, then rounded."""
    ZERO_POINT_AFFINE = 2
    """Divided by the scale, rounded, then moved by the zero point."""
    RAW = 3
    """Rounded, as with NONE; the scale only tells what the integers mean."""


class ImageFormat(IntEnum):
    """Bytes of a raw picture, by their DXGI numbers. The sRGB variants 29 and 91 mean 28 and 87 here."""

    RGBA8 = 28
    GRAY8 = 61
    BGRA8 = 87


@dataclass(frozen=True, slots=True)
class TensorNormalization:
    """`(value - mean) * scale` for each output channel; values are 0..255, so the scale holds a division by 255."""

    scale: Four = (1.0, 1.0, 1.0, 1.0)
    mean: Four = (0.0, 0.0, 0.0, 0.0)

    @classmethod
    def identity(cls) -> TensorNormalization:
        """Leave the values 0..255 as they are."""
        return cls()

    @classmethod
    def unit(cls) -> TensorNormalization:
        """Bring 0..255 to 0..1."""
        return cls(scale=(1 / 255, 1 / 255, 1 / 255, 1 / 255))

    @classmethod
    def imagenet(cls) -> TensorNormalization:
        """Return the usual mean and deviation of ImageNet, in the order red, green, blue."""
        return cls(
            scale=(1 / (0.229 * 255), 1 / (0.224 * 255), 1 / (0.225 * 255), 1.0), mean=(123.675, 116.28, 103.53, 0.0)
        )


@dataclass(frozen=True, slots=True)
class TensorQuantization:
    """How INT8 and UINT8 tensors store normalized values: one scale and one zero point per tensor.

    Every mode but NONE needs a scale above 0, and NONE takes neither scale nor zero point (ValueError).
    """

    mode: TensorQuantizationMode = TensorQuantizationMode.NONE
    scale: float | None = None
    zero_point: float | None = None


@dataclass(frozen=True, slots=True)
class ImageTensorOptions:
    """What a picture tensor looks like, and how pixels get into it. Checked when it is used, after the picture."""

    data_type: TensorDataType = TensorDataType.FLOAT32
    """FLOAT32, FLOAT16, INT8 or UINT8."""
    layout: TensorLayout = TensorLayout.NCHW
    """NCHW or NHWC; UNSPECIFIED means NCHW."""
    channel_order: TensorChannelOrder = TensorChannelOrder.RGB
    size: tuple[int, int] | None = None
    """(width, height) of the tensor; None is the size of the picture."""
    resize_mode: ImageResizeMode = ImageResizeMode.STRETCH
    letterbox_value: Four = (0.0, 0.0, 0.0, 0.0)
    """Colour of the bars, one value 0..255 per output channel; it is normalized and quantized like a pixel."""
    normalization: TensorNormalization = field(default_factory=TensorNormalization)
    quantization: TensorQuantization | None = None
    """None is the mode NONE."""


@dataclass(frozen=True, slots=True)
class AudioTensorOptions:
    """What a sound tensor looks like. Checked when it is used."""

    data_type: TensorDataType = TensorDataType.FLOAT32
    """FLOAT32 or FLOAT16."""
    layout: TensorLayout | None = None
    """NT or NCT; None and UNSPECIFIED mean NT for one channel, NCT for more."""
    channels: int = 0
    """Channels of the tensor; 0 means those of the source. One is made of several by their mean, several of one by
    copies; any other change is refused."""
    window_frames: int = 0
    """Length of the windows that the sound, of one channel, is cut into; 0 makes no windows."""
    hop_frames: int = 0
    """Frames from the start of one window to that of the next; 0 means `window_frames`, so that they do not overlap."""


@dataclass(frozen=True, slots=True)
class VideoFrameMetadata:
    """Size and times of a video frame. Zeros leave the size to the frame, None leaves a time away."""

    source_width: int = 0
    """Pixels."""
    source_height: int = 0
    """Pixels."""
    source_stride: int = 0
    """Bytes of a row."""
    timestamp_100ns: int | None = None
    """When the frame is shown, in steps of 100 nanoseconds."""
    duration_100ns: int | None = None
    """How long it is shown, in the same steps."""
