"""The methods of `Runtime` that make tensors of sound, and sound of tensors (tensors §6)."""

from __future__ import annotations

from typing import Any

from .checks import number_value
from .handles import Closeable
from .media.audio_layout import audio_layout, audio_options, audio_source
from .media.audio_tensors import audio_storage
from .media.options import AudioTensorOptions
from .target import ExecutionTarget, RuntimeCore, tensor_target
from .tensor import Tensor, bindable


class AudioFactories(Closeable[RuntimeCore]):
    """What `Runtime` has for sound."""

    __slots__ = ()

    def tensor_from_audio(
        self,
        samples: Any,
        *,
        sample_rate: int,
        channels: int | None = None,
        sample_format: str | None = None,
        options: AudioTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a tensor of sound: (1, T) for one channel, (1, C, T) for more, FLOAT32 unless `options` say FLOAT16.

        `samples` is one of:

        - an array of uint8, int16, int32 or float32, shape (frames,) or (frames, channels).
        - bytes of interleaved little-endian samples, with `channels` and `sample_format`, the name of such a dtype.

        uint8 becomes (s - 128) / 128, int16 s / 2**15, int32 s / 2**31; float32 is taken as it is, also beyond -1 to 1.
        With `options.window_frames` W and `hop_frames` H the shape is (F, W), or (F, 1, W) in layout NCT: row k holds
        samples k H to k H + W - 1, the last one with zeros at its end; no window function is applied. Sound is never
        resampled: `sample_rate` (Hz) is what it has.

        Errors: ValueError for arguments and options that do not fit together, 0x80070057 for an element type other than
        FLOAT32 and FLOAT16, for half a frame or none at all, and for channels that cannot be made of the others.
        """
        core = self._core
        keeper = tensor_target(target, core)
        wanted = audio_options(options)
        number_value(sample_rate, "sample_rate", minimum=1)
        source = audio_source(samples, channels, sample_format)
        layout = audio_layout(wanted, source.channels)
        return Tensor(audio_storage(source.frames(), layout), core, keeper)

    def audio_bytes_from_tensor(
        self,
        tensor: Tensor,
        *,
        sample_rate: int,
        channels: int,
        sample_format: str = "int16",
        target: ExecutionTarget | None = None,
    ) -> bytes:
        """Return the sound of a FLOAT32 or FLOAT16 tensor (1, T) or (1, C, T) as interleaved little-endian samples.

        `sample_format` is "int16", "int32" or "float32". Integers are rounded half to even and clamped, NaN is 0; an
        int16 that became FLOAT32 comes back the same. The rate is that of the sound: it changes nothing.

        Errors: ValueError for other shapes, formats and numbers of channels, 0x80070057 for other element types.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        bindable(tensor)
        return tensor.to_audio_bytes(
            sample_rate=sample_rate, channels=channels, sample_format=sample_format, target=target
        )
