"""Programs for `test_tool_turns.py`, each run in its own process: `tool_programs.py PROGRAM MODEL`.

MODEL is the tiny model that calls two tools, in one of its forms.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable

from lifetime.interrupts import await_the_second_strike, say_nothing_of_lost_interrupts

import genai
from models.tool_models import ANSWER

ROLES = ["user", "assistant", "tool", "tool", "assistant"]


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def population(city: str) -> int:
    """Look up how many people live in a city."""
    return 645_693


def interrupts(path: str) -> None:
    """Forty interrupts, anywhere in a turn: the history holds whole turns, or texts that were cut short, and chat and
    model go on.
    """
    say_nothing_of_lost_interrupts()
    chance = random.Random(5)
    with genai.load(path, threads=1) as model:
        chat = model.chat(tools=[multiply, population])
        started = time.perf_counter()
        chat.send("What?")
        seconds = time.perf_counter() - started
        chat.reset()
        for _ in range(40):
            before = chat.messages[-10:]
            chat.messages = before
            disturbed(lambda: chat.send("What?"), chance.random() * seconds)
            added = [message.role for message in chat.messages[len(before) :]]
            assert chat.messages[: len(before)] == before
            assert added in ([], ROLES, ROLES[:2]), added
            saved = chat.messages
            assert chat.send("What?").text == ANSWER
            chat.messages = saved


def disturbed(call: Callable[[], object], seconds: float) -> None:
    """Make a call with an interrupt after some seconds."""
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        await_the_second_strike()
    except KeyboardInterrupt:
        pass


def threads(path: str) -> None:
    """Four threads send to one chat: each turn is whole, and none is lost."""
    with genai.load(path, threads=1) as model:
        chat = model.chat(tools=[multiply, population])
        workers = [threading.Thread(target=lambda: [chat.send("What?") for _ in range(3)]) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [message.role for message in chat.messages] == ROLES[:5] + ["user", "assistant"] * 11


def dropped(path: str) -> None:
    """A stream is closed while another thread runs its tool: chat and model are free."""
    entered, leave = threading.Event(), threading.Event()

    def slow(a: int, b: int) -> int:
        entered.set()
        leave.wait()
        return a * b

    slow.__name__ = "multiply"
    with genai.load(path, threads=1) as model:
        chat = model.chat(tools=[slow, population])
        stream = chat.stream("What?")
        reader = threading.Thread(target=lambda: list(stream))
        reader.start()
        entered.wait()
        stream.close()
        assert chat.messages == ()
        leave.set()
        reader.join()
        assert chat.send("What?", tools=[multiply, population]).text == ANSWER


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    {"interrupts": interrupts, "threads": threads, "dropped": dropped}[sys.argv[1]](sys.argv[2])
