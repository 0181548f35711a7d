"""Live input of speech recognition (genai §10): chunks of sound that are written while their transcript is read.

For models that hear sound as it comes; a Whisper model does not, and its sessions make no live transcriptions. Here:
the queue between writer and reader, and the public wrappers. Everything is bound to the thread of the session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from winml_lite import Runtime, Tensor, WinMLError

from .affinity import ThreadAffinity
from .checks import index_value, instance_of
from .closing import Closing
from .codes import E_INVALIDARG, E_NOT_VALID_STATE
from .speech_inputs import valid_samples
from .speech_results import (
    AutomaticSpeechRecognitionChunkAcceptance,
    AutomaticSpeechRecognitionResult,
    AutomaticSpeechRecognitionWaveformMetadata,
)
from .speech_stream import AutomaticSpeechRecognitionStream

_UINT64 = 0xFFFFFFFFFFFFFFFF


class LiveChunks:
    """Sound that waits for the model, at most `maximum` chunks of it."""

    def __init__(self, maximum: int) -> None:
        self._waiting: deque[npt.NDArray[np.float32]] = deque()
        self._maximum = maximum
        self.last_id: int | None = None
        """Id of the last chunk that was taken in."""
        self.is_complete = False
        """Whether no more will come."""

    @property
    def is_full(self) -> bool:
        """Whether no more chunks are taken in now."""
        return len(self._waiting) >= self._maximum

    def put(self, chunk_id: int, samples: npt.NDArray[np.float32]) -> None:
        """Append a chunk."""
        self._waiting.append(samples)
        self.last_id = chunk_id

    def take(self) -> npt.NDArray[np.float32] | None:
        """Return the chunk that has waited longest; None when the model needs more input, or has had all of it."""
        return self._waiting.popleft() if self._waiting else None


class AutomaticSpeechRecognitionLiveInput(Closing):
    """Takes the sound of a live transcription, chunk by chunk. Only the creating thread may use it."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: AutomaticSpeechRecognitionWaveformMetadata,
        chunks: LiveChunks,
        stream: AutomaticSpeechRecognitionStream,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._chunks = chunks
        self._stream = stream
        self._affinity = ThreadAffinity()
        self._is_closed = False

    def __repr__(self) -> str:
        state = "(closed)" if self._is_closed else "complete" if self._chunks.is_complete else "open"
        return f"<AutomaticSpeechRecognitionLiveInput {state}>"

    def _check_open(self) -> None:
        self._affinity.check("AutomaticSpeechRecognitionLiveInput")
        if self._is_closed:
            raise RuntimeError("AutomaticSpeechRecognitionLiveInput is closed")

    @property
    def lifetime_watermark(self) -> int | None:
        """Id of the last chunk whose tensor is not needed any more, since it was copied; None before the first."""
        self._check_open()
        return self._chunks.last_id

    def write_chunk(
        self, chunk_id: int, waveform: Tensor, valid_sample_count: int
    ) -> AutomaticSpeechRecognitionChunkAcceptance:
        """Append the first `valid_sample_count` samples of a tensor, unless too many chunks wait already.

        chunk_id: uint64, larger than those before.
        waveform: as for `transcribe_waveform`; its rate and channels are those of the metadata at the beginning.

        WinMLError 0x8007139F after `complete_input` and when the stream is at its end, 0x80070057 for an id that is not
        larger and for another waveform.
        """
        self._check_open()
        number = index_value(chunk_id, "chunk_id", _UINT64)
        instance_of(waveform, Tensor, "waveform")
        metadata = replace(self._metadata, valid_sample_count=valid_sample_count)
        chunks = self._chunks
        if chunks.is_complete or self._stream.is_at_end:
            raise WinMLError(E_NOT_VALID_STATE, "write_chunk", "the input is complete, no more is taken")
        if chunks.last_id is not None and number <= chunks.last_id:
            raise WinMLError(
                E_INVALIDARG, "write_chunk", f"chunk {number} comes after chunk {chunks.last_id}: count up"
            )
        samples = valid_samples(self._runtime, waveform, metadata)
        if chunks.is_full:
            return AutomaticSpeechRecognitionChunkAcceptance(False, chunks.last_id)
        chunks.put(number, samples)
        return AutomaticSpeechRecognitionChunkAcceptance(True, chunks.last_id)

    def complete_input(self) -> None:
        """Say that no more will come, so that the stream can reach its end. Again is fine."""
        self._check_open()
        self._chunks.is_complete = True

    def close(self) -> None:
        """Close the input. 0x8007139F before `complete_input` or the end of the stream; again is fine."""
        self._affinity.check("AutomaticSpeechRecognitionLiveInput")
        if not self._is_closed and not self._chunks.is_complete and not self._stream.is_at_end:
            raise WinMLError(E_NOT_VALID_STATE, "close", "the input is not complete: call complete_input() first")
        self._is_closed = True


class AutomaticSpeechRecognitionLiveTranscription(Closing):
    """A live transcription: write into `input`, read `stream`, in turns."""

    def __init__(
        self, stream: AutomaticSpeechRecognitionStream, live_input: AutomaticSpeechRecognitionLiveInput
    ) -> None:
        self._stream = stream
        self._input = live_input

    def __repr__(self) -> str:
        return f"<AutomaticSpeechRecognitionLiveTranscription {self._input!r}, {self._stream!r}>"

    @property
    def stream(self) -> AutomaticSpeechRecognitionStream:
        """What is read; an update with the status NEED_INPUT asks for more input."""
        return self._stream

    @property
    def input(self) -> AutomaticSpeechRecognitionLiveInput:
        """What is written to."""
        return self._input

    @property
    def result(self) -> AutomaticSpeechRecognitionResult:
        """The result of the stream."""
        return self._stream.result

    def close(self) -> None:
        """Close the stream, then the input; an unfinished transcription counts as CANCELED. Again is fine."""
        self._stream.close()
        self._input.close()

    def _check_open(self) -> None:
        self._stream._check_open()
