"""Speech recognition with whisper-tiny.en: a spoken sentence through the task, against a plain loop of onnxruntime."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.real_models import catalog_model
from fakes.speech import Recognizer, recognizer_of
from fakes.spoken import spoken
from genai.log_mel import log_mel
from genai.tasks import AutomaticSpeechRecognitionFinishReason, CancellationSource
from genai.whisper_rules import WhisperRules
from genai.whisper_tokens import find_tokens

pytestmark = pytest.mark.real

Samples = npt.NDArray[np.float32]
Reason = AutomaticSpeechRecognitionFinishReason


@pytest.fixture(scope="session")
def whisper() -> Path:
    return catalog_model("whisper-tiny.en")


@pytest.fixture(scope="module")
def hello() -> Samples:
    return spoken("Hello world. This is a test.")


@pytest.fixture
def recognizer(whisper: Path) -> Iterator[Recognizer]:
    with recognizer_of(whisper) as recognizer:
        yield recognizer


def plain_loop(folder: Path, features: Samples, most: int = 100) -> list[int]:
    """Greedy token ids by `onnxruntime` alone, with the model's own suppressed tokens."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        for name in ("encoder.onnx", "decoder.onnx")
    )
    tokens = json.loads((folder / "whisper.json").read_text(encoding="utf-8"))["tokens"]
    names = [port.name for port in encoder.get_outputs()]
    heard = dict(zip(names, encoder.run(None, {"input_features": features}), strict=True))
    state = {}
    for port in decoder.get_inputs()[1:]:
        present = port.name.replace("past_key_values", "present")
        empty = np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32)
        state[port.name] = heard[present] if present in heard else empty
    said: list[int] = []
    ids = [tokens["start"], tokens["no_timestamps"]]
    outputs = [port.name for port in decoder.get_outputs()]
    while len(said) < most:
        results = dict(zip(outputs, decoder.run(None, {"input_ids": np.array([ids]), **state}), strict=True))
        for name in outputs[1:]:
            state[name.replace("present", "past_key_values")] = results[name]
        row = results["logits"][0, -1]
        row[tokens["suppress"] + ([] if said else tokens["suppress_at_begin"])] = -np.inf
        ids = [int(row.argmax())]
        if ids == [tokens["end"]]:
            break
        said += ids
    return said


def test_g128_a_spoken_sentence_is_written_down(recognizer: Recognizer, hello: Samples) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.waveform(hello))
    fragments = [update.fragment for update in stream]
    result = stream.result
    assert "hello world" in result.transcript.lower()
    assert "".join(fragments) == result.transcript
    assert (result.finish_reason, result.language) == (Reason.INPUT_COMPLETE, "en")
    assert len(fragments) > 5


def test_token_ids_are_those_of_a_plain_loop(recognizer: Recognizer, hello: Samples) -> None:
    features = log_mel(hello)
    expected = plain_loop(recognizer.folder, features)
    decoder = recognizer.configuration()._compose()
    decoder.encode(features)
    assert list(decoder.decode(decoder.tokens.prompt())) == expected
    transcript = recognizer.session().transcribe(*recognizer.waveform(hello)).transcript
    assert transcript == recognizer.tokenizer.decode(expected).strip()


def test_features_of_the_caller_give_the_same(recognizer: Recognizer, hello: Samples) -> None:
    session = recognizer.session()
    expected = session.transcribe(*recognizer.waveform(hello)).transcript
    with session.transcribe_whisper_log_mel(recognizer.runtime.tensor_from_numpy(log_mel(hello))) as stream:
        assert "".join(update.fragment for update in stream) == expected


def test_times_are_where_the_words_are(recognizer: Recognizer, hello: Samples) -> None:
    decoder = recognizer.configuration()._compose()
    decoder.encode_samples(np.concatenate([np.zeros(8000, np.float32), hello]))
    token_ids = list(decoder.decode(decoder.tokens.prompt(timestamps=True), rules=WhisperRules(timestamps=True)))
    times = [decoder.tokens.seconds(token_id) for token_id in token_ids if decoder.tokens.is_timestamp(token_id)]
    assert 0.0 <= times[0] <= 1.0
    assert len(hello) / 16000 - 0.7 < times[-1] < len(hello) / 16000 + 1.2
    assert times == sorted(times)


def test_silence_is_likely_no_speech(recognizer: Recognizer, hello: Samples) -> None:
    decoder = recognizer.configuration()._compose()
    decoder.encode_samples(np.zeros(32_000, np.float32))
    assert decoder.no_speech_probability() > 0.6
    decoder.encode_samples(hello)
    assert decoder.no_speech_probability() < 0.3


def test_the_derived_list_of_tokens_never_said_is_the_published_one(whisper: Path, tmp_path: Path) -> None:
    from genai import Tokenizer

    published = json.loads((whisper / "whisper.json").read_text(encoding="utf-8"))["tokens"]
    (tmp_path / "tokenizer.json").write_bytes((whisper / "tokenizer.json").read_bytes())
    with Tokenizer.from_file(tmp_path) as tokenizer:
        tokens = find_tokens(tokenizer)
    assert sorted(tokens.suppress) == sorted(published["suppress"])
    assert sorted(tokens.suppress_at_begin) == sorted(published["suppress_at_begin"])
    assert tokens.is_multilingual is False


def test_a_cancel_from_another_thread_stops_within_a_token(recognizer: Recognizer, hello: Samples) -> None:
    session, source = recognizer.session(), CancellationSource()
    stream = session.transcribe_waveform(*recognizer.waveform(hello), cancellation=source)
    first = stream.read_next()
    thread = threading.Thread(target=source.cancel)
    thread.start()
    thread.join()
    assert first is not None
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.CANCELED
    assert "hello world" in session.transcribe(*recognizer.waveform(hello)).transcript.lower()
