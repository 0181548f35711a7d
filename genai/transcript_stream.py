"""A transcription of the short road at work, and its stream: segments as they become final.

Nothing runs ahead: reading hears the next window of sound when the segments of the one before are used up. Not here:
whose turn it is (`turnstile.py`), what becomes of a window (`speech_windows.py`, `window_hearing.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .closing import Closing
from .codes import CANCELLED, E_NOT_VALID_STATE
from .log_mel import SAMPLE_RATE
from .operation_failures import failure_text
from .speech_results import AutomaticSpeechRecognitionFinishReason as FinishReason
from .speech_windows import TimedPiece, walk
from .spoken_sound import Samples, SpokenSound
from .text_stream import Operation
from .tokenizer import Tokenizer
from .transcript import Transcript, TranscriptSegment, TranscriptTimings
from .transcription_options import SpeechProgress, TranscriptionOptions
from .voice_activity import VoiceActivity
from .whisper_decoding import WhisperDecoder
from .window_hearing import Hearing

SpeechOperation: TypeAlias = Operation[TranscriptSegment, Transcript]


@dataclass(frozen=True, slots=True)
class Recording:
    """What is to be transcribed, and how."""

    blocks: Iterator[Samples]
    """Mono at 16 kHz."""
    duration: float | None
    """Seconds, where they are known."""
    activity: Callable[[], VoiceActivity] | None
    """Returns what tells speech from silence; None hears everything."""
    only_when_long: bool
    """Whether `activity` is for recordings of more than a window only."""
    is_live: bool
    """Whether a window ends at the first pause."""
    options: TranscriptionOptions
    progress: SpeechProgress | None


class RunningTranscript:
    """A transcription of one recording. It is for one user at a time, but any thread may cancel its latch."""

    def __init__(self, decoder: WhisperDecoder, tokenizer: Tokenizer, recording: Recording) -> None:
        self.latch = CancellationLatch()
        self._decoder = decoder
        self._recording = recording
        self._sound = SpokenSound(
            recording.blocks,
            recording.activity,
            only_when_long=recording.only_when_long,
            is_live=recording.is_live,
            check=self._check_not_canceled,
        )
        self._hearing = Hearing(decoder, tokenizer, recording.options, self.latch, lambda: self._sound.is_spoken)
        self._windows = walk(self._sound, self._hearing, decoder.tokens, timestamps=recording.options.timestamps)
        self._texts: list[str] = []
        self._segments: list[TranscriptSegment] = []
        self._handed_out = 0
        self._seconds = 0.0
        self._begun: float | None = None
        self.error: WinMLError | None = None
        """What the transcription failed with."""
        self._result: Transcript | None = None
        self._has_left = False
        self.latch.on_cancel(decoder.abort)

    @property
    def result(self) -> Transcript | None:
        """The result; None before the end."""
        return self._result

    def read_next(self) -> TranscriptSegment | None:
        """Return the next segment, None at the end and ever after. Failures of the model end the transcription, they
        are not raised.
        """
        self._begun = perf_counter()
        try:
            while self._handed_out == len(self._segments) and self._result is None:
                self._hear_window()
        finally:
            self._count_time()
        if self._handed_out == len(self._segments):
            return None
        self._handed_out += 1
        return self._segments[self._handed_out - 1]

    def _count_time(self) -> None:
        if self._begun is not None:
            self._seconds += perf_counter() - self._begun
            self._begun = None

    def _hear_window(self) -> None:
        try:
            pieces = next(self._windows, None)
        except WinMLError as error:
            is_cancelled = error.hresult == CANCELLED and self.latch.is_canceled
            self._finish(*(FinishReason.CANCELED, None) if is_cancelled else (FinishReason.ERROR, error))
            return
        if pieces is None:
            self._finish(FinishReason.INPUT_COMPLETE)
            return
        for piece in pieces:
            text = self._hearing.text(piece.token_ids)
            if text.strip():
                self._texts.append(text)
                self._segments.append(_segment(piece, text))
        self._tell(self._sound.done)

    def _check_not_canceled(self) -> None:
        if self.latch.is_canceled:
            raise WinMLError(CANCELLED, "transcribe", "the transcription was canceled")

    def _tell(self, done: int) -> None:
        if self._recording.progress is not None:
            self._recording.progress(done / SAMPLE_RATE, self._recording.duration)

    def close(self) -> None:
        """End an unfinished transcription as CANCELED, with what was heard so far; there is nothing more to read."""
        if self._result is None:
            self._finish(FinishReason.CANCELED)
        self._handed_out = len(self._segments)
        self._leave()

    def _finish(self, reason: FinishReason, error: WinMLError | None = None) -> None:
        self._count_time()
        self.error = error
        sound, hearing = self._sound, self._hearing
        is_complete = reason is FinishReason.INPUT_COMPLETE
        done = sound.length if is_complete else sound.done
        self._result = Transcript(
            text="".join(self._texts).strip(),
            segments=tuple(self._segments),
            language=hearing.language,
            duration=done / SAMPLE_RATE,
            timings=TranscriptTimings(
                sound_seconds=done / SAMPLE_RATE,
                seconds=self._seconds,
                encode_seconds=hearing.encode_seconds,
                decode_seconds=hearing.decode_seconds,
                window_count=hearing.window_count,
                token_count=hearing.token_count,
            ),
            finish_reason=reason,
            error_code=0 if error is None else error.hresult,
            error_message=None if error is None else failure_text(error),
        )
        if error is not None:
            with suppress(WinMLError):  # what went wrong first is what counts
                self._decoder.reset()
        self._leave()
        if is_complete:
            self._tell(done)

    def _leave(self) -> None:
        """Give decoder and sound free. Again is fine, and needed when an interrupt cut the first time short."""
        if self._has_left:  # by now the model may be closed
            return
        self.latch.off_cancel(self._decoder.abort)
        self._windows.close()
        self._sound.close()
        self._decoder.release_threads()  # the next transcription may be another thread's
        self._has_left = True


def _segment(piece: TimedPiece, text: str) -> TranscriptSegment:
    heard = piece.heard
    return TranscriptSegment(
        start=piece.start,
        end=piece.end,
        text=text.strip(),
        token_ids=piece.token_ids,
        average_log_probability=heard.average_log_probability,
        no_speech_probability=heard.no_speech_probability,
        temperature=heard.temperature,
    )


class SpeechStream(Closing):
    """An iterator of the segments of a recording; afterwards `result` holds the whole.

    Leaving the loop early and dropping the stream, or `close()`, ends the transcription as CANCELED, with what was
    heard so far. A failing model or file raises its error from the iteration; `result` is there then, too. Any thread
    may read or close it.
    """

    def __init__(self, operation: SpeechOperation, running: RunningTranscript) -> None:
        self._operation = operation
        self._running = running
        self._finalizer = weakref.finalize(self, operation.end)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        result = self._running.result
        return f"<SpeechStream {'unfinished' if result is None else result.finish_reason.name}>"

    def __iter__(self) -> Iterator[TranscriptSegment]:
        return self

    def __next__(self) -> TranscriptSegment:
        try:
            segment = self._operation.read_next()
        except BaseException:  # KeyboardInterrupt: the model stays usable
            self.close()
            raise
        if segment is not None:
            return segment
        self.close()
        if self._running.error is not None:
            raise self._running.error
        raise StopIteration

    @property
    def result(self) -> Transcript:
        """The whole of the finished transcription; 0x8007139F before its end."""
        result = self._running.result
        if result is None:
            text = "the stream is not at its end: read it or close it"
            raise WinMLError(E_NOT_VALID_STATE, "SpeechStream.result", text)
        return result

    def read(self) -> Transcript:
        """Transcribe to the end and return the result."""
        with self:
            for _ in self:
                pass
        return self.result

    def cancel(self) -> None:
        """Ask the transcription to stop; any thread may."""
        self._running.latch.cancel()

    def close(self) -> None:
        """End the transcription now; what was not read is never heard."""
        if self._running.result is None:
            self.cancel()  # another thread may be reading, and wait for sound until somebody speaks
        self._operation.end()
        self._finalizer.detach()

    def _check_open(self) -> None:
        """A stream may be entered at any time: closing it keeps its result."""
