"""Memory shared with other libraries: DLPack, NumPy views, buffers of locks; and that shared outputs never change.

Here too: what pins a caller's buffer, and when it is free again (statement 13 of tensors).
"""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import mmap
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.engines import Sample
from fakes.model_files import ModelFiles
from fakes.rig import built, failing
from fakes.staged import DeviceStorage
from winml_lite import Runtime, Tensor, TensorAccessMode, TensorDataType, TensorLockFlags, TensorLockMode
from winml_lite.values import NUMPY_NAMES

T = TensorDataType
READ, WRITE, READ_WRITE = TensorLockMode.READ, TensorLockMode.WRITE, TensorLockMode.READ_WRITE
Array = npt.NDArray[Any]

before_numpy_2_1 = np.lib.NumpyVersion(np.__version__) < "2.1.0"
needs_numpy_2_1 = pytest.mark.skipif(before_numpy_2_1, reason="NumPy before 2.1 takes every DLPack array as read-only")
needs_python_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="classes in Python are buffers from 3.12 on")


class Foreign:
    """An array of another library: it has nothing but DLPack."""

    def __init__(self, content: npt.ArrayLike, device: tuple[int, int] = (1, 0)) -> None:
        self.array = np.asarray(content)
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def view_only(runtime: Runtime, content: npt.ArrayLike) -> Tensor:
    """A tensor made with access READ, float32."""
    source = np.array(content, np.float32)
    return runtime.tensor_from_buffer(source, T.FLOAT32, source.shape, access=TensorAccessMode.READ)


def staged(runtime: Runtime) -> Tensor:
    """A tensor on memory like that of a device, with the int32 values 5 and 6."""
    storage = DeviceStorage(np.array([5, 6], np.int32).tobytes(), T.INT32, (2,))
    return Tensor(storage, runtime.underlying_object)


# DLPack, out


def test_dlpack_shares_the_memory(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2, 3))
    view = np.from_dlpack(tensor)
    assert (view.dtype, view.shape) == (np.int32, (2, 3))
    tensor.fill(4)
    assert view.tolist() == [[4, 4, 4], [4, 4, 4]]


@needs_numpy_2_1
def test_dlpack_shares_writable_memory(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    np.from_dlpack(tensor)[0] = 7
    assert tensor.to_numpy().tolist() == [7, 0]


@pytest.mark.parametrize("data_type", list(NUMPY_NAMES), ids=lambda data_type: data_type.name)
def test_dlpack_has_every_numpy_type(runtime: Runtime, data_type: T) -> None:
    assert np.from_dlpack(runtime.create_tensor(data_type, (2, 1))).dtype == NUMPY_NAMES[data_type]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 2, 3)])
def test_dlpack_has_every_shape(runtime: Runtime, shape: tuple[int, ...]) -> None:
    assert np.from_dlpack(runtime.create_tensor(T.FLOAT32, shape)).shape == shape


@pytest.mark.parametrize("data_type", [T.BFLOAT16, T.INT4, T.UINT4])
def test_dlpack_of_types_that_numpy_lacks(runtime: Runtime, data_type: T) -> None:
    with pytest.raises(BufferError, match=data_type.name):
        runtime.create_tensor(data_type, (2,)).__dlpack__(max_version=(1, 0))


def test_dlpack_lies_on_the_cpu(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    assert tensor.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(_Capsule(tensor.__dlpack__(dl_device=(1, 0)))).tolist() == [0, 0]
    with pytest.raises(BufferError, match=r"device \(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        tensor.__dlpack__(stream=1)  # type: ignore[arg-type]


@needs_numpy_2_1
def test_dlpack_of_a_read_view_is_read_only(runtime: Runtime) -> None:
    view = np.from_dlpack(view_only(runtime, [1, 2]))
    assert view.tolist() == [1, 2]
    with pytest.raises(ValueError):
        view[0] = 3


@pytest.mark.parametrize("version", [None, (0, 8)])
def test_dlpack_before_1_0_cannot_say_read_only(runtime: Runtime, version: tuple[int, int] | None) -> None:
    with pytest.raises(BufferError, match="copy=True"):
        view_only(runtime, [1, 2]).__dlpack__(max_version=version)


def test_dlpack_copies_when_asked(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    capsule = tensor.__dlpack__(copy=True)
    view = np.from_dlpack(_Capsule(capsule))
    tensor.fill(4)
    assert view.tolist() == [0, 0]


def test_dlpack_copies_a_read_view_for_any_version(runtime: Runtime) -> None:
    capsule = view_only(runtime, [1, 2]).__dlpack__(copy=True)
    assert np.from_dlpack(_Capsule(capsule)).tolist() == [1, 2]


class _Capsule:
    """Hands over one capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_dlpack_of_memory_out_of_reach(runtime: Runtime) -> None:
    tensor = staged(runtime)
    assert np.from_dlpack(tensor).tolist() == [5, 6]
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=False)


def test_dlpack_outlives_the_tensor(runtime: Runtime) -> None:
    view = np.from_dlpack(runtime.create_tensor(T.INT32, (2,), b"\5\0\0\0\6\0\0\0"))
    gc.collect()
    assert view.tolist() == [5, 6]


def test_dlpack_of_a_closed_tensor(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    tensor.close()
    for call in (tensor.__dlpack__, tensor.__dlpack_device__, lambda: np.asarray(tensor)):
        with pytest.raises(RuntimeError, match="Tensor is closed"):
            call()


def test_t25_a_writer_excludes_views(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(WRITE):
        for call in (tensor.__dlpack__, tensor.__array__):
            with failing(0x800700D4):
                call()
    with tensor.lock(READ):
        assert np.asarray(tensor).tolist() == [0, 0]


def test_an_unused_capsule_frees_its_memory(runtime: Runtime) -> None:
    buffer = bytearray(8)
    tensor = runtime.tensor_from_buffer(buffer, T.INT32, (2,), access=TensorAccessMode.READWRITE)
    capsule = tensor.__dlpack__()
    tensor.close()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    del capsule
    buffer.extend(b"x")


def test_pytorch_shares_the_memory(runtime: Runtime) -> None:
    torch = pytest.importorskip("torch")
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    shared = torch.from_dlpack(tensor)
    tensor.fill(4)
    assert shared.tolist() == [4, 4]
    assert runtime.tensor_from_numpy(shared).to_numpy().tolist() == [4, 4]
    back = runtime.tensor_from_dlpack(shared, access=TensorAccessMode.READWRITE)
    back.fill(5)
    assert shared.tolist() == [5, 5]
    halves = torch.ones(2, dtype=torch.bfloat16)
    alias = runtime.tensor_from_buffer(halves.view(torch.int16), T.BFLOAT16, (2,), access=TensorAccessMode.READ)
    assert alias.desc() == (T.BFLOAT16, (2,))


# DLPack, in


def test_an_array_of_another_library_is_aliased(runtime: Runtime) -> None:
    source = Foreign(np.array([[1, 2]], np.int16))
    tensor = runtime.tensor_from_dlpack(source)
    source.array[0, 0] = 9
    assert tensor.desc() == (T.INT16, (1, 2))
    assert tensor.to_numpy().tolist() == [[9, 2]]
    with failing(0x80070005):
        tensor.fill(1)


@needs_numpy_2_1
def test_an_array_of_another_library_is_written(runtime: Runtime) -> None:
    source = Foreign(np.array([1, 2], np.int16))
    runtime.tensor_from_dlpack(source, access=TensorAccessMode.READWRITE).fill(3)
    assert source.array.tolist() == [3, 3]


def test_an_array_of_another_library_is_copied(runtime: Runtime) -> None:
    source = Foreign(np.arange(6, dtype=np.int64).reshape(2, 3).T)
    for tensor in (
        runtime.tensor_from_dlpack(source, access=TensorAccessMode.COPY),
        runtime.tensor_from_numpy(source),  # type: ignore[arg-type]
        runtime.tensor_from_buffer(source, T.INT64, (3, 2)),
        runtime.create_tensor(T.INT64, (3, 2), source),
    ):
        assert tensor.to_numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_scalar_of_another_library_keeps_its_rank(runtime: Runtime) -> None:
    for access in TensorAccessMode.COPY, TensorAccessMode.READ:
        assert runtime.tensor_from_dlpack(Foreign(np.array(3.0)), access=access).desc() == (T.FLOAT64, ())


def test_an_array_of_another_library_is_a_buffer(runtime: Runtime) -> None:
    source = Foreign(np.array([0x3F80, 0xC000], np.uint16))
    tensor = runtime.tensor_from_buffer(source, T.BFLOAT16, (2,), access=TensorAccessMode.READ)
    source.array[0] = 0
    with tensor.lock(READ) as lock:
        assert bytes(lock.data()) == b"\x00\x00\x00\xc0"


def test_a_tensor_can_be_aliased_as_another_type(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    alias = runtime.tensor_from_buffer(tensor, T.UINT8, (8,), access=TensorAccessMode.READ)
    tensor.fill(1)
    assert alias.to_numpy().tolist() == [0, 0, 128, 63, 0, 0, 128, 63]


@pytest.mark.parametrize("access", [TensorAccessMode.READ, TensorAccessMode.READWRITE])
def test_an_alias_of_another_library_needs_contiguous_memory(runtime: Runtime, access: TensorAccessMode) -> None:
    with pytest.raises(ValueError, match=r"C order; copy it with tensor_from_numpy, or access=TensorAccessMode\.COPY"):
        runtime.tensor_from_dlpack(Foreign(np.zeros((2, 3)).T), access=access)


def test_read_only_memory_of_another_library_is_not_written(runtime: Runtime) -> None:
    source = np.array([1.0])
    source.flags.writeable = False
    with pytest.raises(BufferError):
        runtime.tensor_from_dlpack(Foreign(source), access=TensorAccessMode.READWRITE)
    with pytest.raises(BufferError):
        runtime.tensor_from_dlpack(source, access=TensorAccessMode.READWRITE)


def test_what_dlpack_cannot_share(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="list"):
        runtime.tensor_from_dlpack([1, 2])
    with pytest.raises(BufferError, match="device 2"):
        runtime.tensor_from_dlpack(Foreign([1.0], device=(2, 0)))
    with pytest.raises(ValueError, match="complex64"):
        runtime.tensor_from_dlpack(Foreign(np.zeros(2, np.complex64)))
    with pytest.raises(BufferError, match="bfloat16"):
        runtime.tensor_from_dlpack(Foreign(np.zeros(2, "M8[s]")))
    with pytest.raises(ValueError):
        runtime.tensor_from_dlpack(Foreign([1.0]), access=5)


def test_an_alias_keeps_the_array_of_another_library(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_dlpack(Foreign(np.array([5, 6])))
    gc.collect()
    assert tensor.to_numpy().tolist() == [5, 6]


# NumPy views


def test_asarray_is_a_view(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    view = np.asarray(tensor)
    view[0] = 3
    assert tensor.to_numpy().tolist() == [3, 0]
    assert np.array(tensor, copy=False).tolist() == [3, 0]


def test_array_is_a_copy(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    for made in (np.array(tensor), np.array(tensor, np.int8), np.asarray(tensor, np.int8)):
        made[0] = 3
    assert np.asarray(tensor, np.int8).dtype == np.int8
    assert tensor.to_numpy().tolist() == [0, 0]


def test_asarray_of_a_read_view_is_read_only(runtime: Runtime) -> None:
    tensor = view_only(runtime, [1, 2])
    assert not np.asarray(tensor).flags.writeable
    assert np.array(tensor).flags.writeable


def test_a_copy_that_may_not_be_made(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="float64"):
        np.array(runtime.create_tensor(T.FLOAT32, (2,)), np.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.array(staged(runtime), copy=False)


def test_asarray_of_memory_out_of_reach_is_a_copy(runtime: Runtime) -> None:
    assert np.asarray(staged(runtime)).tolist() == [5, 6]


@pytest.mark.parametrize("data_type", [T.BFLOAT16, T.INT4, T.UINT4])
@pytest.mark.parametrize("made", [np.array, np.asarray])
def test_asarray_of_types_that_numpy_lacks(runtime: Runtime, data_type: T, made: Callable[[Tensor], Array]) -> None:
    with pytest.raises(ValueError, match="NumPy has no"):
        made(runtime.create_tensor(data_type, (2,)))


def test_a_tensor_can_be_made_from_a_tensor(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT8, (2,))
    again = runtime.tensor_from_numpy(tensor)
    tensor.fill(1)
    assert again.to_numpy().tolist() == [0, 0]


def test_arrays_are_no_tensors(runtime: Runtime, engine: Sample) -> None:
    stage = engine.unbuilt(runtime)
    for item in (np.zeros(2), np.float32(1), Foreign([1.0])):
        with pytest.raises(TypeError, match="tensor_from_dlpack"):
            stage.bind_input(0, item)  # type: ignore[arg-type]


# Buffers of locks


@needs_python_3_12
def test_a_lock_is_a_buffer(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(READ_WRITE) as lock:
        values = np.frombuffer(lock, np.int32)  # type: ignore[call-overload]
        values[0] = 5
        with memoryview(lock) as view:
            assert (view.format, view.nbytes, view.readonly) == ("B", 8, False)
    assert tensor.to_numpy().tolist() == [5, 0]
    with pytest.raises(RuntimeError, match="closed"):
        memoryview(lock)


@needs_python_3_12
def test_t28_the_buffer_of_a_reader_is_read_only(runtime: Runtime) -> None:
    with runtime.create_tensor(T.INT32, (2,)).lock(READ) as lock:
        assert memoryview(lock).readonly
        assert not np.frombuffer(lock, np.int32).flags.writeable  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", [WRITE, READ_WRITE])
def test_a_writable_buffer_is_given_to_writers_only(runtime: Runtime, mode: TensorLockMode) -> None:
    writable = 1  # inspect.BufferFlags.WRITABLE
    tensor = runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(READ) as lock, pytest.raises(BufferError, match="READ_WRITE"):
        lock.__buffer__(writable)
    with tensor.lock(mode) as lock:
        assert not lock.__buffer__(writable).readonly


@needs_python_3_12
def test_a_view_of_a_lock_keeps_the_memory_and_not_the_lock(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    lock = tensor.lock(READ)
    view = memoryview(lock)
    lock.close()
    tensor.fill(1)
    tensor.close()
    assert bytes(view) == b"\1\0\0\0\1\0\0\0"


def test_a_lock_shows_what_it_is(runtime: Runtime) -> None:
    lock = runtime.create_tensor(T.INT32, (2,)).lock(READ)
    assert repr(lock) == "<TensorDataLock (READ, 8 bytes)>"
    lock.close()
    assert repr(lock) == "<TensorDataLock (closed)>"


# Outputs that stay as they are


def held_view(tensor: Tensor) -> Array:
    """A view derived from a lock that is closed again."""
    with tensor.lock(READ, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS) as lock:
        return np.frombuffer(lock.data(), np.float32)


@pytest.mark.parametrize("share", [np.asarray, np.from_dlpack, held_view])
def test_a_shared_output_never_changes(runtime: Runtime, engine: Sample, share: Callable[[Tensor], Array]) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    view = share(stage.output(0))
    before = view.tolist()
    for _ in range(3):
        stage.bind_input(0, engine.other(runtime))
        pipeline.run()
        assert view.tolist() == before
    assert np.ravel(stage.output(0).to_numpy()).tolist() != np.ravel(before).tolist()


@pytest.mark.parametrize("share", [np.asarray, np.from_dlpack, held_view])
def test_a_shared_output_outlives_everything(
    runtime: Runtime, engine: Sample, share: Callable[[Tensor], Array]
) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    tensor = stage.output(0)
    before, view = tensor.to_numpy().ravel().tolist(), share(tensor)
    for item in (tensor, stage, pipeline, runtime):
        item.close()
    del tensor, stage, pipeline, item
    gc.collect()
    assert view.ravel().tolist() == before


def test_a_locked_output_does_not_hinder_the_next_run(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    tensor = stage.output(0)
    with tensor.lock(READ) as lock:
        before = bytes(lock.data())
        stage.bind_input(0, engine.other(runtime))
        pipeline.run()
        assert bytes(lock.data()) == before
    assert engine.answer(tensor) == engine.first


def test_a_view_of_an_output_and_its_tensor_share_memory(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    tensor = stage.output(0)
    view = np.asarray(tensor)
    pipeline.run()
    tensor.fill(7)
    assert np.unique(view).tolist() == [7]


def test_an_output_bound_to_another_engine_never_changes(
    runtime: Runtime, files: ModelFiles, both_engines: str
) -> None:
    decoder, decoding = built(runtime, files.scripted_gguf)
    decoder.bind_input(0, runtime.tensor_from_tokens([10]))
    decoder.request_output(0)
    decoding.run()
    logits = decoder.output(0)
    before = logits.to_numpy().tolist()
    adder, adding = built(runtime, files.onnx("add_rows"))
    adder.bind_input(0, logits)
    adder.bind_input(1, runtime.create_tensor(T.FLOAT32, logits.desc()[1]))
    adder.request_output(0)
    adding.run()
    assert adder.output(0).to_numpy().tolist() == before
    decoder.bind_input(0, runtime.tensor_from_tokens([259]))
    decoding.run()
    adding.run()
    assert adder.output(0).to_numpy().tolist() == before


def test_an_output_is_read_while_the_next_run_is_on(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    tensor = stage.output(0)
    answers: set[tuple[float, ...]] = set()
    stop = Event()

    def read() -> None:
        while not stop.is_set():
            answers.add(engine.answer(tensor))

    thread = Thread(target=read)
    thread.start()
    stage.bind_input(0, engine.other(runtime))
    for _ in range(20):
        pipeline.run()
    stop.set()
    thread.join()
    answers.add(engine.answer(tensor))
    assert answers == {engine.first}


# What pins a buffer


def test_t13_a_stage_alone_pins_a_buffer(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.other(runtime).desc()
    buffer = bytearray(engine.other(runtime).to_numpy().tobytes())
    tensor = runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READ)
    stage.bind_input(0, tensor)
    tensor.close()
    del tensor
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    stage.bind_input(0, engine.value(runtime))
    pipeline.run()
    gc.collect()
    buffer.extend(b"x")


def test_t13_a_bound_output_pins_its_buffer_until_it_is_reset(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.room(runtime).desc()
    buffer = bytearray(engine.room(runtime).to_numpy().tobytes())
    stage.bind_output(0, runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READWRITE))
    pipeline.run()
    assert any(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    stage.request_output(0)
    pipeline.run()
    gc.collect()
    buffer.extend(b"x")


def test_t13_the_last_holder_frees_a_buffer(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.other(runtime).desc()
    buffer = bytearray(engine.other(runtime).to_numpy().tobytes())
    tensor = runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READ)
    stage.bind_input(0, tensor)
    pipeline.run()
    lock = tensor.lock(READ)
    view = np.asarray(tensor)
    for release in (tensor.close, stage.close, pipeline.close, lock.close):
        release()
        with pytest.raises(BufferError):
            buffer.extend(b"x")
    del lock, stage, pipeline, release, view
    gc.collect()
    buffer.extend(b"x")


def test_t13_memory_of_a_file_is_pinned(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(np.array([5, 6], np.int32).tobytes())
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 8)
    tensor = runtime.tensor_from_buffer(mapped, T.INT32, (2,), access=TensorAccessMode.READWRITE)
    tensor.fill(7)
    with pytest.raises(BufferError):
        mapped.close()
    tensor.close()
    mapped.close()
    assert path.read_bytes() == np.array([7, 7], np.int32).tobytes()


@pytest.mark.parametrize(
    "buffer",
    [
        array.array("i", [5, 6]),
        (ctypes.c_int32 * 2)(5, 6),
        np.array([[5, 6]], np.int32).data,
        memoryview(array.array("i", [5, 6])).cast("B"),
        bytearray(b"\5\0\0\0\6\0\0\0"),
        np.array([(5, 6)], [("Offset", np.int32), ("b", np.int32)]),
    ],
    ids=["array", "ctypes", "memoryview", "cast", "bytearray", "records"],
)
def test_t12_every_writable_buffer_is_aliased(runtime: Runtime, buffer: Any) -> None:
    tensor = runtime.tensor_from_buffer(buffer, T.INT32, (2,), access=TensorAccessMode.READWRITE)
    assert tensor.to_numpy().tolist() == [5, 6]
    tensor.fill(7)
    assert bytes(memoryview(buffer)) == b"\7\0\0\0\7\0\0\0"


# Objects that are one of a kind


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_tensors_and_locks_are_not_copied(runtime: Runtime, duplicate: Callable[[object], object]) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with pytest.raises(TypeError, match="tensor_from_numpy"):
        duplicate(tensor)
    with tensor.lock(READ) as lock, pytest.raises(TypeError, match="bytes"):
        duplicate(lock)
    with pytest.raises(TypeError, match="cannot be copied"):
        duplicate(tensor.underlying_object)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_no_object_is_doubled(runtime: Runtime, engine: Sample, duplicate: Callable[[object], object]) -> None:
    stage, pipeline = engine.built(runtime)
    for item in (runtime, stage, pipeline, runtime.create_cpu_target()):
        with pytest.raises(TypeError, match=f"a {type(item).__name__} cannot be pickled"):
            duplicate(item)


def test_a_shallow_copy_is_another_wrapper(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    other = copy.copy(stage)
    stage.close()
    pipeline.run()
    assert engine.answer(other.output(0)) == engine.first


@pytest.mark.parametrize("run_before", [False, True])
def test_t13_an_input_that_is_cleared_pins_nothing(runtime: Runtime, engine: Sample, run_before: bool) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.other(runtime).desc()
    buffer = bytearray(engine.other(runtime).to_numpy().tobytes())
    stage.bind_input(0, runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READ))
    stage.bind_output(0, engine.room(runtime))
    for _ in range(run_before):
        pipeline.run()
    stage.clear_input(0)
    gc.collect()
    buffer.extend(b"x")


@pytest.mark.parametrize("run_before", [False, True])
def test_t13_an_output_that_is_withdrawn_pins_nothing(runtime: Runtime, engine: Sample, run_before: bool) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.room(runtime).desc()
    buffer = bytearray(engine.room(runtime).to_numpy().tobytes())
    stage.bind_output(0, runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READWRITE))
    for _ in range(run_before):
        pipeline.run()
    stage.reset_output(0)
    gc.collect()
    buffer.extend(b"x")


def test_t13_a_builder_alone_pins_a_buffer(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    data_type, shape = engine.other(runtime).desc()
    buffer = bytearray(engine.other(runtime).to_numpy().tobytes())
    stage.bind_input(0, runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READ))
    stage.close()
    del stage
    gc.collect()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    builder.close()
    gc.collect()
    buffer.extend(b"x")
