"""Processors written in Python: any function of NumPy arrays, as a stage (an extension).

Here: the declared ports, the arrays that a function gets, the check of what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .connections import is_compatible
from .errors import E_INVALIDARG, E_UNEXPECTED, WinMLError
from .factories import tensor_shape, tensor_type
from .processor_stage import Journal
from .storage import Storage, byte_size, check_descriptor, shape_text
from .values import FREE_DIMENSION, NUMPY_NAMES, Descriptor, TensorDataType

PortDeclaration = tuple[TensorDataType | int, Iterable[int | None]]
"""Element type and extents of a port; None or 2**64-1 is a free extent."""


class FunctionWork:
    """Calls a function of the caller."""

    kept: tuple[Storage, ...] = ()

    def __init__(
        self, function: Callable[..., Any], inputs: Iterable[PortDeclaration], outputs: Iterable[PortDeclaration]
    ) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.inputs = tuple(_descriptor(port) for port in inputs)
        self.outputs = tuple(_descriptor(port) for port in outputs)
        for data_type, shape in self.outputs:
            if data_type not in NUMPY_NAMES and FREE_DIMENSION in shape:
                raise ValueError(f"an output of {data_type.name} needs fixed extents: its bytes do not tell them")
        self._function = function

    def accepts(self, given: Descriptor, wanted: Descriptor) -> bool:
        return is_compatible(given, wanted)

    def check_input(self, index: int, storage: Storage, what: str) -> None:
        check_descriptor(storage, self.inputs[index], what)

    def perform(
        self, inputs: Sequence[Storage], places: Sequence[Storage | None], journal: Journal
    ) -> Sequence[Storage]:
        arguments = [_argument(storage) for storage in inputs]
        try:
            returned = self._function(*arguments)
        except WinMLError as error:
            error.is_final = True  # the function's own exception reaches the caller as it is
            raise
        arrays = [
            _checked(value, self.outputs[index], places[index], f"output {index}")
            for index, value in enumerate(self._values(returned))
        ]
        for index in range(1, len(arrays)):
            # A function may return its inputs, and the caller may have bound one tensor as input and as output.
            written = [place.data for place in places[:index] if place is not None]
            if any(np.may_share_memory(arrays[index], data) for data in written):
                arrays[index] = arrays[index].copy()
        return [
            _stored(array, wanted, place) for array, wanted, place in zip(arrays, self.outputs, places, strict=True)
        ]

    def _values(self, returned: object) -> Sequence[object]:
        """Return what was returned for each output."""
        values: Sequence[object]
        if isinstance(returned, tuple | list):
            values = returned
        else:
            values = () if returned is None else (returned,)
        if len(values) != len(self.outputs):
            raise WinMLError(
                E_UNEXPECTED, "", f"{self.name} returned {len(values)} arrays for {len(self.outputs)} outputs"
            )
        return values


def _descriptor(port: PortDeclaration) -> Descriptor:
    try:
        data_type, shape = port
        extents = tuple(FREE_DIMENSION if extent is None else extent for extent in shape)
    except TypeError:
        raise ValueError(f"a port is (element type, shape), not {port!r}") from None
    return tensor_type(data_type), tensor_shape(extents)


def _argument(storage: Storage) -> npt.NDArray[Any]:
    """View the memory read-only, as bytes where NumPy lacks the element type."""
    array = storage.array() if storage.data_type in NUMPY_NAMES else storage.data.view()
    array.flags.writeable = False
    return array


def _checked(value: object, wanted: Descriptor, place: Storage | None, port: str) -> npt.NDArray[Any]:
    """Return what a function has returned as an array that fits its output."""
    data_type, extents = wanted
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise WinMLError(E_UNEXPECTED, "", f"{port}: what was returned is no array: {error}") from None
    name = NUMPY_NAMES.get(data_type)
    if name is None:
        size = byte_size(data_type, extents)
        if array.dtype != np.uint8 or array.size != size:
            raise WinMLError(E_UNEXPECTED, "", f"{port}: expected {size} bytes as uint8, got {_text(array)}")
        return array.reshape(-1)
    shape = array.shape
    fits = len(shape) == len(extents) and all(w in (FREE_DIMENSION, h) for h, w in zip(shape, extents, strict=True))
    if array.dtype.name != name or not fits:
        raise WinMLError(E_UNEXPECTED, "", f"{port}: expected {name}{shape_text(extents)}, got {_text(array)}")
    if place is not None and place.shape != shape:
        raise WinMLError(E_INVALIDARG, "", f"{port}: {list(shape)} was produced, {list(place.shape)} is bound")
    return array


def _stored(array: npt.NDArray[Any], wanted: Descriptor, place: Storage | None) -> Storage:
    """Copy an array to where its output goes."""
    data_type, extents = wanted
    is_bytes = data_type not in NUMPY_NAMES
    if place is None:
        shape = extents if is_bytes else array.shape
        place = Storage(np.empty(byte_size(data_type, shape), np.uint8), data_type, shape)
    (place.data if is_bytes else place.array())[...] = array
    return place


def _text(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
