"""What one token costs around the model, in counts: runs, calls, bindings, memory that stays. Nothing here is timed."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from fakes.scripted import A, B, Composed, composed, one_hot
from genai import CancellationSource, LanguageModel, TextGenerationOptions
from genai.loop import GenerationLoop
from genai.sequence import SequenceCore

pytestmark = pytest.mark.perf

SAMPLED = {"temperature": 0.8, "top_k": 4, "top_p": 0.95, "min_p": 0.05}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Composed]:
    """A stage that always says b, with room for 10,000 tokens."""
    row = one_hot(B)
    with composed(tmp_path, lambda history: row, capacity=10_000) as stage:
        yield stage


def core_of(stage: Composed) -> SequenceCore:
    return SequenceCore(stage.composition(), stage.tokenizer, ())


def loop_of(stage: Composed, count: int, **options: Any) -> GenerationLoop:
    return core_of(stage).start([A, A], TextGenerationOptions(count, **options), CancellationSource())


def calls_of(call: Callable[[], object]) -> Counter[str]:
    """Python functions of the text layer and the object model that `call` enters."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if event == "call" and ("/genai/" in file or "/winml_lite/" in file) and "/fakes/" not in file:
            seen[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_g102_there_are_as_many_runs_as_tokens(stage: Composed) -> None:
    loop = loop_of(stage, 500)
    for runs in range(1, 501):
        assert loop.read_next() is not None
        assert stage.script.runs == runs
    assert loop.read_next() is None
    assert stage.script.runs == 500


def test_single_steps_bind_nothing(stage: Composed) -> None:
    loop = loop_of(stage, 500)
    for _ in range(3):
        loop.read_next()
    binds = stage.script.binds
    for _ in range(400):
        loop.read_next()
    assert stage.script.binds == binds


@pytest.mark.parametrize("options", [{}, SAMPLED, {"repetition_penalty": 1.1, "stop": ["xyz"]}])
def test_a_token_enters_as_many_functions_at_4000_as_at_100(stage: Composed, options: dict[str, Any]) -> None:
    loop = loop_of(stage, 5000, seed=1, **options)
    for _ in range(100):
        loop.read_next()
    early = calls_of(loop.read_next)
    for _ in range(3900):
        loop.read_next()
    assert calls_of(loop.read_next) == early
    assert early["run"] == 1


def test_a_greedy_token_enters_few_functions(stage: Composed) -> None:
    """The budget of one token outside the engine, the fake engine's own functions not counted."""
    loop = loop_of(stage, 50)
    for _ in range(10):
        loop.read_next()
    calls = calls_of(loop.read_next)
    for name in ("array", "compute"):
        calls.pop(name, None)
    assert sum(calls.values()) <= 30, calls


@pytest.mark.parametrize("options", [{}, SAMPLED, {"repetition_penalty": 1.1, "stop": ["xyz"]}])
def test_tokens_100_to_4000_keep_no_memory_but_the_text(stage: Composed, options: dict[str, Any]) -> None:
    """A token keeps its id twice and its fragment: a few pointers, and no object of its own."""
    loop = loop_of(stage, 5000, seed=1, **options)
    for _ in range(100):
        loop.read_next()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(3900):
            loop.read_next()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 3900 * 48


def test_the_peak_of_one_token_does_not_grow(stage: Composed) -> None:
    loop = loop_of(stage, 5000)
    stage.executor.compute = lambda inputs: [np.zeros((1, 16), np.float32)]

    def peak() -> int:
        loop.read_next()
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(10):
                loop.read_next()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for _ in range(100):
        loop.read_next()
    early = peak()
    while len(loop._token_ids) < 4000:
        loop.read_next()
    late = peak()
    # A list that grows is copied now and then: that may fall into one of the two windows.
    assert late < early + 4500 * 8 * 2.5


def test_pieces_are_asked_for_once(stage: Composed) -> None:
    vocabulary = stage.tokenizer._core.vocabulary
    asked: Counter[int] = Counter()
    table = stage.tokenizer._core.pieces
    piece = table._piece

    def counting(token_id: int) -> bytes | None:
        asked[token_id] += 1
        return piece(token_id)

    table._piece = counting
    loop = loop_of(stage, 300)
    while loop.read_next() is not None:
        pass
    assert vocabulary.token_count == 16
    assert asked == {B: 1}


def test_the_short_road_adds_only_its_own_stream(stage: Composed) -> None:
    with LanguageModel("tiny", "llama.cpp", "tiny.gguf", core_of(stage), ()) as model:
        stream = model.stream("aa", max_new_tokens=50)
        for _ in range(10):
            next(stream)
        short = calls_of(lambda: next(stream))
        stream.close()
    assert short["read_next"] == 2
    assert short["__next__"] == 1


def test_a_reused_prefix_is_found_without_a_call_a_token(stage: Composed) -> None:
    core = core_of(stage)
    prompt = [A, B] * 2000
    loop = core.start(prompt, TextGenerationOptions(1), CancellationSource())
    while loop.read_next() is not None:
        pass
    calls = calls_of(lambda: core.start([*prompt, A], TextGenerationOptions(1), CancellationSource()))
    assert sum(calls.values()) < 120, calls
