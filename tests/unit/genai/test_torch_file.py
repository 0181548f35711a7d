"""Files of torch: what is read, and that nothing else is ever carried out."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing as failing_with_code
from genai import codes
from genai.convert.torch_file import read_torch_file
from models.torch_files import (
    Call,
    Global,
    Persistent,
    archive,
    contiguous,
    pickled,
    pickles,
    state,
    storage,
    tensor,
    torch_file,
)

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
EVERY_TYPE = {name: np.array([0, 1, 1], name) for name in ("float64", "float32", "float16", "int64", "int32", "uint8")}
FORMS = [pickles, archive]


@contextmanager
def failing(code: int, text: str = "") -> Iterator[None]:
    """Expect a WinMLError with this code, and `text` in what it says."""
    with failing_with_code(code) as caught:
        yield
    assert text in str(caught.value)


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], dict[str, npt.NDArray[Any]]]:
    """Read the bytes of a file."""

    def read(data: bytes) -> dict[str, npt.NDArray[Any]]:
        path = tmp_path / "weights.pth"
        path.write_bytes(data)
        return read_torch_file(path)

    return read


# What is read


@pytest.mark.parametrize("form", FORMS)
def test_every_type_of_number(read: Any, form: Any) -> None:
    arrays = {**EVERY_TYPE, "bool": np.array([True, False, True])}
    found = read(form(state(arrays), {str(number): array for number, array in enumerate(arrays.values())}))
    assert list(found) == list(arrays)
    assert {name: array.dtype.name for name, array in found.items()} == {name: name for name in arrays}
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in arrays.items()}


@pytest.mark.parametrize("form", FORMS)
def test_windows_of_one_storage(read: Any, form: Any) -> None:
    place = storage("0", "float32", 6)
    content = {
        "whole": tensor(place, 0, (2, 3), (3, 1)),
        "transposed": tensor(place, 0, (3, 2), (1, 3)),
        "second row": tensor(place, 3, (3,), (1,)),
        "scalar": tensor(place, 5, (), ()),
        "nothing": tensor(place, 0, (0, 3), (3, 1)),
    }
    found = read(form(content, {"0": ROWS.ravel()}))
    assert found["whole"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["second row"].tolist() == [3, 4, 5]
    assert (found["scalar"].shape, float(found["scalar"])) == ((), 5)
    assert found["nothing"].shape == (0, 3)


def test_a_checkpoint_holds_a_state_dictionary(read: Any) -> None:
    content = {"epoch": 3, "state_dict": {"a": contiguous("0", ROWS)}}
    assert read(archive(content, {"0": ROWS}))["a"].tolist() == ROWS.tolist()


def test_parameters_are_tensors(read: Any) -> None:
    hooks = Call(Global("collections", "OrderedDict"), ())
    content = {"a": Call(Global("torch._utils", "_rebuild_parameter"), (contiguous("0", ROWS), True, hooks))}
    assert read(pickles(content, {"0": ROWS}))["a"].tolist() == ROWS.tolist()


def test_what_is_set_on_a_dictionary_is_left_out(read: Any) -> None:
    data = pickles(state({"a": ROWS}), {"0": ROWS})
    whole = pickled(state({"a": ROWS}))
    changed = whole[:-1] + pickled({"_metadata": {"version": 2}})[2:-1] + b"b."  # BUILD
    assert read(data.replace(whole, changed))["a"].tolist() == ROWS.tolist()


def test_the_instructions_of_torch_itself(read: Any) -> None:
    # torch writes each text once, recalls it later, and has short forms of small tuples and numbers.
    content = (
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02(("
        b"X\x07\x00\x00\x00storageq\x03ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06"
        b"K\x06Ntq\x07QM\x00\x00K\x02K\x03\x86q\x08K\x03K\x01\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0b"
        b"tq\x0cRq\x0du."
    )
    data = pickles({"x": 1}, {"0": ROWS}).replace(pickled({"x": 1}), content)
    assert read(data)["a"].tolist() == ROWS.tolist()


# What is refused, by its name


class Evil:
    """Calls what it likes when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_never_carried_out(
    read: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickles({"x": 1}, {}).replace(pickled({"x": 1}), pickle.dumps({"a": Evil()}, protocol))
    with failing(codes.NOT_SUPPORTED, "not a plain state dictionary"):
        read(data)
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (Global("posix", "system"), "'posix.system'"),
        (Global("builtins", "eval"), "'builtins.eval'"),
        (Global("torch", "BFloat16Storage"), "'torch.BFloat16Storage'"),
        (Global("torch.nn.modules.linear", "Linear"), "'torch.nn.modules.linear.Linear'"),
        (Global("collections.OrderedDict", "fromkeys"), "'collections.OrderedDict.fromkeys'"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_a_name_that_is_not_known_is_refused(read: Any, form: Any, name: Global, said: str) -> None:
    with failing(codes.NOT_SUPPORTED, f"it needs the name {said}"):
        read(form({"a": name}, {}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Call(Global("collections", "OrderedDict"), ([("a", 1)],)), "it calls 'collections.OrderedDict'"),
        (Call(Global("torch", "FloatStorage"), ()), "it calls 'torch.FloatStorage'"),
        (Call("text", ()), "it calls a str"),
        (Persistent("file"), "it refers to something that is no storage"),
        (Persistent(("storage", "kind", "0", "cpu", 6)), "it has a storage of an unknown kind"),
        (Persistent(("storage", Global("torch", "FloatStorage"), 0, "cpu", 6)), "it has a storage that is a view"),
        (Persistent(("storage", Global("torch", "FloatStorage"), "0", "cpu", -1)), "it has a storage that is a view"),
        (5, "'a' is an int and no tensor"),
        ({"b": 5}, "'a' is a dict and no tensor"),
        (Global("torch", "FloatStorage"), "'a' is torch.FloatStorage and no tensor"),
    ],
)
def test_what_is_no_tensor_is_refused(read: Any, value: Any, said: str) -> None:
    with failing(codes.NOT_SUPPORTED, said):
        read(pickles({"a": value}, {}))


def test_a_whole_model_is_refused(read: Any) -> None:
    with failing(codes.NOT_SUPPORTED, "it holds a list"):
        read(pickles([1, 2], {}))
    with failing(codes.NOT_SUPPORTED, "a key that is an int is a str and no tensor"):
        read(pickles({1: "a"}, {}))


def test_keys_that_take_for_ever_to_hash_are_refused(read: Any) -> None:
    # Each of 200 tuples holds the one before twice: hashing the last one means hashing 2**200 of them.
    nested = b")" + b"q\x00h\x00\x86" * 200
    data = pickles({"x": 1}, {}).replace(pickled({"x": 1}), b"\x80\x02}" + nested + b"Ns.")
    with failing(codes.NOT_SUPPORTED, "a dictionary has a key that is a tuple"):
        read(data)


def test_a_pickle_without_end_is_not_followed(read: Any) -> None:
    data = pickles({"x": 1}, {}).replace(pickled({"x": 1}), b"\x80\x02" + b"]" * (1 << 20))
    with failing(codes.NOT_SUPPORTED, "a pickle has more than 1048576 instructions"):
        read(data)


def test_big_endian_numbers_are_refused(read: Any) -> None:
    system = {"protocol_version": 1001, "little_endian": False}
    with failing(codes.NOT_SUPPORTED, "big-endian"):
        read(pickles(state({"a": ROWS}), {"0": ROWS}, system))
    with failing(codes.NOT_SUPPORTED, "big-endian"):
        read(archive(state({"a": ROWS}), {"0": ROWS}, byte_order="big"))


def test_an_archive_that_is_compressed_is_refused(read: Any) -> None:
    with failing(codes.NOT_SUPPORTED, "'model/data.pkl' is compressed"):
        read(archive(state({"a": ROWS}), {"0": ROWS}, compression=zipfile.ZIP_DEFLATED))


# What contradicts itself


@pytest.mark.parametrize(
    ("place", "offset", "shape", "strides"),
    [
        (6, 0, (7,), (1,)),
        (6, 1, (6,), (1,)),
        (6, 0, (2, 3), (4, 1)),
        (6, 0, (1 << 40,), (0,)),
        (6, 0, (1 << 40, 1 << 40), (0, 0)),
        (6, 1 << 60, (1,), (1,)),
    ],
)
def test_a_tensor_larger_than_its_storage(read: Any, place: int, offset: int, shape: Any, strides: Any) -> None:
    content = {"a": tensor(storage("0", "float32", place), offset, shape, strides)}
    with failing(codes.FILE_CORRUPT, "the tensor 'a' is larger than its storage"):
        read(pickles(content, {"0": ROWS}))


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(0, (2, 3), (3,)), (0, (-1,), (1,)), (0, (2,), (-1,)), (0, (1,) * 9, (1,) * 9), (0, [2], [1]), (0, ("2",), (1,))],
)
def test_a_tensor_without_a_valid_shape(read: Any, offset: int, shape: Any, strides: Any) -> None:
    with failing(codes.FILE_CORRUPT, "a tensor has no valid shape"):
        read(pickles({"a": tensor(storage("0", "float32", 6), offset, shape, strides)}, {"0": ROWS}))


def test_a_storage_that_claims_more_than_the_file_holds(read: Any) -> None:
    content = {"a": tensor(storage("0", "float32", 1 << 50), 0, (6,), (1,))}
    with failing(codes.FILE_CORRUPT, "the storage '0' should have 1125899906842624 elements"):
        read(pickles(content, {"0": ROWS}))
    with failing(codes.FILE_CORRUPT, "the storage '0' should have 1125899906842624 elements"):
        read(archive(content, {"0": ROWS}))


def test_a_storage_that_is_missing_or_described_twice(read: Any) -> None:
    with failing(codes.FILE_CORRUPT, "the storage of 'a' is missing"):
        read(pickles(state({"a": ROWS}), {}))
    with failing(codes.FILE_CORRUPT, "the archive holds no 'data/0'"):
        read(archive(state({"a": ROWS}), {}))
    twice = {"a": contiguous("0", ROWS), "b": contiguous("0", ROWS[:1])}
    with failing(codes.FILE_CORRUPT, "the storage '0' is described in two ways"):
        read(pickles(twice, {"0": ROWS}))


def test_members_that_share_their_bytes_cannot_blow_an_archive_up(read: Any) -> None:
    data = archive(state({"a": ROWS}), {"0": ROWS})
    entry = data.index(b"PK\x01\x02")  # of the directory: the size is 24 bytes behind
    changed = data[: entry + 20] + b"\xff\xff\xff\x7f" * 2 + data[entry + 28 :]
    with failing(codes.FILE_CORRUPT, "larger than the archive"):
        read(changed)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_off_anywhere(read: Any, form: Any) -> None:
    data = form(state({"a": ROWS, "b": ROWS + 1}), {"0": ROWS, "1": ROWS + 1})
    for length in range(0, len(data) - 1, 3):
        with failing(codes.FILE_CORRUPT):
            read(data[:length])


@pytest.mark.parametrize("form", FORMS)
def test_a_file_with_a_wrong_byte_fails_cleanly_or_reads(read: Any, form: Any) -> None:
    data = form(state({"a": ROWS}), {"0": ROWS})
    outcomes = set()
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= flip
            try:
                read(bytes(changed))
                outcomes.add("read")
            except OSError as error:
                outcomes.add(f"0x{getattr(error, 'hresult', 0):08X}")
    assert outcomes == {"read", "0x80070570", "0x80070032"}


def test_other_files(read: Any, tmp_path: Path) -> None:
    for data in (b"", b"text", b"PK", pickled({"a": 1}), bytes(100)):
        with failing(codes.FILE_CORRUPT):
            read(data)
    with failing(codes.FILE_NOT_FOUND):
        read_torch_file(tmp_path / "missing.pth")


def test_tensors_are_views_of_the_bytes_of_the_file(read: Any) -> None:
    found = read(torch_file({"a": ROWS}))["a"]
    assert (found.flags.owndata, found.flags.writeable) == (False, False)
