"""Programs for `test_disturbances.py`, each run in its own process: `disturbance_programs.py PROGRAM MODEL`.

Two sequences over one model file are disturbed at random moments, and must go on as if nothing had happened. MODEL has
random weights: what it says depends on every token before, so a lost, doubled or stale one would show.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable

from lifetime.interrupts import until_interrupted

import genai
from genai.tasks import TextGenerationSession

PROMPTS = ([5, 17, 33, 4], [5, 17, 8], [40, 41, 42, 43, 44, 45])
LENGTH = 12
LONG = 400
"""Tokens of a generation that is to be disturbed."""
CANCELLATIONS = 50
INTERRUPTS = 20
Ids = tuple[int, ...]


class ShortRoad:
    """A model of the short road."""

    def __init__(self, path: str) -> None:
        self.model = genai.load(path, context_length=512, threads=1)

    def say(self, prompt: list[int], length: int = LENGTH, source: genai.CancellationSource | None = None) -> Ids:
        return self.model.generate(prompt, max_new_tokens=length, ignore_eos=True, cancellation=source).token_ids

    def recover(self) -> None:
        pass

    def close(self) -> None:
        self.model.close()


class LongRoad:
    """A session of the long road, made and used by one thread."""

    def __init__(self, path: str) -> None:
        self._model = genai.load(path, context_length=512, threads=1)
        self._core = self._model._open()
        self._session = TextGenerationSession(self._core, None)  # type: ignore[arg-type]
        self._stream: genai.tasks.TextGenerationStream | None = None

    def say(self, prompt: list[int], length: int = LENGTH, source: genai.CancellationSource | None = None) -> Ids:
        options = genai.TextGenerationOptions(length, ignore_eos=True)
        self._stream = self._session.generate_tokens(prompt, options, cancellation=source)
        ids = tuple(update.token_id for update in self._stream if update.token_id is not None)
        assert self._stream.result.error_code == 0, self._stream.result.error_message
        self._stream.close()
        return ids

    def recover(self) -> None:
        """Do what a program does behind an interrupt: end the stream that it had open."""
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        self.recover()
        self._model.close()


Road = ShortRoad | LongRoad


def spoken(road: Road) -> list[Ids]:
    """What a road says to all prompts."""
    return [road.say(prompt) for prompt in PROMPTS]


def cancel_often(road: Road, dice: random.Random, expected: list[Ids]) -> None:
    """Cancel until half of the cancellations have cut a generation short."""
    cut = 0
    while cut < CANCELLATIONS // 2:
        cut += cancel_at_random(road, dice, expected)


def cancel_at_random(road: Road, dice: random.Random, expected: list[Ids]) -> bool:
    """Cancel a long generation from another thread; return whether it was cut short."""
    number = dice.randrange(len(PROMPTS))
    source = genai.CancellationSource()
    timer = threading.Timer(dice.random() * 0.03, source.cancel)
    timer.start()
    ids = road.say(PROMPTS[number], LONG, source)
    timer.join()
    assert ids[:LENGTH] == expected[number][: len(ids)], (ids, expected[number])
    check(road, dice, expected)
    return len(ids) < LONG


def check(road: Road, dice: random.Random, expected: list[Ids]) -> None:
    """The road says what it said undisturbed."""
    number = dice.randrange(len(PROMPTS))
    assert road.say(PROMPTS[number]) == expected[number], number


def two_short_roads(path: str) -> None:
    disturb(lambda: ShortRoad(path))


def two_long_roads(path: str) -> None:
    disturb(lambda: LongRoad(path))


def disturb(make: Callable[[], Road]) -> None:
    """Cancel both roads at random, and interrupt the one of the main thread."""
    undisturbed = make()
    expected = spoken(undisturbed)
    undisturbed.close()
    assert len(set(expected)) == len(PROMPTS)
    errors: list[BaseException] = []
    is_over = threading.Event()

    def other() -> None:
        try:
            road, dice = make(), random.Random(3)
            cancel_often(road, dice, expected)
            while not is_over.is_set():
                check(road, dice, expected)
            assert spoken(road) == expected
            road.close()
        except BaseException as error:
            errors.append(error)

    road, dice = make(), random.Random(4)
    thread = threading.Thread(target=other)
    thread.start()
    cancel_often(road, dice, expected)
    for _ in range(INTERRUPTS):
        interrupt_at_random(road, dice, expected)
    is_over.set()
    thread.join(400)
    assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    assert spoken(road) == expected
    road.close()


def interrupt_at_random(road: Road, dice: random.Random, expected: list[Ids]) -> None:
    was_caught = False
    while not was_caught:  # a finalizer of somebody else may swallow it
        try:
            for _ in until_interrupted(dice.random() * 0.03):
                road.say(PROMPTS[dice.randrange(len(PROMPTS))], LONG)
        except KeyboardInterrupt:
            was_caught = True
        road.recover()
        check(road, dice, expected)


def two_models_of_one_event_loop(path: str) -> None:
    """Tasks that stream from two models at once are cancelled at random; the loop goes on all the time."""
    with genai.load(path, context_length=512, threads=1) as model:
        expected = [model.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True).token_ids for prompt in PROMPTS]

    async def disturbed(model: genai.LanguageModel, dice: random.Random) -> None:
        for _ in range(CANCELLATIONS // 2):
            number = dice.randrange(len(PROMPTS))
            stream = model.astream(PROMPTS[number], max_new_tokens=LONG, ignore_eos=True)
            reading = asyncio.create_task(stream.read() if dice.random() < 0.5 else pieces(stream))
            await asyncio.wait([reading], timeout=dice.random() * 0.03)
            reading.cancel()
            await asyncio.wait([reading])
            number = dice.randrange(len(PROMPTS))
            result = await model.agenerate(PROMPTS[number], max_new_tokens=LENGTH, ignore_eos=True)
            assert result.token_ids == expected[number]

    async def pieces(stream: genai.AsyncTextStream) -> list[str]:
        return [piece async for piece in stream]

    async def run() -> None:
        async with genai.load(path, context_length=512, threads=1) as one:
            async with genai.load(path, context_length=512, threads=1) as two:
                await asyncio.gather(disturbed(one, random.Random(5)), disturbed(two, random.Random(6)))

    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
