"""The core of a fence: waiting, waking and failing, without a pipeline."""

from __future__ import annotations

import asyncio
from threading import Thread, Timer

import pytest

from fakes.rig import failing
from winml_lite import Fence
from winml_lite.errors import WinMLError
from winml_lite.fence import FenceCore


def test_a_pending_core_does_not_wait_longer_than_it_is_asked() -> None:
    core = FenceCore()
    assert not core.wait(0)
    assert not core.wait(0.01)
    assert not core.is_complete


def test_the_end_wakes_everybody() -> None:
    core = FenceCore()
    woken: list[bool] = []
    threads = [Thread(target=lambda: woken.append(core.wait(None))) for _ in range(4)]
    for thread in threads:
        thread.start()
    core.complete()
    for thread in threads:
        thread.join(100)
    assert woken == [True] * 4


def test_a_wait_longer_than_one_look_around() -> None:
    core = FenceCore()
    Timer(0.45, core.complete).start()
    assert core.wait(100)


def test_waits_leave_nothing_behind() -> None:
    core = FenceCore()
    for _ in range(3):
        core.wait(0.001)
    assert core._wakes == []


def test_a_failure_is_a_new_exception_with_the_first_cause() -> None:
    core, cause = FenceCore(), ValueError("why")
    failure = WinMLError(0x80004005, "node 7", "out of luck")
    failure.__cause__ = cause
    core.complete(failure)
    with failing(0x80004005) as first:
        core.check("IWinMLFence.Wait")
    with failing(0x80004005) as second:
        core.check("IWinMLFence.Wait")
    assert first.value is not second.value
    assert first.value is not failure
    assert (second.value.__cause__, second.value.native_message) == (cause, "node 7: out of luck")


def test_a_core_that_ended_well_has_nothing_to_raise() -> None:
    core = FenceCore()
    core.complete()
    core.check("IWinMLFence.Wait")


def test_who_awaited_in_a_loop_that_is_gone_disturbs_nobody() -> None:
    core, loop = FenceCore(), asyncio.new_event_loop()

    async def wait() -> None:
        await Fence(core)

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    wakes = list(core._wakes)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert core._wakes == []
    core.add_wake(wakes[0])  # as if the loop had been closed under the waiting task
    core.complete()
    assert core.is_complete
