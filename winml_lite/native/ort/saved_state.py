"""The state pairs of an ONNX stage as a file: the part in use of each pair, one after the other.

Growing pairs are written whole, for they are as long as the sequence; of shared buffers, which are as long as the
capacity, only the positions in use. Memory is written and read as it lies; nothing is copied in between. The layout is
this package's own, so it depends on no version of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import getsize
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import E_INVALIDARG, FILE_CORRUPT, WinMLError
from ...storage import Storage, allocate, byte_size
from .pairs import StatePair
from .values import has_whole_bytes, view_of

if TYPE_CHECKING:
    from .state import ManagedState, Value

_LOAD = "IWinMLStage.LoadSequenceState"
_PIECE = 1 << 24
"""Bytes that are read at a time."""


class OrtSavedState:
    """Implements `SavedState`: a view of the state of one stage."""

    __slots__ = ("_state",)

    def __init__(self, state: ManagedState) -> None:
        self._state = state

    @property
    def layout(self) -> dict[str, object]:
        return {
            "engine": "ONNX Runtime",
            "pairs": [
                [pair.name, pair.data_type.name, [d if isinstance(d, int) else 0 for d in pair.dimensions], pair.axis]
                for pair in self._state.pairs
            ],
        }

    def write(self, path: str) -> object:
        state = self._state
        shapes = []
        with open(path, "wb") as file:
            for pair, value, is_shared in state.present():
                storage = _storage(value)
                length = state.position if is_shared else storage.shape[pair.axis]
                shapes.append([*storage.shape[: pair.axis], length, *storage.shape[pair.axis + 1 :]])
                for piece in _pieces(storage, pair.axis, length):
                    file.write(piece)
        return {"shapes": shapes, "extents": state.extents}

    def read(self, path: str, position: int, told: object) -> None:
        state = self._state
        shapes, extents = _checked(told, state.pairs, position)
        if state.capacity and position > state.capacity:
            raise WinMLError(E_INVALIDARG, _LOAD, f"{position} positions do not fit into {state.capacity}")
        sizes = (byte_size(pair.data_type, shape) for pair, shape in zip(state.pairs, shapes, strict=True))
        if sum(sizes) > getsize(path):
            raise WinMLError(FILE_CORRUPT, _LOAD, f"{path} is smaller than the state it describes")
        values: list[Value] = []
        with open(path, "rb") as file:
            for (pair, _, is_shared), shape in zip(state.present(), shapes, strict=True):
                length = shape[pair.axis]
                whole = state.capacity if is_shared else length
                storage = allocate(pair.data_type, (*shape[: pair.axis], whole, *shape[pair.axis + 1 :]))
                for piece in _pieces(storage, pair.axis, length):
                    _fill(file, piece, path)
                values.append(storage)
        state.replace(values, position, extents)


def _storage(value: Value) -> Storage:
    return view_of(value) if isinstance(value, int) else value


def _pieces(storage: Storage, axis: int, length: int) -> Iterator[memoryview]:
    """The bytes of the first `length` positions, as views in the order in which they lie."""
    if length == storage.shape[axis] or not has_whole_bytes(storage.data_type):
        if storage.data.size:
            yield storage.data.data
        return
    inner = byte_size(storage.data_type, storage.shape[axis + 1 :])
    rows = storage.data.reshape(-1, storage.shape[axis] * inner)
    for row in rows:
        yield row[: length * inner].data


def _fill(file: BinaryIO, view: memoryview, path: str) -> None:
    while view:
        count = file.readinto(view[:_PIECE])  # type: ignore[attr-defined]
        if not count:
            raise WinMLError(FILE_CORRUPT, _LOAD, f"{path} ends inside the state")
        view = view[count:]


def _checked(told: object, pairs: tuple[StatePair, ...], position: int) -> tuple[list[tuple[int, ...]], dict[str, int]]:
    """Check what `write` returned against the pairs: shapes of the pairs, and extents by symbol."""
    found: Any = told if isinstance(told, dict) else {}
    shapes, extents = found.get("shapes"), found.get("extents")
    fits = isinstance(shapes, list) and isinstance(extents, dict) and len(shapes) == len(pairs)
    fits = fits and all(_is_extent(extent) for extent in extents.values())
    if not fits or not all(_fits(shape, pair, position) for shape, pair in zip(shapes, pairs, strict=True)):
        raise WinMLError(FILE_CORRUPT, _LOAD, "the file describes a state that does not fit the stage")
    return [tuple(shape) for shape in shapes], {str(symbol): extent for symbol, extent in extents.items()}


def _fits(shape: object, pair: StatePair, position: int) -> bool:
    if not isinstance(shape, list) or len(shape) != len(pair.dimensions) or not all(map(_is_extent, shape)):
        return False
    length = pair.fixed_extent if pair.fixed_extent is not None else position
    fixed = (d if isinstance(d, int) else None for d in pair.dimensions)
    return shape[pair.axis] == length and all(
        have == want for have, want in zip(shape, fixed, strict=True) if want is not None
    )


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0x7FFFFFFF
