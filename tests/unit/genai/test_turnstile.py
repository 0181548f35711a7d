"""Turns at a model: first come, first served, whoever gives them back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fakes.rig import failing
from genai.turnstile import Turn, Turnstile


@pytest.fixture
def turnstile() -> Turnstile:
    return Turnstile()


class Caller:
    """A thread that waits for a turn, notes its name when it has it, and gives it back."""

    def __init__(self, turnstile: Turnstile, name: str, order: list[str]) -> None:
        self._thread = threading.Thread(target=self._call, args=(turnstile, name, order))
        self._joined = threading.Event()
        self._thread.start()
        assert self._joined.wait(100)

    def _call(self, turnstile: Turnstile, name: str, order: list[str]) -> None:
        turn = Turn()
        turnstile.join(turn)
        self._joined.set()
        while not turnstile.has_come(turn):
            turn.wait(10)
        order.append(name)
        turnstile.leave(turn)

    def end(self) -> None:
        self._thread.join(100)
        assert not self._thread.is_alive()


@pytest.fixture
def elsewhere(turnstile: Turnstile) -> Iterator[Turn]:
    """A turn that another thread has."""
    made: list[Turn] = []
    thread = threading.Thread(target=lambda: made.append(Turn()))
    thread.start()
    thread.join()
    turnstile.enter(made[0], None)
    yield made[0]
    turnstile.leave(made[0])


def test_callers_come_in_their_order(turnstile: Turnstile, elsewhere: Turn) -> None:
    order: list[str] = []
    callers = [Caller(turnstile, name, order) for name in "abcdefgh"]
    assert order == []
    turnstile.leave(elsewhere)
    for caller in callers:
        caller.end()
    assert order == list("abcdefgh")


def test_who_gives_up_is_passed_over(turnstile: Turnstile, elsewhere: Turn) -> None:
    order: list[str] = []
    first = Caller(turnstile, "a", order)
    mine = Turn()
    with pytest.raises(TimeoutError, match=r"busy for 0\.01 seconds"):
        turnstile.enter(mine, 0.01)
    turnstile.leave(mine)
    second = Caller(turnstile, "b", order)
    turnstile.leave(elsewhere)
    first.end()
    second.end()
    assert order == ["a", "b"]


def test_no_time_to_wait_is_enough_for_a_free_turn(turnstile: Turnstile) -> None:
    turn = Turn()
    turnstile.enter(turn, 0)
    assert turnstile.current is turn


def test_a_thread_does_not_wait_for_itself(turnstile: Turnstile) -> None:
    first, second = Turn(), Turn()
    turnstile.enter(first, None)
    with failing(0x8007139F):
        turnstile.enter(second, None)
    turnstile.leave(second)
    assert turnstile.current is first


def test_leaving_twice_takes_nothing_from_the_next(turnstile: Turnstile) -> None:
    first, second = Turn(), Turn()
    turnstile.enter(first, None)
    turnstile.leave(first)
    turnstile.enter(second, None)
    turnstile.leave(first)
    assert turnstile.current is second


def test_closing_comes_before_those_who_wait(turnstile: Turnstile, elsewhere: Turn) -> None:
    order: list[str] = []
    elsewhere.stop = lambda: turnstile.leave(elsewhere)
    caller = Caller(turnstile, "a", order)
    turnstile.close(lambda: order.append("closed"))
    caller.end()
    assert order == ["closed", "a"]


def test_a_closing_that_fails_gives_its_turn_back(turnstile: Turnstile) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turnstile.close(fail)
    assert turnstile.current is None
