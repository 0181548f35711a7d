"""Memory behind tensors: sizes, locks, descriptor checks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from fakes.rig import failing
from fakes.staged import DeviceStorage
from winml_lite.storage import Storage, StorageLock, allocate, byte_size, check_descriptor
from winml_lite.values import FREE_DIMENSION, TensorDataType, TensorLockMode

T = TensorDataType
READ, WRITE, READ_WRITE = TensorLockMode.READ, TensorLockMode.WRITE, TensorLockMode.READ_WRITE


@pytest.mark.parametrize(
    ("data_type", "shape", "size"),
    [
        (T.FLOAT32, (2, 3), 24),
        (T.FLOAT32, (), 4),
        (T.FLOAT16, (0, 3), 0),
        (T.INT4, (3,), 2),
        (T.UINT4, (3, 3), 5),  # packed over the whole tensor, not by row
        (T.BOOL, (7,), 7),
    ],
)
def test_byte_size(data_type: TensorDataType, shape: tuple[int, ...], size: int) -> None:
    assert byte_size(data_type, shape) == size


def test_fresh_memory_is_zero_and_typed() -> None:
    storage = allocate(T.INT16, (2, 2))
    assert storage.array().tolist() == [[0, 0], [0, 0]]
    assert storage.array().dtype == np.int16
    assert storage.descriptor == (T.INT16, (2, 2))


def test_the_array_views_the_memory() -> None:
    storage = allocate(T.INT16, (2,))
    storage.array()[1] = 0x0102
    assert storage.data.tolist() == [0, 0, 2, 1]
    assert storage.address == storage.array().__array_interface__["data"][0]


def test_a_free_dimension_has_no_memory() -> None:
    with failing(0x80070057):
        allocate(T.INT8, (FREE_DIMENSION,))


def test_sizes_beyond_the_address_space() -> None:
    with failing(0x80070216):
        allocate(T.INT8, (2**40, 2**40))


def test_sizes_beyond_memory() -> None:
    with failing(0x8007000E):
        allocate(T.INT8, (2**62,))


def test_open_locks_are_counted() -> None:
    storage, before = allocate(T.INT8, (1,)), Storage.open_locks
    first, second = StorageLock(storage, READ), StorageLock(storage, READ)
    assert (Storage.open_locks - before, storage.is_locked, storage.is_locked_for_writing) == (2, True, False)
    first.close()
    second.close()
    writer = StorageLock(storage, READ_WRITE)
    assert (Storage.open_locks - before, storage.is_locked, storage.is_locked_for_writing) == (1, True, True)
    writer.close()
    assert (Storage.open_locks, storage.is_locked) == (before, False)


def test_a_refused_lock_is_not_counted() -> None:
    storage, before = allocate(T.INT8, (1,)), Storage.open_locks
    with StorageLock(storage, WRITE), failing(0x800700D4):
        StorageLock(storage, READ)
    assert Storage.open_locks == before


def test_a_lock_closed_twice_is_given_back_once() -> None:
    storage, before = allocate(T.INT8, (1,)), Storage.open_locks
    with StorageLock(storage, READ), StorageLock(storage, READ) as lock:
        lock.close()
        lock.close()
        assert (Storage.open_locks - before, storage.is_locked, lock.is_held) == (1, True, False)


def test_a_lost_lock_ends_with_its_object() -> None:
    storage = allocate(T.INT8, (1,))
    lock = StorageLock(storage, WRITE)
    assert storage.is_locked
    del lock
    assert not storage.is_locked


@pytest.mark.parametrize(
    ("data_type", "extents"),
    [(T.FLOAT16, (2, 3)), (T.FLOAT32, (2, 4)), (T.FLOAT32, (2,)), (T.FLOAT32, (2, 3, 1)), (T.FLOAT32, ())],
)
def test_a_descriptor_that_does_not_fit(data_type: TensorDataType, extents: tuple[int, ...]) -> None:
    with failing(0x80070057):
        check_descriptor(allocate(T.FLOAT32, (2, 3)), (data_type, extents), "input 0")


def test_the_refusal_names_both_sides() -> None:
    with failing(0x80070057) as caught:
        check_descriptor(allocate(T.INT32, (2, 3)), (T.INT64, (1, FREE_DIMENSION)), "input 0 'ids'")
    assert "[input 0 'ids']: expected INT64[1, ?], got INT32[2, 3]" in str(caught.value)


def test_the_refusal_of_a_vector_says_how_to_make_a_scalar() -> None:
    with failing(0x80070057) as caught:
        check_descriptor(allocate(T.BOOL, (1,)), (T.BOOL, ()), "input 0")
    assert "expected BOOL[], got BOOL[1]; create_tensor(type, (), data) makes a scalar" in str(caught.value)


def test_a_free_extent_takes_any() -> None:
    check_descriptor(allocate(T.FLOAT32, (0, 3)), (T.FLOAT32, (FREE_DIMENSION, 3)), "input 0")


def test_staged_memory_is_counted() -> None:
    before = Storage.staged_count
    storage = DeviceStorage(b"\5\6", T.UINT8, (2,))
    assert Storage.staged_count == before + 1
    del storage
    assert Storage.staged_count == before


def test_staged_memory_is_fetched_in_place_and_published() -> None:
    storage = DeviceStorage(b"\5\6", T.UINT8, (2,))
    address = storage.address
    storage.fetch()
    assert storage.data.tolist() == [5, 6]
    storage.data[0] = 9
    assert storage.memory == b"\5\6"
    storage.publish()
    assert (storage.memory, storage.address) == (b"\x09\6", address)


def test_host_memory_stays_where_it_is() -> None:
    storage = allocate(T.INT8, (2,))
    data = storage.data
    storage.fetch()
    storage.settle()
    storage.publish()
    assert storage.data is data
    storage.copy()[0] = 1
    assert data.tolist() == [0, 0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_memory_and_locks_are_one_of_a_kind(duplicate: Callable[[object], object]) -> None:
    storage = allocate(T.INT8, (1,))
    with pytest.raises(TypeError, match="to_numpy"):
        duplicate(storage)
    with StorageLock(storage, READ) as lock, pytest.raises(TypeError, match="another one"):
        duplicate(lock)
