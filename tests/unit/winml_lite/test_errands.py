"""Callbacks of native calls run on the thread that waits, and Ctrl-C there ends the call well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from winml_lite.interrupts import start_thread
from winml_lite.native.errands import Errands


class Call:
    """A native call with callbacks, as far as errands can tell."""

    def __init__(self, *callbacks: Callable[[], object]) -> None:
        self.errands = Errands()
        self.answers: list[bool] = []
        self.stops = 0
        self._callbacks = callbacks

    def run(self) -> list[BaseException]:
        self.errands.run(self._work, self._stop)
        return self.errands.errors

    def _work(self) -> None:
        for callback in self._callbacks:
            self.answers.append(self.errands.ask(callback))

    def _stop(self) -> None:
        self.stops += 1


def fail() -> None:
    raise LookupError("no")


def test_errands_run_on_the_thread_of_the_caller() -> None:
    threads: list[int] = []
    call = Call(lambda: threads.append(threading.get_ident()), lambda: threads.append(threading.get_ident()))
    assert call.run() == []
    assert threads == [threading.get_ident()] * 2
    assert (call.answers, call.stops) == ([True, True], 0)


def test_after_a_failure_no_errand_runs() -> None:
    ran: list[str] = []
    call = Call(lambda: ran.append("first"), fail, lambda: ran.append("last"))
    assert [type(error) for error in call.run()] == [LookupError]
    assert ran == ["first"]
    assert (call.answers, call.stops) == ([True, False, False], 1)


def test_a_failure_of_the_call_itself() -> None:
    errands = Errands()
    errands.run(fail, int)
    assert [type(error) for error in errands.errors] == [LookupError]


def interrupt_the_caller() -> None:
    """What Ctrl-C does while a native call runs: the main thread notices when it gets to run Python code."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_ctrl_c_during_the_call() -> None:
    errands = Errands()
    stopped = threading.Event()
    answers: list[bool] = []

    def work() -> None:
        interrupt_the_caller()
        stopped.wait(100)
        answers.append(errands.ask(fail))

    errands.run(work, stopped.set)
    assert [type(error) for error in errands.errors] == [KeyboardInterrupt]
    assert answers == [False]


def test_ctrl_c_in_an_errand() -> None:
    call = Call(lambda: signal.raise_signal(signal.SIGINT), fail)
    assert [type(error) for error in call.run()] == [KeyboardInterrupt]
    assert (call.answers, call.stops) == ([False, False], 1)


def test_without_threads_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("winml_lite.native.errands.start_thread", refuse)
    ran: list[str] = []
    call = Call(lambda: ran.append("first"), fail, lambda: ran.append("last"))
    assert [type(error) for error in call.run()] == [LookupError]
    assert (ran, call.answers) == (["first"], [True, False, False])


def test_ctrl_c_while_the_thread_starts_does_not_do_the_work_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    errands, begun, stopped = Errands(), threading.Event(), threading.Event()
    ran: list[str] = []

    def work() -> None:
        ran.append("work")
        begun.set()
        stopped.wait(100)

    def start(work: Callable[[], object]) -> None:
        start_thread(work)
        begun.wait(100)
        raise KeyboardInterrupt

    monkeypatch.setattr("winml_lite.native.errands.start_thread", start)
    errands.run(work, stopped.set)
    assert [type(error) for error in errands.errors] == [KeyboardInterrupt]
    assert ran == ["work"]


def test_calls_of_other_threads() -> None:
    threads: list[int] = []
    call = Call(lambda: threads.append(threading.get_ident()))
    other = threading.Thread(target=call.run)
    other.start()
    other.join()
    assert threads == [other.ident]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_a_second_ctrl_c_leaves_at_once_and_the_call_is_told() -> None:
    errands = Errands()
    answers: list[bool] = []
    is_told = threading.Event()

    def work() -> None:
        answers.append(errands.ask(lambda: signal.raise_signal(signal.SIGINT)))
        answers.append(errands.ask(fail))
        is_told.set()

    with pytest.raises(KeyboardInterrupt):
        errands.run(work, lambda: signal.raise_signal(signal.SIGINT))
    assert is_told.wait(100)
    assert answers == [False, False]
