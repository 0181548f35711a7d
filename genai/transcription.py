"""One transcription (genai §10): hear a window of sound, decode it, turn tokens into text.

`read_next` runs the model for the update it returns, the first one with the encoder before it; nothing runs ahead. Not
here: the state of the session (`speech_core.py`), the public stream (`speech_stream.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from winml_lite import WinMLError

from .cancellation import CancellationLatch, CancellationSource
from .codes import CANCELLED
from .operation_failures import failure_text, past_late_cancel
from .speech_results import (
    AutomaticSpeechRecognitionFinishReason,
    AutomaticSpeechRecognitionReadStatus,
    AutomaticSpeechRecognitionResult,
    AutomaticSpeechRecognitionUpdate,
)
from .tokenizer import Tokenizer
from .whisper_decoding import WhisperDecoder, WhisperDecoding
from .whisper_folder import WhisperTokens

if TYPE_CHECKING:
    from .speech_core import SpeechCore

Reason = AutomaticSpeechRecognitionFinishReason
Update = AutomaticSpeechRecognitionUpdate
_UPDATE = AutomaticSpeechRecognitionReadStatus.UPDATE
Hear = Callable[[WhisperDecoder], None]
"""Gives a decoder its sound."""


class TranscriptText:
    """Turns the tokens of a transcript into text: special tokens and times are none, nor is the space before the first
    word.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: WhisperTokens) -> None:
        self._decoder = tokenizer.create_decoder(continuation=True)
        self._end = tokens.end
        self._is_at_start = True

    def push(self, token_id: int) -> str:
        """Return the text that this token makes final."""
        if token_id >= self._end:
            return ""
        text = self._decoder.decode_token(token_id)
        if self._is_at_start:
            text = text.lstrip()
            self._is_at_start = not text
        return text


class Transcription:
    """The running transcription of a `SpeechCore`; `hear` gives its decoder the sound on the first read."""

    def __init__(self, core: SpeechCore, hear: Hear, cancellation: CancellationSource) -> None:
        self._core = core
        self._hear: Hear | None = hear
        self._latch = cancellation.latch
        self._text = core.new_text()
        self._decoding: WhisperDecoding | None = None
        self._language: str | None = None
        self._fragments: list[str] = []
        self._handed_out = 0  # how many of the fragments
        self._is_torn = False  # whether a read has not come to its end: Ctrl-C
        self._error: WinMLError | None = None
        self._reason: AutomaticSpeechRecognitionFinishReason | None = None
        self._latch.on_cancel(core.decoder.abort)

    @property
    def latch(self) -> CancellationLatch:
        """What cancels this transcription."""
        return self._latch

    @property
    def result(self) -> AutomaticSpeechRecognitionResult | None:
        """The result; None before the end."""
        if self._reason is None:
            return None
        error = self._error
        return AutomaticSpeechRecognitionResult(
            transcript="".join(self._fragments),
            finish_reason=self._reason,
            error_code=0 if error is None else error.hresult,
            language=self._language,
            error_message=None if error is None else failure_text(error),
        )

    def read_next(self) -> AutomaticSpeechRecognitionUpdate | None:
        """Return the next update, None at the end and ever after. Failures of the model end the transcription, they are
        not raised.

        A KeyboardInterrupt passes through and loses nothing: the next read goes on.
        """
        if self._reason is None:
            was_torn, self._is_torn = self._is_torn, True
            if was_torn:
                self._mend()
            if self._handed_out == len(self._fragments):
                self._advance()
            self._is_torn = False
        else:
            self._leave()
        place = self._handed_out
        if place == len(self._fragments):
            return None
        self._handed_out = place + 1
        return Update(_UPDATE, self._fragments[place])

    def _mend(self) -> None:
        """Make the texts anew after a read that did not come to its end; the tokens are the truth."""
        token_ids = () if self._decoding is None else self._decoding.token_ids
        self._text = self._core.new_text()
        self._fragments = [self._text.push(token_id) for token_id in token_ids]

    def _advance(self) -> None:
        """Decode one more token, or end."""
        try:
            token_id = None if self._latch.is_canceled else past_late_cancel(self._next_token, self._latch)
        except WinMLError as error:
            if error.hresult != CANCELLED or not self._latch.is_canceled:
                self._error = error
            self._finish(Reason.CANCELED if self._error is None else Reason.ERROR)
            return
        if token_id is not None:
            self._fragments.append(self._text.push(token_id))
        elif self._decoding is None or self._decoding.end is None:
            self._finish(Reason.CANCELED)
        else:
            self._finish(Reason.INPUT_COMPLETE if self._decoding.end == "end" else Reason.CAPACITY)

    def _next_token(self) -> int | None:
        """Return the next token; None when canceled before or at the end."""
        decoder = self._core.decoder
        if self._hear is not None:
            self._hear(decoder)
            self._hear = None
        if self._decoding is None:
            if self._latch.is_canceled:
                return None
            self._language = decoder.detect_language()
            self._decoding = decoder.decode(decoder.tokens.prompt(self._language))
        return next(self._decoding, None)

    def _finish(self, reason: AutomaticSpeechRecognitionFinishReason) -> None:
        self._reason = reason
        self._leave()

    def _leave(self) -> None:
        """Give the core free. Doing it again is fine, and needed when an interrupt cut the first time short."""
        self._latch.off_cancel(self._core.decoder.abort)
        self._hear = None
        self._core.finished(self, self._reason is Reason.ERROR)

    def close(self) -> None:
        """End an unfinished transcription as CANCELED without running the model again."""
        if self._reason is None:
            if self._is_torn:
                self._mend()
            self._finish(Reason.CANCELED)
        else:
            self._leave()
