"""Tensors, locks, token tensors: statements 1-31, 54, 55 and 87 of tensors."""

from __future__ import annotations

import array
import ctypes
import gc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.engines import Sample, decoder_sample
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.staged import DeviceStorage
from winml_lite import (
    NotSupportedError,
    Runtime,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    TensorLockFlags,
    TensorLockMode,
    TokenTensorOptions,
)
from winml_lite.storage import Claim, Storage

T = TensorDataType
Array = npt.NDArray[Any]
READ, WRITE, READ_WRITE = TensorLockMode.READ, TensorLockMode.WRITE, TensorLockMode.READ_WRITE
NUMPY_TYPES = [
    "float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float64", "bool",
]  # fmt: skip


# Making tensors


@pytest.mark.parametrize("data", [None, b"", bytearray()])
def test_t1_a_tensor_without_data_is_zero(runtime: Runtime, data: bytes | None) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2, 3), data)
    assert tensor.desc() == (T.FLOAT32, (2, 3))
    assert tensor.to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("size", [1, 7, 9, 16])
def test_t2_s_shp_05_the_number_of_bytes_is_exact(runtime: Runtime, size: int) -> None:
    with pytest.raises(ValueError, match="takes 8 bytes"):
        runtime.create_tensor(T.FLOAT32, (2,), bytes(size))


def test_t2_bytes_become_elements(runtime: Runtime) -> None:
    data = np.array([1.5, -2], "<f4").tobytes()
    assert runtime.create_tensor(T.FLOAT32, (2,), data).to_numpy().tolist() == [1.5, -2]


def test_t2_strided_data_is_packed(runtime: Runtime) -> None:
    data = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert runtime.create_tensor(T.INT32, (3, 2), data).to_numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_t3_a_scalar_has_rank_0(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (), b"\x07\0\0\0")
    assert tensor.desc() == (T.INT32, ())
    assert tensor.to_numpy().shape == ()
    assert tensor.to_numpy() == 7


def test_t4_a_numpy_scalar_becomes_rank_1(runtime: Runtime) -> None:
    assert runtime.tensor_from_numpy(np.float32(3)).desc() == (T.FLOAT32, (1,))


@pytest.mark.parametrize("dtype", ["complex64", "object", "U4", "S4", "V4", "datetime64[s]", "i4,f4"])
def test_t5_other_dtypes_are_refused(runtime: Runtime, dtype: str) -> None:
    with pytest.raises(ValueError, match="float32"):
        runtime.tensor_from_numpy(np.zeros(2, dtype))


def test_a_masked_array_is_refused(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="filled"):
        runtime.tensor_from_numpy(np.ma.masked_array([1.0, 2.0], mask=[False, True]))


def test_t5_a_foreign_byte_order_is_converted(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_numpy(np.array([1.5, 2], ">f4"))
    assert tensor.desc() == (T.FLOAT32, (2,))
    assert tensor.to_numpy().tolist() == [1.5, 2]


@pytest.mark.parametrize("dtype", [">f8", ">i2", ">u4", ">f2"])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2], lambda x: x[0, 0]])
def test_t5_any_layout_in_any_byte_order(runtime: Runtime, dtype: str, view: Callable[[Array], Array]) -> None:
    source = view(np.arange(12).reshape(3, 4).astype(dtype))
    assert runtime.tensor_from_numpy(source).to_numpy().ravel().tolist() == source.ravel().tolist()


@pytest.mark.parametrize("value", [None, "text", [1, "2"], [[1], [1, 2]], {"a": 1}, 2**64, object()])
def test_t5_what_is_no_array(runtime: Runtime, value: npt.ArrayLike) -> None:
    with pytest.raises(ValueError):
        runtime.tensor_from_numpy(value)


@pytest.mark.parametrize("name", ["bfloat16", "int4", "uint4"])
def test_t5_types_of_an_extension_go_as_bytes(runtime: Runtime, name: str) -> None:
    extension = pytest.importorskip("ml_dtypes")
    source = np.array([1, 2], getattr(extension, name))
    with pytest.raises(ValueError, match=f"{name}.*as bytes"):
        runtime.tensor_from_numpy(source)


def test_t5_bfloat16_of_an_extension_is_a_buffer(runtime: Runtime) -> None:
    extension = pytest.importorskip("ml_dtypes")
    source = np.array([1, -2], extension.bfloat16)
    for access in TensorAccessMode:
        tensor = runtime.tensor_from_buffer(source, T.BFLOAT16, (2,), access=access)
        with tensor.lock(READ) as lock:
            assert bytes(lock.data()).hex() == "803f00c0"
    with pytest.raises(ValueError, match="takes 1 bytes"):
        runtime.tensor_from_buffer(np.array([1, 2], extension.int4), T.INT4, (2,))


def test_t5_lists_are_arrays(runtime: Runtime) -> None:
    assert runtime.tensor_from_numpy([[1, 2]]).desc() == (T.INT64, (1, 2))


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_t6_every_numpy_type_survives(runtime: Runtime, dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    back = runtime.tensor_from_numpy(array).to_numpy()
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


def test_t7_tensors_and_arrays_are_independent(runtime: Runtime) -> None:
    array = np.array([1, 2])
    tensor = runtime.tensor_from_numpy(array)
    array[0] = 9
    tensor.to_numpy()[1] = 9
    assert tensor.to_numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x[:, ::2],
        np.asfortranarray,
        lambda x: np.broadcast_to(x[:1], (4, 3)),
    ],
)
def test_s_shp_02_strided_arrays_keep_their_values(runtime: Runtime, view: object) -> None:
    array = view(np.arange(6, dtype=np.float32).reshape(2, 3))  # type: ignore[operator]
    assert runtime.tensor_from_numpy(array).to_numpy().tolist() == array.tolist()


def test_t8_four_bit_elements_are_packed(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT4, (3,), b"\x21\x03")
    with tensor.lock(READ) as lock:
        assert bytes(lock.data()) == b"\x21\x03"
    with pytest.raises(ValueError):
        tensor.to_numpy()


@pytest.mark.parametrize("size", [1, 3])
def test_t8_four_bit_sizes(runtime: Runtime, size: int) -> None:
    with pytest.raises(ValueError):
        runtime.create_tensor(T.INT4, (3,), bytes(size))


@pytest.mark.parametrize("data_type", [T.UNDEFINED, 0, 99])
def test_t9_what_is_no_element_type(runtime: Runtime, data_type: int) -> None:
    with pytest.raises(ValueError):
        runtime.create_tensor(data_type, (1,))


@pytest.mark.parametrize("extent", [True, -1, 1.5, "2", None, 2**64])
def test_t10_what_is_no_extent(runtime: Runtime, extent: int) -> None:
    with pytest.raises(ValueError):
        runtime.create_tensor(T.FLOAT32, (extent,))


def test_t10_a_tensor_has_no_free_dimension(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.create_tensor(T.FLOAT32, (2**64 - 1,))


def test_t10_sizes_beyond_memory(runtime: Runtime) -> None:
    with failing(0x80070216):
        runtime.create_tensor(T.FLOAT32, (2**33, 2**33))


def test_t11_an_extent_of_0(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (0, 3))
    assert tensor.to_numpy().shape == (0, 3)
    with tensor.lock(READ) as lock:
        assert (lock.byte_size, len(lock.data())) == (0, 0)


# Buffers


def test_t12_both_sides_of_a_writable_alias_see_changes(runtime: Runtime) -> None:
    buffer = bytearray(8)
    tensor = runtime.tensor_from_buffer(buffer, T.FLOAT32, (2,), access=TensorAccessMode.READWRITE)
    tensor.fill(1.0)
    assert buffer == np.array([1, 1], "<f4").tobytes()
    buffer[:4] = np.float32(5).tobytes()
    assert tensor.to_numpy().tolist() == [5, 1]


def test_t12_a_numpy_array_can_be_aliased(runtime: Runtime) -> None:
    array = np.zeros((2, 2), np.float32)
    tensor = runtime.tensor_from_buffer(array, T.FLOAT32, (4,), access=TensorAccessMode.READWRITE)
    tensor.fill(3)
    assert array.tolist() == [[3, 3], [3, 3]]


def test_t13_an_aliased_buffer_is_pinned(runtime: Runtime) -> None:
    buffer = bytearray(8)
    tensor = runtime.tensor_from_buffer(buffer, T.FLOAT32, (2,), access=TensorAccessMode.READ)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    tensor.close()
    buffer.extend(b"x")


@pytest.mark.parametrize("access", [TensorAccessMode.READ, TensorAccessMode.READWRITE])
def test_t13_a_refused_buffer_is_not_pinned(runtime: Runtime, access: TensorAccessMode) -> None:
    buffer = bytearray(7)
    with pytest.raises(ValueError):
        runtime.tensor_from_buffer(buffer, T.FLOAT32, (2,), access=access)
    buffer.extend(b"x")


def test_t14_a_read_only_buffer_cannot_be_writable(runtime: Runtime) -> None:
    with pytest.raises((BufferError, ValueError)):
        runtime.tensor_from_buffer(b"12345678", T.FLOAT32, (2,), access=TensorAccessMode.READWRITE)


def test_t14_a_read_view_cannot_be_written(runtime: Runtime) -> None:
    buffer = bytearray(8)
    tensor = runtime.tensor_from_buffer(buffer, T.FLOAT32, (2,), access=TensorAccessMode.READ)
    with failing(0x80070005):
        tensor.fill(1)
    with failing(0x80070005):
        tensor.copy_from(runtime.create_tensor(T.FLOAT32, (2,)))
    assert buffer == bytes(8)
    assert tensor.to_numpy().tolist() == [0, 0]


@pytest.mark.parametrize("access", [True, np.True_, 5, -1, TensorLockMode.READ, "READ", None])
def test_t15_what_is_no_access_mode(runtime: Runtime, access: int) -> None:
    with pytest.raises(ValueError):
        runtime.tensor_from_buffer(bytes(8), T.FLOAT32, (2,), access=access)


@pytest.mark.parametrize("data_type", [True, 1.0, np.True_, TensorLockMode.READ, "FLOAT32", None])
def test_t9_what_equals_a_number_and_means_no_element_type(runtime: Runtime, data_type: Any) -> None:
    with pytest.raises(ValueError, match="TensorDataType"):
        runtime.create_tensor(data_type, (1,))


@pytest.mark.parametrize("data_type", [7.0, True, "INT64"])
def test_t54_ids_of_what_is_no_element_type(runtime: Runtime, data_type: Any) -> None:
    with pytest.raises(ValueError, match="token ids are INT64 or INT32"):
        runtime.tensor_from_tokens([1], options=TokenTensorOptions(data_type))


def test_t54_the_number_of_an_element_type_of_ids(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_tokens([1, 2], options=TokenTensorOptions(int(T.INT32)))  # type: ignore[arg-type]
    assert tensor.desc()[0] is T.INT32


def test_t15_a_number_is_an_access_mode(runtime: Runtime) -> None:
    buffer = bytearray(8)
    tensor = runtime.tensor_from_buffer(buffer, T.FLOAT32, (2,), access=1)
    buffer[:4] = np.float32(5).tobytes()
    assert tensor.to_numpy().tolist() == [5, 0]


@pytest.mark.parametrize("access", [TensorAccessMode.READ, TensorAccessMode.READWRITE])
@pytest.mark.parametrize("order", [np.asfortranarray, lambda x: np.repeat(x, 2, 1)[:, ::2]])
def test_t16_an_alias_needs_contiguous_memory(runtime: Runtime, access: TensorAccessMode, order: object) -> None:
    array = order(np.ones((2, 3), np.float32))  # type: ignore[operator]
    with pytest.raises((BufferError, ValueError)):
        runtime.tensor_from_buffer(array, T.FLOAT32, (2, 3), access=access)


def test_t16_a_copy_packs(runtime: Runtime) -> None:
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    tensor = runtime.tensor_from_buffer(array, T.FLOAT32, (2, 3))
    assert tensor.to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    array[0, 0] = 9
    assert tensor.to_numpy()[0, 0] == 0


@pytest.mark.parametrize("export", [lambda x: x, memoryview])
def test_t16_a_foreign_byte_order_is_converted_by_a_copy_only(runtime: Runtime, export: Callable[[Array], Any]) -> None:
    source = export(np.array([[1, 2], [3, 4]], ">i4").T)
    for tensor in (
        runtime.tensor_from_buffer(source, T.INT32, (2, 2)),
        runtime.create_tensor(T.INT32, (2, 2), source),
    ):
        assert tensor.to_numpy().tolist() == [[1, 3], [2, 4]]
    for access in TensorAccessMode.READ, TensorAccessMode.READWRITE:
        with pytest.raises(ValueError, match="byte order"):
            runtime.tensor_from_buffer(export(np.array([1, 2], ">i4")), T.INT32, (2,), access=access)


def test_t16_a_foreign_byte_order_of_ctypes(runtime: Runtime) -> None:
    numbers = (ctypes.c_int32.__ctype_be__ * 2)(1, 2)
    assert runtime.tensor_from_buffer(numbers, T.INT32, (2,)).to_numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="byte order"):
        runtime.tensor_from_buffer(numbers, T.INT32, (2,), access=1)


@pytest.mark.parametrize(
    "view", [lambda x: x[::-1], lambda x: x[:, ::-2], lambda x: np.broadcast_to(x[0], (3, 2)), lambda x: x.T]
)
@pytest.mark.parametrize("export", [lambda x: x, memoryview])
def test_t16_any_layout_is_packed(
    runtime: Runtime, view: Callable[[Array], Array], export: Callable[[Array], Any]
) -> None:
    source = view(np.arange(6, dtype=np.int16).reshape(3, 2))
    assert runtime.tensor_from_buffer(export(source), T.INT16, source.shape).to_numpy().tolist() == source.tolist()
    assert runtime.create_tensor(T.INT16, source.shape, export(source)).to_numpy().tolist() == source.tolist()


@pytest.mark.parametrize("access", list(TensorAccessMode))
@pytest.mark.parametrize("buffer", [bytearray(), np.zeros((0, 3), np.float32), np.zeros((4, 0, 3))[:, :, ::2]])
def test_t11_empty_buffers(runtime: Runtime, access: TensorAccessMode, buffer: Any) -> None:
    tensor = runtime.tensor_from_buffer(buffer, T.FLOAT32, (0, 3), access=access)
    assert tensor.to_numpy().shape == (0, 3)
    with pytest.raises(ValueError, match="has 0"):
        runtime.tensor_from_buffer(buffer, T.FLOAT32, (1, 3), access=access)


@pytest.mark.parametrize("access", list(TensorAccessMode))
def test_t3_a_buffer_of_rank_0(runtime: Runtime, access: TensorAccessMode) -> None:
    tensor = runtime.tensor_from_buffer(np.array(7, np.int32), T.INT32, (), access=access)
    assert tensor.desc() == (T.INT32, ())
    assert tensor.to_numpy() == 7


def test_t2_bytes_are_bytes_whatever_their_format(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_buffer(array.array("d", [1.0]), T.INT64, (1,))
    assert tensor.to_numpy().tolist() == [0x3FF0000000000000]


def test_t2_a_size_that_does_not_fit_takes_no_memory(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="the buffer has 4"):
        runtime.create_tensor(T.FLOAT32, (2**40,), b"1234")


def test_a_buffer_is_needed(runtime: Runtime) -> None:
    with pytest.raises(TypeError):
        runtime.tensor_from_buffer([1, 2], T.INT32, (2,))
    with pytest.raises(TypeError):
        runtime.tensor_from_buffer(None, T.INT32, (2,), access=1)


@pytest.mark.parametrize("access", list(TensorAccessMode))
@pytest.mark.parametrize(
    "objects",
    [
        np.array([None, None]),
        np.zeros(2, [("a", object)]),
        np.array([None, None]).data,
        np.zeros(2, [("a", object)]).data,
        (ctypes.py_object * 2)(1, 2),  # type: ignore[misc]
    ],
    ids=["array", "records", "memoryview", "memoryview of records", "ctypes"],
)
def test_an_array_of_objects_is_no_memory(runtime: Runtime, objects: Any, access: TensorAccessMode) -> None:
    with pytest.raises(ValueError, match="objects"):
        runtime.tensor_from_buffer(objects, T.INT64, (2,), access=access)
    with pytest.raises(ValueError, match="objects"):
        runtime.create_tensor(T.INT64, (2,), objects)


# Copying, filling, regions


def test_t17_copy_from_moves_bits(runtime: Runtime) -> None:
    source = runtime.tensor_from_numpy(np.array([1, 2], np.float32))
    target = runtime.create_tensor(T.INT64, (1,))
    target.copy_from(source)
    assert target.to_numpy()[0] == (0x40000000 << 32) | 0x3F800000


def test_t17_copy_from_needs_as_many_bytes(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.create_tensor(T.FLOAT32, (3,)).copy_from(runtime.create_tensor(T.FLOAT32, (2,)))


def test_t17_copy_from_itself(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_numpy([1, 2])
    tensor.copy_from(tensor)
    assert tensor.to_numpy().tolist() == [1, 2]


def test_t17_copy_from_what_is_no_open_tensor(runtime: Runtime) -> None:
    tensor, closed = runtime.create_tensor(T.INT8, (1,)), runtime.create_tensor(T.INT8, (1,))
    closed.close()
    with pytest.raises(RuntimeError):
        tensor.copy_from(closed)
    with pytest.raises(TypeError):
        tensor.copy_from(b"1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (T.INT8, 300),
        (T.INT8, -129),
        (T.UINT8, -1),
        (T.INT32, 1.5),
        (T.INT32, "1"),
        (T.UINT64, 2**64),
        (T.FLOAT32, "x"),
        (T.FLOAT32, "1"),
        (T.FLOAT32, 1e300),
        (T.FLOAT16, 1e6),
        (T.FLOAT64, 10**400),
        (T.FLOAT32, None),
        (T.FLOAT32, 1j),
        (T.FLOAT32, np.complex64(1)),
        (T.FLOAT32, np.array([1.0])),
        (T.INT32, np.array([1])),
        (T.INT32, np.float32(1)),
        (T.INT32, float("nan")),
        (T.BOOL, np.array([True])),
    ],
)
def test_t18_a_value_that_does_not_fit(runtime: Runtime, data_type: T, value: float) -> None:
    with pytest.raises(ValueError):
        runtime.create_tensor(data_type, (2,)).fill(value)


@pytest.mark.parametrize(
    ("data_type", "value", "stored"),
    [
        (T.FLOAT16, 0.5, 0.5),
        (T.FLOAT32, 3, 3.0),
        (T.FLOAT32, float("inf"), float("inf")),
        (T.FLOAT64, np.float32(0.25), 0.25),
        (T.INT8, True, 1),
        (T.INT64, -(2**63), -(2**63)),
        (T.UINT64, 2**64 - 1, 2**64 - 1),
        (T.BOOL, "yes", True),
        (T.BOOL, 0.0, False),
        (T.BOOL, np.False_, False),
        (T.INT16, np.uint64(300), 300),
        (T.INT16, np.array(300), 300),
        (T.FLOAT32, np.array(0.5), 0.5),
        (T.FLOAT32, Fraction(1, 4), 0.25),
        (T.FLOAT32, Decimal("0.75"), 0.75),
        (T.FLOAT64, 2**70, 2.0**70),
        (T.FLOAT32, float("-inf"), float("-inf")),
    ],
)
def test_t18_t19_fill(runtime: Runtime, data_type: T, value: float, stored: float) -> None:
    tensor = runtime.create_tensor(data_type, (2, 2))
    tensor.fill(value)
    assert tensor.to_numpy().tolist() == [[stored, stored], [stored, stored]]


def test_t18_fill_with_nan(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    tensor.fill(float("nan"))
    assert np.isnan(tensor.to_numpy()).all()


@pytest.mark.parametrize("data_type", [T.BFLOAT16, T.INT4, T.UINT4])
@pytest.mark.parametrize("value", [0, "x"])
def test_t19_types_that_cannot_be_filled(runtime: Runtime, data_type: T, value: int) -> None:
    with failing(0x80070032, NotSupportedError):
        runtime.create_tensor(data_type, (2,)).fill(value)


def test_t20_a_region_is_a_copy(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_numpy(np.arange(16, dtype=np.float32).reshape(4, 4))
    region = tensor.region((1, 2), (2, 2))
    tensor.fill(0)
    assert region.desc() == (T.FLOAT32, (2, 2))
    assert region.to_numpy().tolist() == [[6, 7], [10, 11]]
    assert runtime.tensor_region(region, (0, 1), (2, 1)).to_numpy().tolist() == [[7], [11]]


def test_t20_a_region_of_bfloat16(runtime: Runtime) -> None:
    region = runtime.create_tensor(T.BFLOAT16, (3,), b"aabbcc").region((1,), (2,))
    with region.lock(READ) as lock:
        assert bytes(lock.data()) == b"bbcc"


@pytest.mark.parametrize(
    ("starts", "extents"), [((0,), (1,)), ((3, 0), (2, 1)), ((0, 0), (5, 1)), ((0, 0, 0), (1, 1, 1)), ((4, 0), (1, 1))]
)
def test_t21_a_region_lies_inside(runtime: Runtime, starts: tuple[int, ...], extents: tuple[int, ...]) -> None:
    with failing(0x80070057):
        runtime.create_tensor(T.FLOAT32, (4, 4)).region(starts, extents)


@pytest.mark.parametrize(
    ("starts", "extents"), [((0, 0), (1, 0)), ((), ()), ((0,), (1, 1)), ((-1, 0), (1, 1)), ((True, 0), (1, 1))]
)
def test_t21_wrong_numbers(runtime: Runtime, starts: tuple[int, ...], extents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        runtime.create_tensor(T.FLOAT32, (4, 4)).region(starts, extents)


def test_t21_packed_types_have_no_regions(runtime: Runtime) -> None:
    with failing(0x80070032):
        runtime.create_tensor(T.INT4, (4,)).region((0,), (2,))


def test_t22_a_closed_tensor(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1,))
    tensor.close()
    tensor.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.desc()
    with pytest.raises(RuntimeError), tensor:
        pass


def test_t23_a_tensor_keeps_its_target(runtime: Runtime) -> None:
    target = runtime.create_cpu_target()
    tensor = runtime.create_tensor(T.INT32, (2,), target=target)
    target.close()
    runtime.close()
    assert tensor.region((1,), (1,)).to_numpy().tolist() == [0]
    assert tensor.token_ids() == [0, 0]


def test_a_closed_target_makes_no_tensors(runtime: Runtime) -> None:
    target = runtime.create_cpu_target()
    target.close()
    with pytest.raises(RuntimeError, match="ExecutionTarget is closed"):
        runtime.create_tensor(T.INT32, (2,), target=target)
    with pytest.raises(TypeError):
        runtime.create_tensor(T.INT32, (2,), target="CPU")  # type: ignore[arg-type]


# Locks


def test_t24_readers_share_and_writers_do_not(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    first, second = tensor.lock(READ), tensor.lock(READ)
    with failing(0x800700D4) as caught:
        tensor.lock(WRITE)
    assert "IWinMLTensor.Lock" in str(caught.value)
    first.close()
    with failing(0x800700D4):
        tensor.lock(READ_WRITE)
    second.close()
    tensor.lock(WRITE).close()


@pytest.mark.parametrize("mode", [READ, WRITE, READ_WRITE])
def test_s_lif_08_an_interrupted_lock_is_given_back(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, mode: TensorLockMode
) -> None:
    acquire = Storage.acquire

    def interrupted(storage: Storage, claim: Claim) -> None:
        acquire(storage, claim)
        raise KeyboardInterrupt

    tensor, before = runtime.create_tensor(T.INT32, (2,)), Storage.open_locks
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tensor.lock(mode)
    assert Storage.open_locks == before
    tensor.lock(WRITE).close()


@pytest.mark.parametrize("mode", [WRITE, READ_WRITE])
def test_t24_a_writer_excludes_everybody(runtime: Runtime, mode: TensorLockMode) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(mode):
        for other in (READ, WRITE, READ_WRITE):
            with failing(0x800700D4):
                tensor.lock(other)


def test_t25_a_writer_excludes_copies_and_fills(runtime: Runtime) -> None:
    tensor, other = runtime.create_tensor(T.INT32, (2,)), runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(WRITE):
        for call in (
            tensor.to_numpy,
            lambda: tensor.fill(1),
            lambda: tensor.copy_from(other),
            lambda: other.copy_from(tensor),
            lambda: tensor.region((0,), (1,)),
            tensor.token_ids,
        ):
            with failing(0x800700D4):
                call()
    other.copy_from(tensor)


def test_t25_a_reader_excludes_writing_only(runtime: Runtime) -> None:
    tensor, other = runtime.create_tensor(T.INT32, (2,)), runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(READ):
        other.copy_from(tensor)
        tensor.to_numpy()
        with failing(0x800700D4):
            tensor.fill(1)
        with failing(0x800700D4):
            tensor.copy_from(other)


@pytest.mark.parametrize(("mode", "flags"), [(0, 0), (4, 0), (1, 2), (1, 3), ("READ", 0)])
def test_t26_unknown_modes_and_flags(runtime: Runtime, mode: int, flags: int) -> None:
    with failing(0x80070057):
        runtime.create_tensor(T.INT32, (2,)).lock(mode, flags)


@pytest.mark.parametrize(
    ("mode", "flags"),
    [(True, 0), (1.0, 0), (None, 0), ([], 0), (TensorAccessMode.READ, 0), (TensorAccessMode.READWRITE, 0), (1, True)],
)
def test_t26_numbers_that_mean_something_else(runtime: Runtime, mode: int, flags: int) -> None:
    with failing(0x80070057):
        runtime.create_tensor(T.INT32, (2,)).lock(mode, flags)


@pytest.mark.parametrize("mode", [1, np.int64(1), READ])
def test_t26_a_number_is_a_mode(runtime: Runtime, mode: int) -> None:
    with runtime.create_tensor(T.INT32, (2,)).lock(mode, np.uint8(1)) as lock:  # type: ignore[arg-type]
        assert lock.data().readonly


@pytest.mark.parametrize("flags", [TensorLockFlags.NONE, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS])
def test_t27_changes_are_visible_at_once(runtime: Runtime, flags: TensorLockFlags) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with tensor.lock(READ_WRITE, flags) as lock:
        assert lock.byte_size == 8
        assert lock.data().format == "B"
        lock.data()[0] ^= 1
    assert tensor.to_numpy().tolist() == [1, 0]


def test_t28_a_reader_cannot_write(runtime: Runtime) -> None:
    with runtime.create_tensor(T.INT32, (2,)).lock(READ) as lock:
        assert lock.data().readonly
        with pytest.raises(TypeError):
            lock.data()[0] = 1


@pytest.mark.parametrize("mode", [READ, WRITE, READ_WRITE])
def test_t28_a_direct_lock_has_nothing_to_commit(runtime: Runtime, mode: TensorLockMode) -> None:
    with runtime.create_tensor(T.INT32, (2,)).lock(mode) as lock, failing(0x8007139F):
        lock.commit()


def staged(runtime: Runtime) -> tuple[Tensor, DeviceStorage]:
    """A tensor on memory like that of a device, with the int32 values 5 and 6."""
    storage = DeviceStorage(np.array([5, 6], np.int32).tobytes(), T.INT32, (2,))
    return Tensor(storage, runtime.underlying_object), storage


SYNCHRONIZED = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS


@pytest.mark.parametrize("mode", [READ, WRITE, READ_WRITE])
def test_t29_staged_memory_has_no_direct_access(runtime: Runtime, mode: TensorLockMode) -> None:
    with failing(0x80070032):
        staged(runtime)[0].lock(mode)


def test_t29_reading_staged_memory(runtime: Runtime) -> None:
    tensor, _ = staged(runtime)
    with tensor.lock(READ, SYNCHRONIZED) as lock:
        assert np.frombuffer(bytes(lock.data()), np.int32).tolist() == [5, 6]
        with failing(0x8007139F):
            lock.commit()
    assert tensor.to_numpy().tolist() == [5, 6]
    assert tensor.region((1,), (1,)).to_numpy().tolist() == [6]


def test_t29_writing_staged_memory_needs_a_commit(runtime: Runtime) -> None:
    tensor, _ = staged(runtime)
    with tensor.lock(READ_WRITE, SYNCHRONIZED) as lock:
        lock.data()[0] = 9
    assert tensor.to_numpy().tolist() == [5, 6]
    with tensor.lock(READ_WRITE, SYNCHRONIZED) as lock:
        lock.data()[0] = 9
        lock.commit()
        lock.data()[4] = 8
    assert tensor.to_numpy().tolist() == [9, 6]


def test_t29_staged_memory_can_be_filled_and_copied(runtime: Runtime) -> None:
    tensor, storage = staged(runtime)
    tensor.fill(7)
    assert storage.memory == np.array([7, 7], np.int32).tobytes()
    tensor.copy_from(runtime.tensor_from_numpy(np.array([1, 2], np.int32)))
    assert storage.memory == np.array([1, 2], np.int32).tobytes()


@pytest.mark.parametrize("mode", [WRITE, READ_WRITE])
def test_t30_a_read_view_has_no_writers(runtime: Runtime, mode: TensorLockMode) -> None:
    tensor = runtime.tensor_from_buffer(bytearray(8), T.INT32, (2,), access=TensorAccessMode.READ)
    with failing(0x80070005):
        tensor.lock(mode)
    with tensor.lock(READ) as lock:
        assert lock.data().readonly


def test_t31_a_lock_ends_with_its_block(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    with pytest.raises(ZeroDivisionError), tensor.lock(WRITE):
        raise ZeroDivisionError
    tensor.lock(WRITE).close()


def test_a_view_ends_with_its_lock(runtime: Runtime) -> None:
    lock = runtime.create_tensor(T.INT32, (2,)).lock(READ)
    view = lock.data()
    lock.close()
    lock.close()
    with pytest.raises(ValueError):
        _ = view[0]
    for call in (lock.data, lock.commit, lock.__enter__):
        with pytest.raises(RuntimeError):
            call()


def test_a_derived_view_keeps_the_memory_and_not_the_lock(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,), b"\x05\0\0\0\x06\0\0\0")
    lock = tensor.lock(READ)
    array = np.frombuffer(lock.data(), np.int32)
    lock.close()
    tensor.fill(7)
    tensor.close()
    assert array.tolist() == [7, 7]


def test_a_forgotten_lock_ends_by_itself(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (2,))
    tensor.lock(WRITE)
    gc.collect()
    tensor.lock(WRITE).close()


def test_a_lock_keeps_the_memory_of_a_closed_tensor(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.INT32, (1,), b"\x05\0\0\0")
    lock = tensor.lock(READ)
    tensor.close()
    del tensor
    assert bytes(lock.data()) == b"\x05\0\0\0"
    lock.close()


def test_tensors_over_one_buffer_are_locked_apart(runtime: Runtime) -> None:
    buffer = bytearray(4)
    first = runtime.tensor_from_buffer(buffer, T.INT32, (1,), access=TensorAccessMode.READWRITE)
    second = runtime.tensor_from_buffer(buffer, T.INT32, (1,), access=TensorAccessMode.READWRITE)
    with first.lock(WRITE), second.lock(WRITE):
        pass


# Tokens


def test_t54_tokens(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_tokens([1, 2, 3])
    assert tensor.desc() == (T.INT64, (1, 3))
    assert tensor.to_numpy().tolist() == [[1, 2, 3]]


def test_t54_tokens_of_32_bits(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_tokens(np.array([1, 2], np.int16), options=TokenTensorOptions(T.INT32))
    assert tensor.desc() == (T.INT32, (1, 2))


@pytest.mark.parametrize("ids", [[], [-1], [True], [2**32], [1.0], ["1"]])
def test_t54_what_are_no_tokens(runtime: Runtime, ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"token_ids must not be empty|token id must be"):
        runtime.tensor_from_tokens(ids)


def test_t54_other_types_of_tokens(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="token ids are INT64 or INT32"):
        runtime.tensor_from_tokens([1], options=TokenTensorOptions(T.FLOAT32))
    with failing(0x80070057):
        runtime.tensor_from_tokens([2**31], options=TokenTensorOptions(T.INT32))


class LetterTokenizer:
    """Gives each letter its number in the alphabet, and 0 before the text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(letter) - ord("a") + 1 for letter in text]


def test_t54_the_tokens_of_a_text(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_text("cab", LetterTokenizer())
    assert tensor.desc() == (T.INT64, (1, 4))
    assert tensor.token_ids() == [0, 3, 1, 2]


def test_t54_the_tokens_of_a_text_alone(runtime: Runtime) -> None:
    options = TokenTensorOptions(T.INT32)
    tensor = runtime.tensor_from_text("cab", LetterTokenizer(), add_special_tokens=False, options=options)
    assert tensor.desc() == (T.INT32, (1, 3))
    assert tensor.token_ids() == [3, 1, 2]


def test_t54_a_text_without_tokens(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="token_ids must not be empty"):
        runtime.tensor_from_text("", LetterTokenizer(), add_special_tokens=False)


@pytest.mark.parametrize("array", [np.array([[1, 2, 3]], np.int64), np.array([1, 2, 3], np.int32)])
def test_t55_tokens_of_a_tensor(runtime: Runtime, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    tensor = runtime.tensor_from_numpy(array)
    assert tensor.token_ids() == [1, 2, 3]
    assert runtime.token_ids_from_tensor(tensor) == [1, 2, 3]


def test_t55_wrong_tensors(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match=r"not \(2, 3\)"):
        runtime.create_tensor(T.INT64, (2, 3)).token_ids()
    with pytest.raises(ValueError, match=r"not \(1, 1, 3\)"):
        runtime.create_tensor(T.INT64, (1, 1, 3)).token_ids()
    with failing(0x80070057):
        runtime.create_tensor(T.FLOAT32, (3,)).token_ids()
    with failing(0x8000000B):
        runtime.tensor_from_numpy(np.array([-1])).token_ids()


# Windows only


def test_t87_a_tensor_is_no_d3d12_buffer(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (2,))
    with failing(0x80004002, NotSupportedError) as caught:
        tensor.d3d12_buffer()
    assert "np.asarray" in str(caught.value)
    tensor.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.d3d12_buffer()


def test_t87_a_d3d12_buffer_needs_a_target(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="target"):
        runtime.tensor_from_d3d12_buffer(object(), T.FLOAT32, (2,), target=None)


def test_t87_no_d3d12_buffers_here(runtime: Runtime) -> None:
    target = runtime.create_cpu_target()
    with failing(0x80070032, NotSupportedError) as caught:
        runtime.tensor_from_d3d12_buffer(object(), T.FLOAT32, (2,), size_in_bytes=8, target=target)
    assert "tensor_from_buffer" in str(caught.value)
    runtime.close()
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.tensor_from_d3d12_buffer(object(), T.FLOAT32, (2,), target=target)


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"resource": None}, ValueError, "resource must be"),
        ({"data_type": T.UNDEFINED}, ValueError, "UNDEFINED is not the type of a tensor"),
        ({"shape": (-1,)}, ValueError, "extent must be in"),
        ({"offset_in_bytes": -1}, ValueError, "offset_in_bytes must be in"),
        ({"offset_in_bytes": True}, ValueError, "offset_in_bytes must be an integer"),
        ({"offset_in_bytes": 1.5}, ValueError, "offset_in_bytes must be an integer"),
        ({"size_in_bytes": 7}, ValueError, "takes 8 bytes, size_in_bytes is 7"),
        ({"size_in_bytes": True}, ValueError, "size_in_bytes must be an integer"),
        ({"target": "GPU"}, TypeError, "target must be an ExecutionTarget"),
    ],
)
def test_t87_wrong_arguments_of_a_d3d12_buffer(
    runtime: Runtime, changed: dict[str, Any], kind: type[Exception], message: str
) -> None:
    arguments = {"resource": object(), "data_type": T.FLOAT32, "shape": (2,), "target": runtime.create_cpu_target()}
    with pytest.raises(kind, match=message):
        runtime.tensor_from_d3d12_buffer(**{**arguments, **changed})


# Errors


def test_the_wrapper_shows_what_is_behind_it(runtime: Runtime) -> None:
    tensor: Tensor = runtime.create_tensor(T.INT32, (1,))
    assert tensor.underlying_object is tensor.interface
    tensor.close()
    with pytest.raises(RuntimeError):
        _ = tensor.underlying_object


# Tensors that a stage uses


def test_t12_a_run_writes_into_the_callers_buffer(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.room(runtime).desc()
    mine = np.zeros(shape, np.float32)
    stage.bind_output(0, runtime.tensor_from_buffer(mine, data_type, shape, access=TensorAccessMode.READWRITE))
    pipeline.run()
    assert engine.answer(runtime.tensor_from_numpy(mine)) == engine.first


@pytest.mark.parametrize("access", [TensorAccessMode.READ, TensorAccessMode.READWRITE])
def test_t12_t14_a_run_reads_the_callers_buffer(runtime: Runtime, engine: Sample, access: TensorAccessMode) -> None:
    stage, pipeline = engine.built(runtime)
    value, other = engine.value(runtime), engine.other(runtime)
    mine = bytearray(value.to_numpy().tobytes())
    stage.bind_input(0, runtime.tensor_from_buffer(mine, *value.desc(), access=access))
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    mine[:] = other.to_numpy().tobytes()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_t13_a_bound_buffer_is_pinned_by_the_stage(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    other = engine.other(runtime)
    buffer = bytearray(other.to_numpy().tobytes())
    with runtime.tensor_from_buffer(buffer, *other.desc(), access=TensorAccessMode.READ) as tensor:
        stage.bind_input(0, tensor)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    stage.bind_input(0, engine.value(runtime))
    pipeline.run()
    del tensor
    buffer.extend(b"x")


def test_t13_a_closed_pipeline_pins_nothing(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    data_type, shape = engine.room(runtime).desc()
    buffer = bytearray(np.zeros(shape, np.float32).tobytes())
    with runtime.tensor_from_buffer(buffer, data_type, shape, access=TensorAccessMode.READWRITE) as tensor:
        stage.bind_output(0, tensor)
    pipeline.run()
    pipeline.close()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    stage.close()
    buffer.extend(b"x")


def test_t20_a_region_of_an_output(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    output = stage.output(0)
    starts, extents = (0,) * (len(output.desc()[1]) - 1) + (1,), (1,) * len(output.desc()[1])
    region = output.region(starts, extents)
    before = output.to_numpy()[..., 1]
    stage.bind_input(0, engine.other(runtime))
    pipeline.run()
    assert region.to_numpy()[..., 0] == before


def test_t22_a_closed_output_leaves_the_stage_its_own(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    output = stage.output(0)
    output.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        output.to_numpy()
    assert engine.answer(stage.output(0)) == engine.first


def test_t23_an_output_outlives_everything(engine: Sample) -> None:
    runtime = Runtime()
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    output = stage.output(0)
    pipeline.close()
    stage.close()
    runtime.close()
    del stage, pipeline, runtime
    gc.collect()
    assert engine.answer(output) == engine.first


@pytest.mark.parametrize("mode", [READ, WRITE, READ_WRITE])
def test_t24_a_lock_on_a_bound_output_excludes_runs(runtime: Runtime, engine: Sample, mode: TensorLockMode) -> None:
    stage, pipeline = engine.built(runtime)
    room = engine.room(runtime)
    stage.bind_output(0, room)
    with room.lock(mode), failing(0x800700D4):
        pipeline.run()
    pipeline.run()
    assert engine.answer(room) == engine.first


def test_t27_what_a_lock_writes_is_what_a_run_reads(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor = engine.value(runtime)
    stage.bind_input(0, tensor)
    pipeline.run()
    with tensor.lock(READ_WRITE) as lock:
        lock.data()[:] = engine.other(runtime).to_numpy().tobytes()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_t54_tokens_feed_a_decoder(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    sample = decoder_sample(files)
    stage, pipeline = sample.built(runtime)
    stage.bind_input(0, runtime.tensor_from_tokens([5, 10], options=TokenTensorOptions(T.INT32)))
    pipeline.run()
    assert sample.answer(stage.output(0)) == (259,)
    assert stage.sequence_position == 2
