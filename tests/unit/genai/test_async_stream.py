"""Streams for asyncio over a scripted decoder: the event loop goes on, whatever happens (S-LIF-09).

Where a step of the model is held up, it is a heartbeat of the event loop that lets it go on: a loop that is blocked
would never get there.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, ScriptedDecoder, ScriptedTokenizer, successor
from genai import CancellationSource, LanguageModel, TextGenerationFinishReason
from genai.async_stream import AsyncTextStream
from genai.sequence import SequenceCore
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
BEATS = 200
"""Rounds of the event loop that must fit into one step of the model."""


@pytest.fixture
def decoder() -> ScriptedDecoder:
    return ScriptedDecoder(successor)


@pytest.fixture
def model(decoder: ScriptedDecoder) -> LanguageModel:
    parts: Any = decoder
    tokenizer: Any = ScriptedTokenizer()
    return LanguageModel("tiny", "llama.cpp", "tiny.gguf", SequenceCore(parts, tokenizer, (EOS,)), ())


class HeldStep:
    """A step that begins, and goes on when it is told to."""

    def __init__(self, decoder: ScriptedDecoder, number: int = 2) -> None:
        self._has_begun = threading.Event()
        self._may_go = threading.Event()
        decoder.hooks[number] = self._hold

    def _hold(self) -> None:
        self._has_begun.set()
        assert self._may_go.wait(100), "the event loop was blocked"

    async def begun(self) -> None:
        """Wait, in the event loop, until the model is inside the step."""
        while not self._has_begun.is_set():
            await asyncio.sleep(0)

    async def let_go(self) -> None:
        """Let the event loop beat, then the step go on."""
        for _ in range(BEATS):
            await asyncio.sleep(0)
        assert not self._may_go.is_set()
        self._may_go.set()


async def read(stream: AsyncTextStream) -> list[str]:
    return [piece async for piece in stream]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_pieces_come_in_order_and_the_result_follows(model: LanguageModel) -> None:
    async def run() -> tuple[list[str], str]:
        stream = model.astream("a", max_new_tokens=3)
        return await read(stream), stream.result.text

    assert asyncio.run(run()) == (["b", "c", "d"], "bcd")


def test_agenerate_returns_the_result(model: LanguageModel) -> None:
    result = asyncio.run(model.agenerate("a", max_new_tokens=3))
    assert (result.text, result.finish_reason) == ("bcd", Reason.MAX_TOKENS)


def test_a_stream_half_read_is_read_to_its_end(model: LanguageModel) -> None:
    async def run() -> tuple[str, str]:
        stream = model.astream("a", max_new_tokens=3)
        return await anext(stream), (await stream.read()).text

    assert asyncio.run(run()) == ("b", "bcd")


def test_the_model_works_in_one_other_thread(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    asyncio.run(read(model.astream("a", max_new_tokens=5)))
    assert len(decoder.readers) == 1
    assert threading.current_thread() not in decoder.readers


def test_the_thread_goes_with_the_stream(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    asyncio.run(read(model.astream("a", max_new_tokens=5)))
    (thread,) = decoder.readers
    thread.join(100)
    assert not thread.is_alive()


def test_the_thread_sees_the_context_of_the_reader(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    request = contextvars.ContextVar[str]("request")
    seen: list[str] = []
    decoder.hooks[1] = lambda: seen.append(request.get())

    async def run() -> None:
        request.set("seven")
        await model.agenerate("a", max_new_tokens=1)

    asyncio.run(run())
    assert seen == ["seven"]


def test_one_task_at_a_time_reads(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> str:
        stream = model.astream("a", max_new_tokens=3)
        reading = asyncio.create_task(stream.read())
        await step.begun()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        await step.let_go()
        return (await reading).text

    assert asyncio.run(run()) == "bcd"


def test_a_failing_model_raises_from_the_iteration(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.before[2] = WinMLError(0x80004005)
    with failing(0x80004005):
        asyncio.run(read(model.astream("a")))
    assert model.generate("a", max_new_tokens=1).text == "b"


@pytest.mark.parametrize("wrong", [{"max_new_tokens": 0}, {"timeout": -1}])
def test_wrong_options_are_refused_at_once(model: LanguageModel, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        model.astream("a", **wrong)


def test_a_prompt_that_does_not_fit_is_refused_and_gives_the_turn_back(model: LanguageModel) -> None:
    with failing(0x8007007A):
        asyncio.run(model.agenerate("a" * 65))
    assert model.generate("a", max_new_tokens=1, timeout=100).text == "b"


def test_there_is_no_result_before_the_first_read(model: LanguageModel) -> None:
    with failing(0x8007139F):
        model.astream("a").result  # noqa: B018


# --- the event loop goes on -------------------------------------------------------------------------------------------


def test_s_lif_09_the_event_loop_beats_during_a_step(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> str:
        task = asyncio.create_task(model.agenerate("a", max_new_tokens=3))
        await step.begun()
        await step.let_go()
        return (await task).text

    assert asyncio.run(run()) == "bcd"


async def by_cancelling(model: LanguageModel, stream: AsyncTextStream, task: asyncio.Task[Any]) -> None:
    task.cancel()


async def by_closing_the_stream(model: LanguageModel, stream: AsyncTextStream, task: asyncio.Task[Any]) -> None:
    task.get_loop().create_task(stream.aclose(), name="aclose")


async def by_the_source(model: LanguageModel, stream: AsyncTextStream, task: asyncio.Task[Any]) -> None:
    stream.cancel()


ENDINGS = [by_cancelling, by_closing_the_stream, by_the_source]
Ending = Callable[[LanguageModel, AsyncTextStream, asyncio.Task[Any]], Awaitable[None]]


@pytest.mark.parametrize("end", ENDINGS)
def test_s_lif_09_ending_waits_for_no_step(model: LanguageModel, decoder: ScriptedDecoder, end: Ending) -> None:
    step = HeldStep(decoder)

    async def run() -> tuple[int, str]:
        stream = model.astream("a", max_new_tokens=50)
        task = asyncio.create_task(read(stream))
        await step.begun()
        await end(model, stream, task)
        next_call = asyncio.create_task(model.agenerate("b", max_new_tokens=2, timeout=100))
        await step.let_go()
        await asyncio.wait([task])
        text = (await next_call).text
        assert stream.result.finish_reason is Reason.CANCELED
        return len(stream.result.token_ids), text

    count, text = asyncio.run(run())
    assert count <= 2  # one step more than the first token
    assert text == "cd"


def test_s_lif_09_a_timeout_waits_for_no_step(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.agenerate("a", max_new_tokens=50)
        await step.let_go()
        return (await model.agenerate("b", max_new_tokens=2, timeout=100)).text

    assert asyncio.run(run()) == "cd"


def test_s_lif_09_a_coroutine_that_is_thrown_away_during_a_step(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder, 1)

    async def run() -> str:
        coroutine = model.agenerate("a", max_new_tokens=50)
        coroutine.send(None)  # up to where it waits for the thread
        await step.begun()
        coroutine.close()
        await step.let_go()
        return (await model.agenerate("b", max_new_tokens=2, timeout=100)).text

    assert asyncio.run(run()) == "cd"


def test_closing_early_ends_the_generation(model: LanguageModel) -> None:
    async def run() -> tuple[list[str], Reason]:
        async with model.astream("a") as stream:
            async for piece in stream:
                assert piece == "b"
                break
        return await read(stream), stream.result.finish_reason

    assert asyncio.run(run()) == ([], Reason.CANCELED)
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_leaving_the_loop_gives_the_model_back(model: LanguageModel) -> None:
    async def run() -> str:
        async for _ in model.astream("a"):
            break
        return (await model.agenerate("b", max_new_tokens=2, timeout=100)).text

    assert asyncio.run(run()) == "cd"


def test_closing_a_stream_twice_or_before_its_begin(model: LanguageModel) -> None:
    async def run() -> list[str]:
        stream = model.astream("a")
        await stream.aclose()
        await stream.aclose()
        return await read(stream)

    assert asyncio.run(run()) == []


def test_cancelling_before_the_begin_ends_it_quietly(model: LanguageModel) -> None:
    async def run() -> tuple[list[str], Reason]:
        stream = model.astream("a")
        stream.cancel()
        return await read(stream), stream.result.finish_reason

    assert asyncio.run(run()) == ([], Reason.CANCELED)


def test_a_cancelled_task_does_not_cancel_the_source_of_others(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    source = CancellationSource()
    step = HeldStep(decoder)

    async def run() -> None:
        task = asyncio.create_task(model.agenerate("a", max_new_tokens=50, cancellation=source))
        await step.begun()
        task.cancel()
        await step.let_go()

    asyncio.run(run())
    assert not source.is_canceled
    assert model.generate("a", max_new_tokens=2, cancellation=source, timeout=100).text == "bc"


# --- turns ------------------------------------------------------------------------------------------------------------


def test_calls_get_their_turns_in_the_order_they_came(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    async def run() -> None:
        await asyncio.gather(*(model.agenerate([number], max_new_tokens=1) for number in range(12)))

    asyncio.run(run())
    assert decoder.runs == [[number] for number in range(12)]


def test_who_waits_takes_no_thread(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    before = set(threading.enumerate())

    async def run() -> int:
        calls = [asyncio.create_task(model.agenerate("a", max_new_tokens=2)) for _ in range(50)]
        await step.begun()
        new = set(threading.enumerate()) - before
        await step.let_go()
        await asyncio.gather(*calls)
        return len(new)

    assert asyncio.run(run()) == 1


def test_a_waiting_call_may_be_cancelled(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> tuple[str, str]:
        first, second, third = (asyncio.create_task(model.agenerate("a", max_new_tokens=n)) for n in (4, 3, 2))
        await step.begun()
        second.cancel()
        await step.let_go()
        with pytest.raises(asyncio.CancelledError):
            await second
        return (await first).text, (await third).text

    assert asyncio.run(run()) == ("bcda", "bc")


def test_a_waiting_stream_may_be_closed(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> list[str]:
        first = asyncio.create_task(model.agenerate("a", max_new_tokens=4))
        await step.begun()
        stream = model.astream("a")
        second = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        pieces = await second
        await step.let_go()
        await first
        return pieces

    assert asyncio.run(run()) == []


def test_a_call_waits_no_longer_than_it_wants(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> None:
        first = asyncio.create_task(model.agenerate("a", max_new_tokens=4))
        await step.begun()
        with pytest.raises(TimeoutError, match=r"busy for 0\.05 seconds"):
            await model.agenerate("a", timeout=0.05)
        await step.let_go()
        await first

    asyncio.run(run())


def test_a_stream_says_where_it_is(model: LanguageModel) -> None:
    async def run() -> None:
        async with model.astream("a", max_new_tokens=2) as stream:
            assert repr(stream) == "<AsyncTextStream unfinished>"
            await stream.read()
            assert repr(stream) == "<AsyncTextStream MAX_TOKENS>"

    asyncio.run(run())


def test_a_task_does_not_wait_for_itself(model: LanguageModel) -> None:
    async def run() -> None:
        async with model.astream("a") as stream:
            await anext(stream)
            with pytest.raises(WinMLError, match=r"0x8007139F.*this task has an unfinished stream"):
                await model.agenerate("a")

    asyncio.run(run())


def test_a_blocking_call_in_the_event_loop_does_not_wait_for_its_own_stream(model: LanguageModel) -> None:
    async def run() -> None:
        async with model.astream("a") as stream:
            await anext(stream)
            with pytest.raises(WinMLError, match=r"0x8007139F.*use astream"):
                model.generate("a")

    asyncio.run(run())


@pytest.mark.parametrize("turn", range(10))
def test_a_blocking_call_in_the_event_loop_waits_for_a_stream_that_ends(model: LanguageModel, turn: int) -> None:
    async def run() -> str:
        async for _ in model.astream("a"):
            break
        return model.generate("b", max_new_tokens=2, timeout=100).text

    assert asyncio.run(run()) == "cd"


def test_blocking_calls_of_threads_and_tasks_take_turns(model: LanguageModel) -> None:
    async def run() -> list[str]:
        calls = [asyncio.to_thread(model.generate, [n], max_new_tokens=2) for n in (0, 2)]
        calls += [model.agenerate([n], max_new_tokens=2) for n in (1, 3)]
        return [result.text for result in await asyncio.gather(*calls)]

    assert asyncio.run(run()) == ["bc", "da", "cd", "ab"]


def test_two_event_loops_in_two_threads(model: LanguageModel) -> None:
    texts: dict[int, list[str]] = {}

    async def calls(number: int) -> None:
        texts[number] = [(await model.agenerate([number], max_new_tokens=2)).text for _ in range(20)]

    threads = [threading.Thread(target=lambda n=n: asyncio.run(calls(n))) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert texts == {0: ["bc"] * 20, 1: ["cd"] * 20}


# --- the end of an event loop, and of the model -----------------------------------------------------------------------


def test_an_event_loop_that_ended_with_a_stream_in_hand(model: LanguageModel) -> None:
    async def run() -> AsyncTextStream:
        stream = model.astream("a")
        await anext(stream)
        return stream

    stream = asyncio.run(run())
    assert model.generate("b", max_new_tokens=2, timeout=100).text == "cd"
    assert stream.result.finish_reason is Reason.CANCELED


def test_an_event_loop_that_was_closed_during_a_step(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)
    loop = asyncio.new_event_loop()
    task = loop.create_task(model.agenerate("a", max_new_tokens=50))
    loop.run_until_complete(step.begun())
    loop.close()
    step._may_go.set()
    assert model.generate("b", max_new_tokens=2, timeout=100).text == "cd"
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_until_complete(task)


def test_asyncio_run_that_ends_with_a_pending_stream(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> None:
        task = asyncio.create_task(read(model.astream("a", max_new_tokens=50)))
        await step.begun()
        step._may_go.set()
        assert not task.done()

    asyncio.run(run())
    assert model.generate("b", max_new_tokens=2, timeout=100).text == "cd"


def test_closing_the_model_inside_the_event_loop_waits_for_no_step(
    model: LanguageModel, decoder: ScriptedDecoder
) -> None:
    step = HeldStep(decoder)

    async def run() -> tuple[bool, str]:
        stream = model.astream("a", max_new_tokens=50)
        task = asyncio.create_task(read(stream))
        await step.begun()
        model.close()
        was_closed = decoder.is_closed
        await step.let_go()
        await model.aclose()
        await task
        return was_closed, stream.result.finish_reason.name

    assert asyncio.run(run()) == (False, "CANCELED")
    assert decoder.is_closed


def test_aclose_of_the_model_waits_without_blocking(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> None:
        task = asyncio.create_task(model.agenerate("a", max_new_tokens=50))
        await step.begun()
        closing = asyncio.create_task(model.aclose())
        await step.let_go()
        await closing
        assert decoder.is_closed
        assert (await task).finish_reason is Reason.CANCELED

    asyncio.run(run())


def test_calls_that_wait_when_the_model_is_closed_are_refused(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    step = HeldStep(decoder)

    async def run() -> list[Any]:
        calls = [asyncio.create_task(model.agenerate("a", max_new_tokens=50)) for _ in range(4)]
        await step.begun()
        model.close()
        await step.let_go()
        return await asyncio.gather(*calls[1:], return_exceptions=True)

    assert [str(error) for error in asyncio.run(run())] == ["LanguageModel is closed"] * 3


def test_async_with_closes_the_model(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    async def run() -> str:
        async with model:
            return (await model.agenerate("a", max_new_tokens=2)).text

    assert asyncio.run(run()) == "bc"
    assert decoder.is_closed
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(run())


def test_a_stream_of_a_closed_model_is_refused_at_once(model: LanguageModel) -> None:
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.astream("a")


def test_the_thread_goes_when_an_interrupt_strikes_at_its_start(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            started.append(self)
            raise KeyboardInterrupt

    started: list[threading.Thread] = []
    monkeypatch.setattr("genai.async_stream.threading.Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(model.agenerate([1]))
    started[0].join(100)
    assert not started[0].is_alive()
