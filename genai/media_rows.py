"""The encoder of a loaded model, and the rows of pictures and sound that it has encoded.

The same content is encoded once: a conversation shows its pictures to the model in every turn. The same rows are also
the same objects, by which a sequence knows what it has consumed already. Not here: where rows stand in a prompt
(`chat_media.py`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from winml_lite import MediaEncoder, NotSupportedError, Runtime, Stage, Tensor, TensorDataType, WinMLError

from .cancellation import CancellationLatch
from .chat_media import EncodedMedia, media_segments
from .chat_parts import AUDIO, IMAGE, ChatMedia
from .codes import CANCELLED, NOT_SUPPORTED
from .conversation_result import ConversationFormatResult
from .media_marks import Place
from .segments import TextGenerationSegment

KEPT_BYTES = 256 << 20
"""Rows that are kept for later turns, beside those of the present one."""
_NAMES = {IMAGE: "pictures", AUDIO: "sound"}


def open_projector(runtime: Runtime, stage: Stage, path: str) -> MediaRows:
    """Load a projector for the stage of a decoder; 0x80070032 when it does not fit, 0x80070570 when it is none."""
    try:
        return MediaRows(runtime, stage.create_media_encoder_from_file(path), path)
    except WinMLError as error:
        if error.hresult != NOT_SUPPORTED:
            raise
        mend = "take the projector (mmproj) that was published with this very model"
        raise NotSupportedError(error.hresult, "genai.load", f"{error.native_message}; {mend}") from error


class MediaRows:
    """Encodes media for one model, and keeps what is likely to come again."""

    def __init__(self, runtime: Runtime, encoder: MediaEncoder, projector: str) -> None:
        """`projector` is the file that the encoder was made of."""
        self._runtime = runtime
        self._encoder = encoder
        self._projector = projector
        self._rows: OrderedDict[bytes, EncodedMedia] = OrderedDict()
        """By the digest of the content, the one that was used last at the end."""
        senses = {TensorDataType.UINT8: IMAGE, TensorDataType.FLOAT32: AUDIO}
        self._kinds = tuple(senses[data_type] for data_type, _ in encoder.media_tensor_descs)

    @property
    def takes_images(self) -> bool:
        """Whether the encoder takes pictures."""
        return IMAGE in self._kinds

    @property
    def takes_audio(self) -> bool:
        """Whether the encoder takes sound."""
        return AUDIO in self._kinds

    def check(self, media: ChatMedia) -> None:
        """Refuse what the encoder does not take."""
        if media.kind not in self._kinds:
            takes = " and ".join(_NAMES[kind] for kind in self._kinds)
            text = f"{self._projector} takes {takes}, no {_NAMES[media.kind]}"
            raise NotSupportedError(NOT_SUPPORTED, "chat", text)

    def segments(
        self, formatted: ConversationFormatResult, media: Mapping[Place, ChatMedia], stop: CancellationLatch
    ) -> list[TextGenerationSegment] | None:
        """Return a prompt with the rows of its media in their places; None when `stop` came before the last of them."""
        for part in media.values():
            self.check(part)
        try:
            encoded = {place: self._encoded(part, stop) for place, part in media.items()}
        except WinMLError as error:
            if error.hresult == CANCELLED and stop.is_canceled:
                return None
            raise
        self._shrink({part.digest for part in media.values()})
        return media_segments(formatted, encoded.__getitem__)

    def _encoded(self, part: ChatMedia, stop: CancellationLatch) -> EncodedMedia:
        rows = self._rows.get(part.digest)
        if rows is None:
            if stop.is_canceled:
                raise WinMLError(CANCELLED, "chat", "the call was cancelled")
            with self._tensor(part) as tensor:
                rows = self._encoder.encode(tensor, should_stop=lambda: stop.is_canceled)
            self._rows[part.digest] = rows
        self._rows.move_to_end(part.digest)
        return rows

    def _tensor(self, part: ChatMedia) -> Tensor:
        """Return what the encoder takes: uint8 (1, height, width, 3), or float32 (1, samples) at its own rate."""
        content = part.content
        if isinstance(content, np.ndarray):
            return self._runtime.tensor_from_numpy(content[None])
        rate = self._encoder.sample_rate
        assert rate is not None
        return self._runtime.tensor_from_numpy(content.resampled(rate).samples[None])

    def _shrink(self, needed: set[bytes]) -> None:
        """Drop what was not used for the longest time."""
        surplus = sum(map(_size, self._rows.values())) - KEPT_BYTES
        for digest in [digest for digest in self._rows if digest not in needed]:
            if surplus <= 0:
                return
            surplus -= _size(self._rows.pop(digest))

    def close(self) -> None:
        """Give the memory of the encoder and its rows back."""
        self._rows.clear()
        self._encoder.close()


def _size(encoded: EncodedMedia) -> int:
    _, shape = encoded[0].desc()
    return 4 * math.prod(shape)
