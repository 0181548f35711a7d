"""Calls that return one result in their turn, blocking and for asyncio.

Where work is held up, it is a heartbeat of the event loop that lets it go on: a loop that is blocked would never get
there.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fakes.rig import failing
from fakes.strikes import Strike
from genai import CancellationSource
from genai.cancellation import CancellationLatch
from genai.turn_calls import TurnCall, check_not_canceled, stopping
from genai.turnstile import Turn, Turnstile

CANCELLED = 0x800704C7
E_NOT_VALID_STATE = 0x8007139F


class Model:
    """A turnstile with a lid."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        self.is_closed = False
        self.is_free = False

    def check(self) -> None:
        if self.is_closed:
            raise RuntimeError("Model is closed")

    def close(self) -> None:
        self.is_closed = True
        self.turnstile.close(self._free)

    def _free(self) -> None:
        self.is_free = True

    def call(self, timeout: float | None = None, cancellation: CancellationSource | None = None) -> TurnCall[Any]:
        return TurnCall(self.turnstile, self.check, timeout, cancellation)


class HeldWork:
    """Work that goes on when it is told to, or canceled."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self, latch: CancellationLatch) -> str:
        self.thread = threading.current_thread()
        with stopping(latch, self.may_go.set, "work"):
            self.has_begun.set()
            assert self.may_go.wait(100), "the event loop was blocked"
        check_not_canceled(latch, "work")
        return "done"

    async def begun(self) -> None:
        """Wait, in the event loop, until the work is going on."""
        while not self.has_begun.is_set():
            await asyncio.sleep(0)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def held() -> HeldWork:
    return HeldWork()


def nothing(latch: CancellationLatch) -> str:
    return "done"


def unwanted(latch: CancellationLatch) -> str:
    raise AssertionError("this work was not to be done")


# --- blocking ---------------------------------------------------------------------------------------------------------


def test_the_result_comes_back_and_the_turn_is_given_back(model: Model) -> None:
    assert model.call().run(nothing) == "done"
    assert model.turnstile.current is None


def test_a_failure_gives_the_turn_back(model: Model) -> None:
    with pytest.raises(AssertionError, match="not to be done"):
        model.call().run(unwanted)
    assert model.turnstile.current is None


def test_a_call_can_be_made_again(model: Model) -> None:
    call = model.call()
    assert (call.run(nothing), call.run(nothing)) == ("done", "done")


def test_a_busy_model_is_waited_for_as_long_as_told(model: Model) -> None:
    other = Turn()
    other.thread = threading.Thread()
    model.turnstile.enter(other, None)
    with pytest.raises(TimeoutError, match=r"busy for 0\.0 seconds"):
        model.call(timeout=0).run(unwanted)


@pytest.mark.parametrize(("timeout", "kind"), [(-1, ValueError), ("1", TypeError)])
def test_timeouts_that_cannot_be(model: Model, timeout: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="timeout"):
        model.call(timeout=timeout)


def test_a_cancellation_must_be_a_source(model: Model) -> None:
    wrong: Any = threading.Event()
    with pytest.raises(TypeError, match="cancellation"):
        model.call(cancellation=wrong)


def test_a_source_that_is_canceled_already_stops_the_work_at_once(model: Model, held: HeldWork) -> None:
    source = CancellationSource()
    source.cancel()
    with failing(CANCELLED):
        model.call(cancellation=source).run(held)
    assert not held.has_begun.is_set()


def test_a_source_stops_work_that_is_going_on(model: Model, held: HeldWork) -> None:
    source = CancellationSource()

    def cancel() -> None:
        held.has_begun.wait(100)
        source.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with failing(CANCELLED):
        model.call(cancellation=source).run(held)
    thread.join(100)
    assert model.call().run(nothing) == "done"


def test_closing_stops_work_of_another_thread_and_waits_for_its_end(model: Model, held: HeldWork) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            model.call().run(held)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert held.has_begun.wait(100)
    model.close()
    assert model.is_free
    thread.join(100)
    assert [getattr(error, "hresult", None) for error in errors] == [CANCELLED]


def test_closing_waits_for_work_that_is_to_be_waited_for(model: Model, held: HeldWork) -> None:
    results: list[str] = []
    calling = threading.Thread(target=lambda: results.append(model.call().run(held, is_waited_for=True)))
    calling.start()
    assert held.has_begun.wait(100)
    closing = threading.Thread(target=model.close)
    closing.start()
    while not model.is_closed:
        pass
    assert not model.is_free
    held.may_go.set()
    calling.join(100)
    closing.join(100)
    assert (results, model.is_free) == (["done"], True)


def test_a_closed_model_does_nothing(model: Model) -> None:
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.call().run(unwanted)
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(model.call().run_async(unwanted))


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_the_event_loop_goes_on_meanwhile(model: Model, held: HeldWork) -> None:
    async def run() -> str:
        task = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        held.may_go.set()
        return str(await task)

    assert asyncio.run(run()) == "done"
    assert held.thread is not threading.current_thread()
    assert model.turnstile.current is None


def test_calls_of_several_tasks_take_turns_in_order(model: Model) -> None:
    order: list[int] = []

    async def call(number: int) -> None:
        await model.call().run_async(lambda latch: order.append(number))

    async def run() -> None:
        await asyncio.gather(*map(call, range(20)))

    asyncio.run(run())
    assert order == list(range(20))


def test_cancelling_the_task_stops_the_work_and_frees_the_model(model: Model, held: HeldWork) -> None:
    async def run() -> str:
        task = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return str(await model.call().run_async(nothing))

    assert asyncio.run(run()) == "done"


def test_a_task_that_is_cancelled_while_it_waits_does_nothing(model: Model, held: HeldWork) -> None:
    async def run() -> str:
        first = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        second = asyncio.create_task(model.call().run_async(unwanted))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        held.may_go.set()
        return str(await first)

    assert asyncio.run(run()) == "done"


def test_a_source_stops_the_work_of_a_task(model: Model, held: HeldWork) -> None:
    source = CancellationSource()

    async def run() -> None:
        task = asyncio.create_task(model.call(cancellation=source).run_async(held))
        await held.begun()
        source.cancel()
        await task

    with failing(CANCELLED):
        asyncio.run(run())
    assert model.turnstile.current is None


def test_a_task_waits_as_long_as_told(model: Model, held: HeldWork) -> None:
    async def run() -> None:
        first = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        with pytest.raises(TimeoutError, match="busy"):
            await model.call(timeout=0.01).run_async(unwanted)
        held.may_go.set()
        await first

    asyncio.run(run())


def test_a_blocking_call_in_the_thread_of_the_loop_is_refused(model: Model, held: HeldWork) -> None:
    async def run() -> None:
        task = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        with failing(E_NOT_VALID_STATE) as caught:
            model.call().run(unwanted)
        assert "asynchronous call" in str(caught.value)
        held.may_go.set()
        await task

    asyncio.run(run())


def test_closing_in_the_event_loop_stops_the_work(model: Model, held: HeldWork) -> None:
    async def run() -> None:
        task = asyncio.create_task(model.call().run_async(held))
        await held.begun()
        model.close()
        with failing(CANCELLED):
            await task
        while not model.is_free:
            await asyncio.sleep(0)

    asyncio.run(run())


def test_a_failure_reaches_the_task(model: Model) -> None:
    with pytest.raises(AssertionError, match="not to be done"):
        asyncio.run(model.call().run_async(unwanted))
    assert model.turnstile.current is None


# --- interrupts -------------------------------------------------------------------------------------------------------


def struck(model: Model, number: int, call: Callable[[TurnCall[Any]], Any]) -> str:
    """Make a call with an interrupt at a place, then another one; return the place, "" where there are fewer."""
    source = CancellationSource()
    strike = Strike(number)
    with suppress(KeyboardInterrupt):
        strike.during(lambda: call(model.call(cancellation=source)))
    assert model.call(timeout=100).run(lambda latch: "next") == "next", strike.where
    return strike.where


def test_an_interrupt_anywhere_in_a_blocking_call_leaves_the_model_free() -> None:
    places = [struck(Model(), number, lambda call: call.run(lambda latch: 1)) for number in range(1, 60)]
    assert places[20]
    assert not places[-1]


def test_an_interrupt_anywhere_in_an_asynchronous_call_leaves_the_model_free() -> None:
    """The event loop stays as it is: neither its end nor a collection of garbage gives the turn back."""
    loops: list[asyncio.AbstractEventLoop] = []

    def call_in_a_loop(call: TurnCall[Any]) -> Any:
        loop = asyncio.new_event_loop()
        loops.append(loop)
        task = loop.create_task(call.run_async(lambda latch: 1))
        try:
            return loop.run_until_complete(task)
        finally:
            if task.cancel():  # the interrupt struck the loop and not the task
                with suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)

    gc.disable()
    try:
        places = [struck(Model(), number, call_in_a_loop) for number in range(1, 120)]
    finally:
        gc.enable()
        for loop in loops:
            loop.close()
    assert places[40]
    assert not places[-1]
