"""The fence that a tensor carries: `Tensor.ready_fence` (tensors §2.6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes.backend import Block
from fakes.engines import Sample, hold, spoil
from fakes.rig import failing, floats
from fakes.staged import DeviceStorage
from fakes.waiting import until
from winml_lite import Fence, Runtime, Tensor, TensorDataType, TensorLockFlags, TensorLockMode, WinMLError


def staged(runtime: Runtime) -> Tensor:
    """Two bytes on memory that the CPU reaches only through a copy."""
    return Tensor(DeviceStorage(b"\x01\x02", TensorDataType.UINT8, (2,)), runtime.underlying_object)


def pending(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> tuple[Fence, Block]:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    return pipeline.execution().submit(), block


def test_a_tensor_carries_no_fence_at_first(runtime: Runtime) -> None:
    assert floats(runtime, 1, 2).ready_fence is None


def test_a_fence_is_kept_returned_and_cleared(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, block = pending(runtime, engine, monkeypatch)
    tensor = floats(runtime, 1, 2)
    tensor.ready_fence = fence
    carried = tensor.ready_fence
    assert carried is not None
    assert carried.underlying_object is fence.underlying_object
    fence.close()  # closes only that object
    assert not carried.is_complete
    block.release.set()
    carried.wait(100_000)
    tensor.ready_fence = None
    assert tensor.ready_fence is None


def test_host_memory_is_read_without_waiting(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    fence, block = pending(runtime, engine, monkeypatch)
    tensor = floats(runtime, 1, 2)
    tensor.ready_fence = fence
    assert tensor.to_numpy().tolist() == [1, 2]
    block.release.set()
    fence.wait(100_000)


def test_staged_memory_is_read_when_the_fence_is_complete(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, block = pending(runtime, engine, monkeypatch)
    tensor = staged(runtime)
    tensor.ready_fence = fence
    with ThreadPoolExecutor(1) as elsewhere:
        reading = elsewhere.submit(tensor.to_numpy)
        until(lambda: fence.underlying_object._wakes)
        assert not reading.done()
        block.release.set()
        assert reading.result().tolist() == [1, 2]
    assert fence.is_complete
    flags = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS
    with tensor.lock(TensorLockMode.READ, flags) as lock:
        assert bytes(lock.data()) == b"\x01\x02"


def test_reading_what_failed_work_should_have_written_is_its_failure(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    tensor = staged(runtime)
    tensor.ready_fence = pipeline.execution().submit()
    with failing(0x80004005):
        tensor.to_numpy()
    tensor.ready_fence = None
    assert tensor.to_numpy().tolist() == [1, 2]


def test_refused_fences(runtime: Runtime, engine: Sample) -> None:
    tensor = floats(runtime, 1, 2)
    with pytest.raises(TypeError, match="ready_fence"):
        tensor.ready_fence = 1  # type: ignore[assignment]
    _, pipeline = engine.built(runtime)
    fence = pipeline.execution().submit()
    fence.wait()
    tensor.ready_fence = fence
    fence.close()
    with pytest.raises(RuntimeError, match="Fence is closed"):
        tensor.ready_fence = fence
    tensor.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.ready_fence  # noqa: B018
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.ready_fence = None
