"""Programs for `test_async_lifetime.py`, each run in its own process: `async_programs.py PROGRAM MODEL`.

MODEL has random weights and talks until it is cut.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
from typing import Any

from lifetime.interrupts import say_nothing_of_lost_interrupts

import genai

LONG: dict[str, Any] = {"max_new_tokens": 400, "ignore_eos": True}
SHORT: dict[str, Any] = {"max_new_tokens": 8, "ignore_eos": True}
PROMPT = [5, 17, 33, 4]
kept: list[object] = []


def load(path: str) -> genai.LanguageModel:
    return genai.load(path, context_length=512, threads=1)


def leave_with_a_stream_in_hand(path: str) -> None:
    """The interpreter ends with a stream half read, whose event loop is gone."""

    async def run() -> None:
        stream = load(path).astream(PROMPT, **LONG)
        await anext(stream)
        kept.append(stream)

    asyncio.run(run())


def leave_during_a_generation(path: str) -> None:
    """The interpreter ends while the thread generates, and the loop was thrown away with its tasks."""
    loop = asyncio.new_event_loop()
    model = load(path)
    task = loop.create_task(model.agenerate(PROMPT, **LONG))
    loop.run_until_complete(asyncio.sleep(0.02))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    kept.extend((model, task, loop))


def leave_inside_the_event_loop(path: str) -> None:
    """A task ends the process while another one streams."""

    async def stream(model: genai.LanguageModel) -> None:
        async for _ in model.astream(PROMPT, **LONG):
            pass

    async def run() -> None:
        model = load(path)
        kept.append(asyncio.create_task(stream(model)))
        await asyncio.sleep(0.02)
        sys.exit(0)

    asyncio.run(run())


def interrupt_of_asyncio_run(path: str) -> None:
    """Ctrl-C ends `asyncio.run`; the model is usable, for other loops and without one."""
    say_nothing_of_lost_interrupts()
    with load(path) as model:
        expected = model.generate(PROMPT, **SHORT).token_ids
        for moment in (0.001, 0.01, 0.03):
            try:
                asyncio.run(talk_for_ever(model, moment))
            except KeyboardInterrupt:
                pass
            assert asyncio.run(model.agenerate(PROMPT, **SHORT)).token_ids == expected
            assert model.generate(PROMPT, timeout=100, **SHORT).token_ids == expected


async def talk_for_ever(model: genai.LanguageModel, moment: float) -> None:
    threading.Thread(target=interrupt_after, args=(moment,), daemon=True).start()
    while True:
        async for _ in model.astream(PROMPT, **LONG):
            pass


def interrupt_after(seconds: float) -> None:
    time.sleep(seconds)
    signal.raise_signal(signal.SIGINT)


def streams_in_cycles(path: str) -> None:
    """Streams that only the garbage collector finds, in the event loop, give their turn back."""

    async def run() -> None:
        async with load(path) as model:
            for _ in range(20):
                ring: list[object] = [stream := model.astream(PROMPT, **LONG)]
                ring.append(ring)
                await anext(stream)
                del stream, ring
                gc.collect()
            assert len((await model.agenerate(PROMPT, timeout=100, **SHORT)).token_ids) == 8

    asyncio.run(run())


def no_threads_stay(path: str) -> None:
    """A hundred streams, some of them cut, leave as many threads as there were."""

    async def run() -> None:
        async with load(path) as model:
            for number in range(100):
                async with model.astream(PROMPT, **SHORT) as stream:
                    async for _ in stream:
                        if number % 2:
                            break

    before = threading.active_count()
    asyncio.run(run())
    latest = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < latest:
        time.sleep(0.01)
    assert threading.active_count() == before, threading.enumerate()


def close_in_every_moment(path: str) -> None:
    """A model is closed inside the event loop while streams are at every stage; its memory is free at the end."""

    async def run() -> None:
        for moment in range(12):
            model = load(path)
            streams = [model.astream(PROMPT, **LONG) for _ in range(3)]
            tasks = [asyncio.create_task(stream.read()) for stream in streams]
            for _ in range(moment * moment):
                await asyncio.sleep(0)
            model.close()
            await model.aclose()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert str(outcome) == "LanguageModel is closed", outcome
                else:
                    assert outcome.finish_reason.name in ("CANCELED", "MAX_TOKENS")

    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
