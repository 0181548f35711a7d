"""What speech recognition takes and gives back (genai §10): states, finish reasons, updates, results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from winml_lite import WinMLError

from .checks import index_value

_UINT64 = 0xFFFFFFFFFFFFFFFF


class AutomaticSpeechRecognitionSessionState(IntEnum):
    """What a session can do next. A new session is READY."""

    EMPTY = 0
    READY = 1
    ACTIVE = 2
    RESET_REQUIRED = 3
    CLOSED = 4


class AutomaticSpeechRecognitionFinishReason(IntEnum):
    """Why a transcription ended."""

    INPUT_COMPLETE = 0
    """Everything that was heard is written down."""
    CAPACITY = 1
    """The decoder has used up its last position."""
    CANCELED = 2
    ERROR = 3


class AutomaticSpeechRecognitionReadStatus(IntEnum):
    """What a read of a stream has come to."""

    UPDATE = 0
    NEED_INPUT = 1
    """More sound must be written first; live input only."""
    COMPLETED = 2
    """The end; in Python a read returns None instead."""


@dataclass(frozen=True, slots=True)
class AutomaticSpeechRecognitionWaveformMetadata:
    """What a waveform tensor holds. ValueError for a number that is not positive."""

    sample_rate: int
    """Hz; uint32."""
    valid_sample_count: int
    """Samples that count, from the first on; uint64."""
    channel_count: int = 1
    """uint32."""

    def __post_init__(self) -> None:
        for name, maximum in (
            ("sample_rate", 0xFFFFFFFF),
            ("valid_sample_count", _UINT64),
            ("channel_count", 0xFFFFFFFF),
        ):
            object.__setattr__(self, name, index_value(getattr(self, name), name, maximum, minimum=1))


@dataclass(frozen=True, slots=True)
class AutomaticSpeechRecognitionUpdate:
    """One step of a transcription, and the text that became final with it (often a word, sometimes "")."""

    status: AutomaticSpeechRecognitionReadStatus
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class AutomaticSpeechRecognitionResult:
    """The whole of a finished transcription; `transcript` is the joined fragments.

    `error_code` is 0 unless `finish_reason` is ERROR, where it is the failing HRESULT and `error_message` its text.
    """

    transcript: str
    finish_reason: AutomaticSpeechRecognitionFinishReason
    error_code: int
    language: str | None = None
    """Code of the language that was heard, for example "en"; None when the sound was never looked at."""
    error_message: str | None = None

    def raise_for_error(self) -> None:
        """Raise WinMLError when the transcription ended with ERROR."""
        if self.error_code & 0x80000000:
            raise WinMLError(self.error_code, "speech recognition", self.error_message)


@dataclass(frozen=True, slots=True)
class AutomaticSpeechRecognitionChunkAcceptance:
    """What became of a chunk of live input."""

    accepted: bool
    """False: too many chunks wait already and nothing was taken; read the stream, then write the chunk again."""
    lifetime_watermark: int | None
    """Id of the last chunk whose tensor is not needed any more; None before the first."""
