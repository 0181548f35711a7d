"""Tensors on memory that the CPU reaches only through a copy, as stages read and write them (tensors §3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from fakes.engines import Sample, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, integers, result
from fakes.staged import DeviceStorage
from winml_lite import Runtime, Tensor, TensorDataType, TensorLockFlags, TensorLockMode, WinMLError

SYNCHRONIZED = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS


def staged(runtime: Runtime, tensor: Tensor) -> tuple[Tensor, DeviceStorage]:
    """A tensor like another one, on staged memory."""
    storage = DeviceStorage(tensor.to_numpy().tobytes(), *tensor.desc())
    return Tensor(storage, runtime.underlying_object), storage


def on_device(runtime: Runtime, values: npt.ArrayLike, dtype: str) -> tuple[Tensor, DeviceStorage]:
    return staged(runtime, runtime.tensor_from_numpy(np.asarray(values, dtype)))


def test_t29_a_run_reads_staged_inputs(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor, storage = staged(runtime, engine.value(runtime))
    stage.bind_input(0, tensor)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    storage.memory[:] = engine.other(runtime).to_numpy().tobytes()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_t29_a_run_publishes_staged_outputs(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor, storage = staged(runtime, engine.room(runtime))
    stage.bind_output(0, tensor)
    pipeline.run()
    assert any(storage.memory)
    assert engine.answer(tensor) == engine.first
    assert engine.answer(stage.output(0)) == engine.first
    stage.bind_input(0, engine.other(runtime))
    pipeline.run()
    assert engine.answer(tensor) == engine.second


def test_t29_a_failed_run_publishes_nothing(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    tensor, storage = staged(runtime, engine.room(runtime))
    stage.bind_output(0, tensor)
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    assert not any(storage.memory)
    assert not tensor.to_numpy().any()


def test_t29_what_is_written_through_a_lock_reaches_the_run_when_committed(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor, _ = staged(runtime, engine.value(runtime))
    other = engine.other(runtime).to_numpy().tobytes()
    stage.bind_input(0, tensor)
    with tensor.lock(TensorLockMode.WRITE, SYNCHRONIZED) as lock:
        lock.data()[:] = other
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    with tensor.lock(TensorLockMode.WRITE, SYNCHRONIZED) as lock:
        lock.data()[:] = other
        lock.commit()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_t29_a_staged_lock_stops_a_run(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor, _ = staged(runtime, engine.value(runtime))
    stage.bind_input(0, tensor)
    with tensor.lock(TensorLockMode.READ_WRITE, SYNCHRONIZED), failing(0x800700D4):
        pipeline.run()
    with tensor.lock(TensorLockMode.READ, SYNCHRONIZED):
        pipeline.run()


def test_t29_a_staged_seed_and_its_iterations(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    builder.connect_next_iteration(stage, 0, stage, 0)
    seed, memory = staged(runtime, integers(runtime, 5))
    out, _ = staged(runtime, integers(runtime, 0))
    stage.bind_input(0, seed)
    stage.bind_output(0, out)
    pipeline = builder.build()
    memory.memory[0] = 7
    pipeline.run()
    pipeline.run()
    assert out.to_numpy().tolist() == [9]
    assert seed.to_numpy().tolist() == [7]


def test_t29_a_staged_output_feeds_the_next_stage(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    second = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    builder.connect(first, 0, second, 0)
    between, _ = on_device(runtime, [0, 0], "float32")
    first.bind_input(0, floats(runtime, 1, 2))
    first.bind_input(1, floats(runtime, 10, 20))
    first.bind_output(0, between)
    second.bind_input(1, floats(runtime, 100, 200))
    second.request_output(0)
    builder.build().run()
    assert result(second) == [111, 222]
    assert between.to_numpy().tolist() == [11, 22]


def test_t29_staged_state_of_the_caller(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("stat")))
    stage.add_state_tensor_pair(1, 1)
    stage.caller_owns_state_tensors = True
    state, storage = staged(runtime, runtime.create_tensor(TensorDataType.FLOAT32, (1, 1, 8, 1)))
    stage.bind_input(0, runtime.tensor_from_tokens([3]))
    stage.bind_input(1, state)
    stage.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    assert np.frombuffer(storage.memory, np.float32).tolist() == [0, 0, 0, 0, 0, 0, 0, 3]
    storage.memory[:4] = np.float32(100).tobytes()
    pipeline.run()
    assert result(stage) == [6]
    assert np.frombuffer(storage.memory, np.float32).tolist() == [0, 0, 0, 0, 0, 0, 3, 3]
    storage.memory[-4:] = np.float32(50).tobytes()
    pipeline.run()
    assert result(stage) == [56]


def test_t29_a_stage_does_not_read_the_copy_of_an_earlier_lock(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = built(runtime, files.onnx("inc"))
    tensor, _ = staged(runtime, integers(runtime, 5))
    stage.bind_input(0, tensor)
    stage.request_output(0)
    with tensor.lock(TensorLockMode.READ_WRITE, SYNCHRONIZED) as lock:
        lock.data()[0] = 9
    pipeline.run()
    assert result(stage) == [6]


def test_t29_staged_tensors_copy_and_cut(runtime: Runtime) -> None:
    source, _ = on_device(runtime, [[1, 2], [3, 4]], "int32")
    target, storage = on_device(runtime, [[0, 0], [0, 0]], "int32")
    target.copy_from(source)
    assert np.frombuffer(storage.memory, np.int32).tolist() == [1, 2, 3, 4]
    assert target.region((1, 0), (1, 2)).to_numpy().tolist() == [[3, 4]]
    storage.memory[0] = 9
    assert target.to_numpy().tolist() == [[9, 2], [3, 4]]


def test_t29_staged_tokens(runtime: Runtime) -> None:
    tensor, _ = on_device(runtime, [[1, 2]], "int64")
    assert tensor.token_ids() == [1, 2]
