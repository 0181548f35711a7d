"""Programs for `test_chat_media_lifetime.py`, each run in its own process: `chat_media_programs.py PROGRAM FOLDER`.

Chats with pictures and sound that are interrupted, closed and dropped at any moment.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
from lifetime.held_memory import assert_keeps_nothing
from lifetime.interrupts import until_interrupted

import genai
from models import recipes
from models.media_models import ANSWERS

RED, BLUE = np.full((24, 40, 3), (255, 0, 0), np.uint8), np.full((40, 24, 3), (0, 0, 255), np.uint8)
alive: list[object] = []
"""What is still there when the interpreter ends."""


def load(folder: str, kind: str = "both") -> genai.LanguageModel:
    projector = recipes.media_projector_gguf(folder, kind)
    return genai.load(recipes.media_gguf(folder), projector=projector, threads=1, context_length=2048)


def noise(seed: int) -> tuple[np.ndarray, int]:
    """A sound that was not heard before."""
    return np.random.default_rng(seed).normal(0, 0.1, 16000).astype(np.float32), 16000


def interrupted_turns(folder: str) -> None:
    """Ctrl-C at random moments of a turn with new media: the next turn answers as ever."""
    chance = random.Random(3)
    numbers = itertools.count()
    interrupted = 0
    with load(folder) as model:
        chat = model.chat()
        picture = RED
        assert chat.send("?", images=[picture], audio=[noise(0)]).text  # what is imported late is imported now
        while interrupted < 40:
            try:
                for _ in until_interrupted(chance.uniform(0.003, 0.05)):
                    number = next(numbers)
                    picture = np.full((24, 40, 3), (255, *divmod(number, 40)), np.uint8)
                    chat.reset()
                    chat.send("?", images=[picture], audio=[noise(number)] if number % 4 == 0 else [])
            except KeyboardInterrupt:
                interrupted += 1
            chat.reset()
            assert chat.send("?", images=[BLUE]).text == ANSWERS["blue"]
            assert chat.send("?", images=[picture]).text == ANSWERS["red"]


def closed_by_another_thread(folder: str) -> None:
    """The model is closed while a turn encodes and answers: the turn ends, and later ones are refused."""
    chance = random.Random(5)
    for number in range(12):
        model = load(folder)
        chat = model.chat()
        closer = threading.Timer(chance.random() * 0.2, model.close)
        closer.start()
        try:
            while True:
                chat.send("?", audio=[noise(number)], images=[RED])
                chat.reset()
        except RuntimeError as error:
            assert str(error) == "LanguageModel is closed", error
        except genai.WinMLError as error:
            raise AssertionError(str(error)) from error
        closer.join()


def cancelled_tasks(folder: str) -> None:
    """Tasks are cancelled at random moments of their turns; the model goes on answering."""
    chance = random.Random(7)

    async def main() -> None:
        async with load(folder) as model:
            for number in range(20):
                chat = model.chat()
                task = asyncio.create_task(chat.asend("?", images=[RED], audio=[noise(number)]))
                await asyncio.sleep(chance.random() * 0.1)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                assert (await model.chat().asend("?", images=[BLUE])).text == ANSWERS["blue"]

    asyncio.run(main())


def dropped_in_any_order(folder: str) -> None:
    """Models, chats, streams and media are dropped without being closed."""
    chance = random.Random(9)
    gc.disable()
    for _ in range(10):
        model = load(folder, "gemma3")
        chat = model.chat()
        chat.send("?", images=[RED])
        stream = chat.stream("?", images=[BLUE])
        next(stream)
        things = [model, chat, stream, chat.messages[0], model._media_rows()]
        del model, chat, stream
        chance.shuffle(things)
        while things:
            things.pop()
    gc.enable()
    gc.collect()


def exit_in_the_midst_of_a_turn(folder: str) -> None:
    """The interpreter ends while a daemon thread encodes."""
    model = load(folder)
    alive.append(model)

    def talk() -> None:
        number = 0
        while True:
            number += 1
            model.chat().send("?", audio=[noise(number)])

    threading.Thread(target=talk, daemon=True).start()
    time.sleep(0.5)


def nothing_grows(folder: str) -> None:
    """Turns with ever new pictures, and models loaded over and over."""
    numbers = itertools.count()

    def cycle() -> None:
        with load(folder, "gemma3") as model:
            for _ in range(8):
                picture = np.full((64, 64, 3), (255, *divmod(next(numbers), 8)), np.uint8)
                assert model.chat().send("?", images=[picture], max_new_tokens=1).text == "A red"

    assert_keeps_nothing(cycle, warm_up=10, times=30)


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    globals()[sys.argv[1]](sys.argv[2])
