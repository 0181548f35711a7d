"""The pickle machine of a state dictionary, and no more of it (`torch_file.py` reads the files).

A pickle is a program that may call whatever it names. So this is no unpickler: of its instructions only those are
carried out that put texts, numbers, tuples, lists and dictionaries together. Nothing is imported; a name stands for
itself, and the few names of a state dictionary have a fixed meaning. Every other name and every other instruction is
refused by its name.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST_DIMENSIONS = 8
_MOST_INSTRUCTIONS = 1 << 20
"""About forty describe a tensor; each takes a byte of the file and may take fifty of memory."""
_DTYPES = {
    "torch DoubleStorage": "<f8",
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "<i1",
    "torch ByteStorage": "<u1",
    "torch BoolStorage": "?",
}
_DICTIONARY = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"
_STOP = b"."
_INSTRUCTIONS: Mapping[bytes, tuple[str, Callable[[io.BytesIO], Any] | None]] = {
    operation.code.encode("latin-1"): (operation.name, None if operation.arg is None else operation.arg.reader)
    for operation in pickletools.opcodes
}
"""Their names, and what reads the argument behind the code."""
_NAMES = frozenset((*_DTYPES, _DICTIONARY, _TENSOR, _PARAMETER))


@dataclass(frozen=True, slots=True)
class _Name:
    text: str


@dataclass(frozen=True, slots=True)
class StoredElements:
    """A run of elements; tensors are windows of it."""

    key: str
    dtype: np.dtype[Any]
    length: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    storage: StoredElements
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Where the items of a tuple, a list or a dictionary begin on the stack."""


class CorruptFile(Exception):
    """The file contradicts itself."""


class RefusedContent(Exception):
    """The file asks for something that is not carried out here."""


def load_pickle(stream: io.BytesIO, storages: dict[str, StoredElements] | None = None) -> Any:
    """Carry out one pickle and return the object that it makes; storages that it names are noted in `storages`."""
    machine = _Machine({} if storages is None else storages)
    count = 0
    while (code := stream.read(1)) != _STOP:
        count += 1
        if count > _MOST_INSTRUCTIONS:
            raise RefusedContent(f"a pickle has more than {_MOST_INSTRUCTIONS} instructions")
        if not code:
            raise CorruptFile("a pickle has no end")
        if code not in _INSTRUCTIONS:
            raise CorruptFile("a pickle has an instruction that there is not")
        name, read_argument = _INSTRUCTIONS[code]
        step = _STEPS.get(name)
        if step is None:  # its argument is not even read
            raise RefusedContent(f"it needs the pickle instruction {name}")
        try:
            argument = None if read_argument is None else read_argument(stream)
        except (ValueError, struct.error) as error:
            raise CorruptFile(f"a pickle is broken: {quoted(str(error))}") from None
        step(machine, argument)
    return machine.pop()


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self, storages: dict[str, StoredElements]) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.storages = storages

    def pop(self) -> Any:
        if not self.stack:
            raise CorruptFile("a pickle takes more from its stack than is there")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(item := self.pop(), _Mark):
            items.append(item)
        return items[::-1]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise CorruptFile(f"a pickle expects a {kind.__name__} where none is")
        return self.stack[-1]

    def remember(self, place: int) -> None:
        self.memory[place] = self.top(object)

    def recall(self, place: int) -> None:
        if place not in self.memory:
            raise CorruptFile("a pickle recalls what it has not kept")
        self.push(self.memory[place])

    def take(self, count: int) -> tuple[Any, ...]:
        return tuple(self.pop() for _ in range(count))[::-1]

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise CorruptFile("a pickle sets a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):  # others may take for ever to hash
                raise RefusedContent(f"a dictionary has a key that is {kind_name(key)}")
            target[key] = value

    def append_items(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def name(self, text: str) -> None:
        if text not in _NAMES:
            raise RefusedContent(f"it needs the name {quoted(text.replace(' ', '.'))}")
        self.push(_Name(text))

    def call(self) -> None:
        target, arguments = self.take(2)
        text = target.text if isinstance(target, _Name) else ""
        if text == _DICTIONARY and arguments == ():
            self.push({})
        elif text == _TENSOR:
            self.push(_tensor(arguments))
        elif text == _PARAMETER and _is_tuple(arguments, 3) and isinstance(arguments[0], StoredTensor):
            self.push(arguments[0])
        else:
            raise RefusedContent(f"it calls {quoted(text.replace(' ', '.')) if text else kind_name(target)}")

    def state(self) -> None:
        """Leave out what is set on a dictionary beside its items: the versions of the modules that it is of."""
        self.pop()
        self.top(dict)

    def persistent(self) -> None:
        identity = self.pop()
        if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
            raise RefusedContent("it refers to something that is no storage")
        _, kind, key, _, length = identity[:5]
        if not isinstance(kind, _Name) or kind.text not in _DTYPES:
            raise RefusedContent("it has a storage of an unknown kind")
        if not isinstance(key, str) or not _is_count(length) or identity[5:] not in ((), (None,)):
            raise RefusedContent("it has a storage that is a view of another one")
        storage = StoredElements(key, np.dtype(_DTYPES[kind.text]), length)
        if self.storages.setdefault(key, storage) != storage:
            raise CorruptFile(f"the storage {quoted(key)} is described in two ways")
        self.push(storage)


def _tensor(arguments: Any) -> StoredTensor:
    if not isinstance(arguments, tuple) or len(arguments) < 4:
        raise CorruptFile("a tensor lacks its description")
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(storage, StoredElements) or not _is_count(offset):
        raise CorruptFile("a tensor has no storage")
    for sizes in (shape, strides):
        if not isinstance(sizes, tuple) or len(sizes) > _MOST_DIMENSIONS or not all(map(_is_count, sizes)):
            raise CorruptFile("a tensor has no valid shape")
    if len(shape) != len(strides):
        raise CorruptFile("a tensor has no valid shape")
    return StoredTensor(storage, offset, shape, strides)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_tuple(value: object, length: int) -> bool:
    return isinstance(value, tuple) and len(value) == length


def kind_name(value: object) -> str:
    """Say what a value is, "a dict" or "an int"; a name stands for itself."""
    if isinstance(value, _Name):
        return value.text.replace(" ", ".")[:80]
    name = type(value).__name__.strip("_")
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def quoted(value: object) -> str:
    """Spell a text of the file for a message; what is no text is not spelled, for it may have no end."""
    return repr(value[:80]) if isinstance(value, str) else f"a key that is {kind_name(value)}"


_STEPS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, version: None,
    "MARK": lambda machine, _: machine.push(_Mark()),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"),
        lambda machine, value: machine.push(value),
    ),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.take(3)),
    "SETITEM": lambda machine, _: machine.set_items(list(machine.take(2))),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append_items([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append_items(machine.pop_to_mark()),
    "BINPUT": lambda machine, place: machine.remember(place),
    "LONG_BINPUT": lambda machine, place: machine.remember(place),
    "BINGET": lambda machine, place: machine.recall(place),
    "LONG_BINGET": lambda machine, place: machine.recall(place),
    "GLOBAL": lambda machine, name: machine.name(name),
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.state(),
    "BINPERSID": lambda machine, _: machine.persistent(),
}
