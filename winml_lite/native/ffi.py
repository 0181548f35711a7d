"""The ctypes machinery: find and load a library, declare its functions with typed stubs, view its memory.

A declaration is a stub: C types in the decorator, Python types in the signature, body `...`. The bound object is the
raw C function.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import MODULE_NOT_FOUND, WinMLError

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[Any, Any, Any], Any]


class Bind(Protocol):
    """Turns a typed stub into the C function it declares."""

    def __call__(self, stub: Callable[P, R], /) -> Callable[P, R]: ...


class Declare(Protocol):
    """Takes C types (result first, or slot first) and returns the decorator."""

    def __call__(self, *types: Any) -> Bind: ...


def exported(library: ctypes.CDLL) -> Declare:
    """Declare exported symbols: `@c(result, *arguments)`; the symbol is named after the stub."""

    def declare(*types: Any) -> Bind:
        def bind(stub: Callable[P, R], /) -> Callable[P, R]:
            function = getattr(library, stub.__name__)
            function.restype, function.argtypes = types[0], types[1:]
            return function  # type: ignore[no-any-return]

        return bind

    return declare


def slots(table: int, check: Check | None, result: Any = ctypes.c_void_p) -> Declare:
    """Declare entries of a C function table: `@c(slot, *arguments)`; `check` becomes `errcheck` of each."""
    pointers = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

    def declare(*types: Any) -> Bind:
        def bind(stub: Callable[P, R], /) -> Callable[P, R]:
            function = ctypes.CFUNCTYPE(result, *types[1:])(pointers[types[0]])
            if check is not None:
                function.errcheck = check
            return function

        return bind

    return declare


def load_library(candidates: Iterable[str], name: str, mend: str) -> tuple[ctypes.CDLL, str]:
    """Load the first candidate that exists and loads; return it with its path.

    Failure is 0x8007007E with every place tried, and `mend` says what to do.
    """
    tried: list[str] = []
    for path in candidates:
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} (no such file)")
            continue
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append(f"{path} ({error})")
    places = "; ".join(tried) or "no candidate"
    raise WinMLError(MODULE_NOT_FOUND, f"loading {name}", f"{mend} Tried: {places}")


class _Foreign:
    """Exports native memory to NumPy; the array's base keeps `owner` alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
        self.owner = owner


def view_memory(address: int, size: int, owner: object) -> npt.NDArray[np.uint8]:
    """View `size` bytes at `address` as a NumPy array that keeps `owner` alive. No copy."""
    if size == 0:
        return np.zeros(0, np.uint8)
    return np.asarray(_Foreign(address, size, owner))
