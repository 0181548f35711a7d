"""The three built-in processors of a token loop (tensors §8.2): the embedding of a token, and two greedy choices.

They read and write tensors of the caller in place. All take the token with the largest logit; of equal ones the lowest
id, and NaN counts as minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .checks import INT32_MAX
from .connections import may_hold_as_many
from .errors import E_BOUNDS, E_INVALIDARG, WinMLError
from .processor_stage import Journal
from .storage import Storage, descriptor_text
from .values import NUMPY_NAMES, Descriptor, TensorDataType

_INT32 = TensorDataType.INT32
_INTEGERS = (TensorDataType.INT32, TensorDataType.INT64)
_FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)


class _DecodeWork:
    """What the three have in common: inputs count by elements, outputs are the caller's tensors."""

    name = ""

    def __init__(self, inputs: tuple[Descriptor, ...], kept: tuple[Storage, ...]) -> None:
        for storage in kept:
            if not storage.writable:
                raise _wrong("a tensor that the processor shall change is a read-only view")
            storage.settle()  # views of it are kept
        self.inputs = inputs
        self.outputs = tuple(storage.descriptor for storage in kept)
        self.kept = kept

    def accepts(self, given: Descriptor, wanted: Descriptor) -> bool:
        return may_hold_as_many(given, wanted)

    def check_input(self, index: int, storage: Storage, what: str) -> None:
        data_type, shape = self.inputs[index]
        if storage.data_type is not data_type or math.prod(storage.shape) != math.prod(shape):
            raise WinMLError(
                E_INVALIDARG,
                what,
                f"expected {math.prod(shape)} elements of {data_type.name}, got {descriptor_text(storage.descriptor)}",
            )


class DecodeEmbed(_DecodeWork):
    """Copies one row of the embedding table: that of the token at a position of the ring."""

    name = "decode_embed"

    def __init__(self, vocabulary_size: int, hidden_size: int, sequence_capacity: int, hidden: Storage) -> None:
        _check_limit("vocabulary_size", vocabulary_size)
        _check_limit("sequence_capacity", sequence_capacity)
        if hidden.data_type not in _FLOATS or math.prod(hidden.shape) != hidden_size:
            given = descriptor_text(hidden.descriptor)
            raise _wrong(f"hidden_output must be {hidden_size} elements of FLOAT32 or FLOAT16, not {given}")
        super().__init__(
            (
                (_INT32, (sequence_capacity,)),
                (_INT32, (1,)),
                (hidden.data_type, (vocabulary_size, hidden_size)),
            ),
            (hidden,),
        )
        self._hidden = _flat(hidden)
        self._width = hidden_size

    def perform(
        self, inputs: Sequence[Storage], places: Sequence[Storage | None], journal: Journal
    ) -> Sequence[Storage]:
        ring, position, table = (_flat(storage) for storage in inputs)
        place = int(position[0])
        if not 0 <= place < ring.size:
            raise WinMLError(E_BOUNDS, "", f"position {place} is outside the ring of {ring.size} tokens")
        token = int(ring[place])
        rows = table.reshape(-1, self._width)
        if not 0 <= token < len(rows):
            raise WinMLError(E_BOUNDS, "", f"token {token} at position {place} is outside the {len(rows)} rows")
        journal.write(self._hidden, rows[token])
        return self.kept


class DecodeSample(_DecodeWork):
    """Chooses a token and appends it to the ring."""

    name = "decode_sample"

    def __init__(
        self, logits: Descriptor, ring: Storage, position: Storage, length: Storage, observed: Storage
    ) -> None:
        if ring.data_type is not _INT32 or not 1 <= math.prod(ring.shape) <= INT32_MAX:
            raise _wrong(f"token_ring must be INT32 of 1..2**31-1 elements, not {descriptor_text(ring.descriptor)}")
        _check_one(position, "position", _INTEGERS)
        _check_one(length, "sequence_length", _INTEGERS)
        _check_one(observed, "observed_token", (_INT32,))
        super().__init__((logits,), (observed, ring, position, length))
        self._observed, self._ring, self._position, self._length = (_flat(storage) for storage in self.kept)

    def perform(
        self, inputs: Sequence[Storage], places: Sequence[Storage | None], journal: Journal
    ) -> Sequence[Storage]:
        token = largest(_flat(inputs[0]))
        place = int(self._position[0])
        following = place + 1
        if place < 0 or following >= self._ring.size:
            raise WinMLError(
                E_BOUNDS, "", f"there is no place after position {place} in the ring of {self._ring.size} tokens"
            )
        journal.write(self._ring[following : following + 1], token)
        journal.write(self._position, following)
        journal.write(self._length, following + 1)
        journal.write(self._observed, token)
        return self.kept


class DecodeGreedy(_DecodeWork):
    """Chooses a token and stores it as the next one; counts the sequence, or opens the mask for it."""

    name = "decode_greedy"

    def __init__(
        self, logits: Descriptor, next_token: Storage, position: Storage, step_state: Storage, observed: Storage
    ) -> None:
        _check_one(next_token, "next_token", _INTEGERS)
        _check_one(position, "position", _INTEGERS)
        _check_one(observed, "observed_token", (_INT32,))
        count = math.prod(step_state.shape)
        self._is_mask = step_state.data_type in _FLOATS
        if not self._is_mask:
            _check_one(step_state, "step_state", (*_INTEGERS, *_FLOATS))
        elif count < 1 or (step_state.data_type is TensorDataType.FLOAT16 and count % 2):
            raise _wrong(
                f"a mask has elements, a FLOAT16 one an even number, not {descriptor_text(step_state.descriptor)}"
            )
        super().__init__((logits,), (observed, next_token, position, step_state))
        self._observed, self._next, self._position, self._state = (_flat(storage) for storage in self.kept)

    def perform(
        self, inputs: Sequence[Storage], places: Sequence[Storage | None], journal: Journal
    ) -> Sequence[Storage]:
        token = largest(_flat(inputs[0]))
        place = int(self._position[0])
        following = place + 1
        if place < 0 or following > np.iinfo(self._position.dtype).max:
            raise WinMLError(E_BOUNDS, "", f"position {place} has no successor")
        if self._is_mask:
            if following >= self._state.size:
                raise WinMLError(E_BOUNDS, "", f"position {following} is outside the mask of {self._state.size}")
            journal.write(self._state[following : following + 1], 0)
        elif following >= np.iinfo(self._state.dtype).max:
            raise WinMLError(E_BOUNDS, "", f"a sequence of {following + 1} tokens cannot be counted in step_state")
        else:
            journal.write(self._state, following + 1)
        journal.write(self._position, following)
        journal.write(self._next, token)
        journal.write(self._observed, token)
        return self.kept


def logits_descriptor(vocabulary_size: int, is_float32: bool) -> Descriptor:
    """Return the input of the two choosing processors."""
    _check_limit("vocabulary_size", vocabulary_size)
    return TensorDataType.FLOAT32 if is_float32 else TensorDataType.FLOAT16, (1, vocabulary_size)


def largest(row: npt.NDArray[Any]) -> int:
    """Return the position of the largest value, the first of equal ones; NaN counts as minus infinity.

    The row is not copied or converted unless it has a NaN.
    """
    if row.dtype == np.float16:
        # NumPy compares halves a hundred times slower than integers. By their bits, positive halves are in order, and
        # negative ones, which are less than every positive one, in reverse order.
        bits = row.view(np.int16)
        position = int(bits.argmax())
        if 0 < bits[position] <= _HALF_INFINITY:
            return position
        if bits[position] < 0:
            position = int(bits.argmin())
            if bits[position] <= _NEGATIVE_HALF_INFINITY:
                return position
    position = int(row.argmax())  # NaN counts as the largest here
    if math.isnan(row[position]):
        position = int(np.where(np.isnan(row), -np.inf, row).argmax())
    return position


_HALF_INFINITY = 0x7C00
_NEGATIVE_HALF_INFINITY = 0xFC00 - 0x10000


def _flat(storage: Storage) -> npt.NDArray[Any]:
    """View all elements as one row."""
    return storage.data.view(NUMPY_NAMES[storage.data_type])


def _check_limit(name: str, value: int) -> None:
    if value > INT32_MAX:
        raise _wrong(f"{name} must be at most 2**31-1, not {value}")


def _check_one(storage: Storage, name: str, types: Sequence[TensorDataType]) -> None:
    if storage.data_type not in types or math.prod(storage.shape) != 1:
        names = " or ".join(data_type.name for data_type in types)
        raise _wrong(f"{name} must be one element of {names}, not {descriptor_text(storage.descriptor)}")


def _wrong(message: str) -> WinMLError:
    return WinMLError(E_INVALIDARG, "IWinMLRuntime.CreateProcessor", message)
