"""Live input of speech recognition: writing chunks and reading their transcript in turns (genai 10).

No Whisper model takes live input, so the model of these tests is a stand-in that says how many samples it was given.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from fakes.rig import failing
from genai.cancellation import CancellationLatch
from genai.speech_live import (
    AutomaticSpeechRecognitionLiveInput,
    AutomaticSpeechRecognitionLiveTranscription,
    LiveChunks,
)
from genai.tasks import (
    AutomaticSpeechRecognitionChunkAcceptance,
    AutomaticSpeechRecognitionFinishReason,
    AutomaticSpeechRecognitionReadStatus,
    AutomaticSpeechRecognitionResult,
    AutomaticSpeechRecognitionStream,
    AutomaticSpeechRecognitionUpdate,
    AutomaticSpeechRecognitionWaveformMetadata,
)
from winml_lite import Runtime, Tensor, WinMLError

Acceptance = AutomaticSpeechRecognitionChunkAcceptance
Metadata = AutomaticSpeechRecognitionWaveformMetadata
Reason = AutomaticSpeechRecognitionFinishReason
Status = AutomaticSpeechRecognitionReadStatus
Update = AutomaticSpeechRecognitionUpdate

E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F


@dataclass
class CountingOperation:
    """A model that hears chunks, and says for each how long it is."""

    chunks: LiveChunks
    latch: CancellationLatch = field(default_factory=CancellationLatch)
    said: str = ""
    reason: AutomaticSpeechRecognitionFinishReason | None = None

    @property
    def result(self) -> AutomaticSpeechRecognitionResult | None:
        return None if self.reason is None else AutomaticSpeechRecognitionResult(self.said, self.reason, 0)

    def read_next(self) -> AutomaticSpeechRecognitionUpdate | None:
        samples = self.chunks.take()
        if samples is not None:
            self.said += f"{samples.size} "
            return Update(Status.UPDATE, f"{samples.size} ")
        if not self.chunks.is_complete:
            return Update(Status.NEED_INPUT)
        self.reason = Reason.INPUT_COMPLETE
        return None

    def close(self) -> None:
        self.reason = self.reason or Reason.CANCELED


@pytest.fixture
def live(runtime: Runtime) -> AutomaticSpeechRecognitionLiveTranscription:
    """A live transcription with room for two chunks."""
    chunks = LiveChunks(2)
    stream = AutomaticSpeechRecognitionStream(CountingOperation(chunks))
    live_input = AutomaticSpeechRecognitionLiveInput(runtime, Metadata(16000, 1), chunks, stream)
    return AutomaticSpeechRecognitionLiveTranscription(stream, live_input)


@pytest.fixture
def sound(runtime: Runtime) -> Tensor:
    return runtime.tensor_from_numpy(np.zeros(320, np.float32))


Live = AutomaticSpeechRecognitionLiveTranscription


def test_updates_ask_for_input_and_carry_the_text(live: Live, sound: Tensor) -> None:
    assert live.stream.read_next() == Update(Status.NEED_INPUT, "")
    assert live.input.write_chunk(5, sound, 320) == Acceptance(True, 5)
    assert live.stream.read_next() == Update(Status.UPDATE, "320 ")
    assert next(live.stream) == Update(Status.NEED_INPUT, "")
    live.input.write_chunk(6, sound, 7)
    live.input.complete_input()
    assert [update.fragment for update in live.stream] == ["7 "]
    assert (live.result.transcript, live.result.finish_reason) == ("320 7 ", Reason.INPUT_COMPLETE)


def test_a_full_queue_takes_nothing(live: Live, sound: Tensor) -> None:
    assert live.input.lifetime_watermark is None
    live.input.write_chunk(1, sound, 1)
    live.input.write_chunk(2, sound, 2)
    assert live.input.write_chunk(3, sound, 3) == Acceptance(False, 2)
    live.stream.read_next()
    assert live.input.write_chunk(3, sound, 3) == Acceptance(True, 3)
    assert live.input.lifetime_watermark == 3


def test_a_chunk_is_copied_at_once(runtime: Runtime) -> None:
    chunks = LiveChunks(1)
    stream = AutomaticSpeechRecognitionStream(CountingOperation(chunks))
    sound = runtime.tensor_from_numpy(np.array([0.25, -0.5, 1], np.float32))
    AutomaticSpeechRecognitionLiveInput(runtime, Metadata(16000, 1), chunks, stream).write_chunk(1, sound, 2)
    sound.fill(0.0)
    taken = chunks.take()
    assert taken is not None
    assert taken.tolist() == [0.25, -0.5]


def test_chunks_are_checked(live: Live, sound: Tensor) -> None:
    live.input.write_chunk(4, sound, 1)
    for chunk_id, count in ((4, 1), (3, 1), (5, 321)):
        with failing(E_INVALIDARG):
            live.input.write_chunk(chunk_id, sound, count)
    with pytest.raises(ValueError, match="valid_sample_count"):
        live.input.write_chunk(5, sound, 0)
    with pytest.raises(ValueError, match="chunk_id"):
        live.input.write_chunk(2**64, sound, 1)
    with pytest.raises(TypeError, match="waveform"):
        live.input.write_chunk(5, np.zeros(9), 1)  # type: ignore[arg-type]


def test_after_the_last_chunk_no_more_is_taken(live: Live, sound: Tensor) -> None:
    live.input.complete_input()
    live.input.complete_input()
    with failing(E_NOT_VALID_STATE):
        live.input.write_chunk(1, sound, 1)


def test_after_the_end_of_the_stream_no_more_is_taken(live: Live, sound: Tensor) -> None:
    live.stream.close()
    with failing(E_NOT_VALID_STATE):
        live.input.write_chunk(1, sound, 1)


def test_an_incomplete_input_cannot_be_closed(live: Live) -> None:
    with failing(E_NOT_VALID_STATE):
        live.input.close()
    live.input.complete_input()
    live.input.close()
    live.input.close()
    with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionLiveInput is closed"):
        live.input.complete_input()


def test_closing_the_whole_closes_the_stream_first(live: Live) -> None:
    with live:
        assert live.stream.read_next() == Update(Status.NEED_INPUT, "")
    live.close()
    assert live.result.finish_reason is Reason.CANCELED
    with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionStream is closed"):
        live.__enter__()


def test_the_input_is_bound_to_its_thread(live: Live, sound: Tensor) -> None:
    codes: list[int] = []

    def write() -> None:
        for call in (lambda: live.input.write_chunk(1, sound, 1), live.input.complete_input, live.input.close):
            try:
                call()
            except WinMLError as error:
                codes.append(error.hresult)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert codes == [0x8001010E] * 3
