"""Streams for asyncio over a scripted decoder: the event loop goes on, and cancelling frees the model (S-LIF-09)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, ScriptedDecoder, ScriptedTokenizer, successor
from genai import LanguageModel, TextGenerationFinishReason
from genai.sequence import SequenceCore
from winml_lite import WinMLError

Reason = TextGenerationFinishReason


@pytest.fixture
def decoder() -> ScriptedDecoder:
    return ScriptedDecoder(successor)


@pytest.fixture
def model(decoder: ScriptedDecoder) -> LanguageModel:
    parts: Any = decoder
    tokenizer: Any = ScriptedTokenizer()
    return LanguageModel("tiny", "llama.cpp", "tiny.gguf", SequenceCore(parts, parts, parts, tokenizer, (EOS,)), ())


def test_pieces_come_in_order_and_the_result_follows(model: LanguageModel) -> None:
    async def run() -> tuple[list[str], str]:
        stream = model.astream("a", max_new_tokens=3)
        pieces = [piece async for piece in stream]
        return pieces, stream.result.text

    assert asyncio.run(run()) == (["b", "c", "d"], "bcd")


def test_the_model_works_in_one_other_thread(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    async def run() -> None:
        await model.astream("a", max_new_tokens=5).read()

    asyncio.run(run())
    assert len(decoder.readers) == 1
    assert threading.current_thread() not in decoder.readers


def test_s_lif_09_the_event_loop_stays_alive(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.delay = 0.02
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async def run() -> None:
        ticking = asyncio.create_task(tick())
        await model.astream("a", max_new_tokens=10).read()
        ticking.cancel()

    asyncio.run(run())
    assert ticks > 10


def test_s_lif_09_cancelling_the_task_frees_the_model(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.delay = 0.01
    decoder.capacity = 0

    async def run() -> str:
        task = asyncio.create_task(model.astream("a", max_new_tokens=100_000).read())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await model.astream("a", max_new_tokens=2, timeout=5).read()).text

    assert asyncio.run(run()) == "bc"


def test_closing_early_ends_the_generation(model: LanguageModel) -> None:
    async def run() -> Reason:
        async with model.astream("a") as stream:
            async for piece in stream:
                assert piece == "b"
                break
        assert [piece async for piece in stream] == []
        return stream.result.finish_reason

    assert asyncio.run(run()) is Reason.CANCELED
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_cancelling_ends_it_quietly(model: LanguageModel) -> None:
    async def run() -> tuple[list[str], Reason]:
        stream = model.astream("a")
        stream.cancel()
        return [piece async for piece in stream], stream.result.finish_reason

    assert asyncio.run(run()) == ([], Reason.CANCELED)


def test_a_failing_model_raises_from_the_iteration(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.before[2] = WinMLError(0x80004005)

    async def run() -> None:
        async for piece in model.astream("a"):
            assert piece == "b"

    with failing(0x80004005):
        asyncio.run(run())
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_wrong_options_are_refused_at_once(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="max_new_tokens"):
        model.astream("a", max_new_tokens=0)


def test_there_is_no_result_before_the_first_read(model: LanguageModel) -> None:
    with failing(0x8007139F):
        model.astream("a").result  # noqa: B018


def test_two_streams_of_one_loop_take_turns(model: LanguageModel) -> None:
    async def run() -> list[str]:
        results = await asyncio.gather(*(model.astream([n], max_new_tokens=2).read() for n in range(4)))
        return [result.text for result in results]

    assert asyncio.run(run()) == ["bc", "cd", "da", "ab"]
