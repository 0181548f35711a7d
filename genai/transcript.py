"""What `SpeechModel.transcribe` gives back: segments of text with their times, and the whole of them.

Not here: how they come about (`speech_windows.py`), how subtitles are written (`subtitles.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from winml_lite import WinMLError

from . import subtitles
from .speech_results import AutomaticSpeechRecognitionFinishReason as FinishReason
from .subtitles import LINE_LENGTH


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    """A piece of text that was spoken in one go."""

    start: float
    """Seconds from the beginning of the recording."""
    end: float
    text: str
    """Without the space before the first word."""
    token_ids: tuple[int, ...]
    """Tokens of the text; timestamps are not among them."""
    average_log_probability: float
    """Mean of the natural logarithms of the probabilities of all tokens that were decoded with it: how sure the model
    is. Below -1 it guesses."""
    no_speech_probability: float
    """How likely the model found that nothing was said in the window of sound."""
    temperature: float
    """What it was decoded at; above 0 where the likeliest tokens repeated themselves or were guesses."""


@dataclass(frozen=True, slots=True)
class TranscriptTimings:
    """What a transcription took. Seconds are wall-clock seconds, counted inside the reads of its stream: those in which
    a microphone is waited for are among them.
    """

    sound_seconds: float
    """Seconds of the recording that were worked through, silence included."""
    seconds: float
    encode_seconds: float
    """Of them, computing features and running the encoder."""
    decode_seconds: float
    """Of them, running the decoder and choosing tokens."""
    window_count: int
    """Windows of up to 30 seconds that were heard."""
    token_count: int
    """Tokens that were decoded, timestamps and repeated attempts included."""

    @property
    def real_time_factor(self) -> float:
        """Seconds of work for each second of the recording: 0.1 is ten times as fast as it was spoken; 0.0 for no
        sound.
        """
        return self.seconds / self.sound_seconds if self.sound_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole of a transcription, or what was heard of the recording before it was stopped.

    `error_code` is 0 unless `finish_reason` is ERROR, where it is the failing HRESULT and `error_message` its text.
    """

    text: str
    """All segments, joined as the model wrote them."""
    segments: tuple[TranscriptSegment, ...]
    language: str | None
    """Code of the language that was spoken, for example "en"; None where no speech was heard."""
    duration: float
    """Seconds of the recording; of a part of it, when the transcription was stopped."""
    timings: TranscriptTimings
    finish_reason: FinishReason = FinishReason.INPUT_COMPLETE
    error_code: int = 0
    error_message: str | None = None

    def __str__(self) -> str:
        return self.text

    def srt(self, *, line_length: int | None = LINE_LENGTH) -> str:
        """Return SubRip subtitles. `line_length` is the most characters of a line; None does not break lines."""
        return subtitles.srt(self.segments, line_length)

    def vtt(self, *, line_length: int | None = LINE_LENGTH) -> str:
        """Return WebVTT subtitles. `line_length` is the most characters of a line; None does not break lines."""
        return subtitles.vtt(self.segments, line_length)

    def as_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON knows."""
        return {
            "text": self.text,
            "language": self.language,
            "duration": self.duration,
            "finish_reason": self.finish_reason.name,
            "segments": [asdict(segment) for segment in self.segments],
            "timings": {**asdict(self.timings), "real_time_factor": self.timings.real_time_factor},
        }

    def json(self, *, indent: int | None = 2) -> str:
        """Return `as_dict` as JSON text."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=indent)

    def raise_for_error(self) -> None:
        """Raise WinMLError when the transcription ended with ERROR."""
        if self.error_code & 0x80000000:
            raise WinMLError(self.error_code, "transcribe", self.error_message)
