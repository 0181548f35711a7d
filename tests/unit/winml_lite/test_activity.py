"""Who may be inside native code. Exit and forks themselves are tested in processes, see `tests/lifetime`."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from winml_lite.interrupts import strike
from winml_lite.native import activity
from winml_lite.native.activity import Activity, Engine, apart


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine("test models", keeps_threads=True)
    yield made
    activity._engines.remove(made)


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit has begun in this thread."""
    exiting = SimpleNamespace(has_begun=True, thread=threading.get_ident(), last_acts=[])
    monkeypatch.setattr(activity, "_exit", exiting)


def test_an_activity_is_running_inside_the_block(engine: Engine) -> None:
    state = Activity(engine)
    with state:
        assert state.running == threading.get_ident()
    assert state.running == 0


def test_what_this_thread_runs_is_not_elsewhere(engine: Engine) -> None:
    state = Activity(engine)
    with state:
        assert not state.is_elsewhere
    state.running = threading.get_ident() + 1
    assert state.is_elsewhere


def test_an_activity_that_a_fork_has_inherited_is_refused_with_the_mend(engine: Engine) -> None:
    state = Activity(engine)
    state.after_fork()
    with pytest.raises(RuntimeError, match="test models were loaded before this process was forked"), state:
        pass
    assert state.running == 0


def test_an_engine_whose_threads_are_missing_is_refused(engine: Engine) -> None:
    engine.is_used = True
    engine.after_fork(was_busy=False)
    with pytest.raises(RuntimeError, match="test models were used before this process was forked"):
        engine.check()


def test_an_engine_that_another_thread_was_in_is_refused(engine: Engine) -> None:
    engine.after_fork(was_busy=True)
    with pytest.raises(RuntimeError, match="in use by another thread"):
        engine.check()


def test_an_unused_engine_can_be_used_in_a_child(engine: Engine) -> None:
    engine.after_fork(was_busy=False)
    engine.check()


def test_at_exit_everything_is_refused_in_the_exiting_thread(engine: Engine, leaving: None) -> None:
    for attempt in (engine.check, Activity(engine).__enter__, activity.refuse_at_exit):
        with pytest.raises(RuntimeError, match="the interpreter is exiting"):
            attempt()


def test_nothing_is_freed_before_the_end_while_it_may_be_used(leaving: None) -> None:
    freed: list[int] = []
    activity.free_before_exit(freed.append, 7)
    assert freed == []


def test_the_last_thread_frees_at_exit(leaving: None, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None})
    activity.free_last(freed.append, 7)
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None, 2: None})
    activity.free_last(freed.append, 8)
    assert freed == [7]


def test_work_apart_returns_its_result_from_another_thread() -> None:
    assert apart(threading.get_ident, int) != threading.get_ident()


def test_work_apart_raises_its_error() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0, int)


def test_work_of_another_thread_stays_there() -> None:
    idents: list[int] = []

    def work() -> None:
        idents.extend((threading.get_ident(), apart(threading.get_ident, int)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert idents[0] == idents[1]


def test_work_apart_at_exit_stays_in_the_exiting_thread(leaving: None) -> None:
    assert apart(threading.get_ident, int) == threading.get_ident()


def test_work_apart_without_a_thread_to_be_had_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Callable[[], object]) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(activity, "start_thread", refuse)
    assert apart(threading.get_ident, int) == threading.get_ident()


def test_an_interrupt_stops_the_work_and_waits_for_its_end() -> None:
    stopped, ended = threading.Event(), threading.Event()

    def work() -> None:
        _thread.interrupt_main()
        stopped.wait(100)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        apart(work, stopped.set)
    assert ended.is_set()


def test_a_second_interrupt_does_not_leave_work_that_must_end() -> None:
    stopped, ended = threading.Event(), threading.Event()

    def work() -> None:
        strike()
        stopped.wait(100)
        strike()
        time.sleep(0.3)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        apart(work, stopped.set, may_leave=False)
    assert ended.is_set()
