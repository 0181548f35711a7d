"""Ownership: `Resource` owns one native object, `Closeable` is the base of every public object (runtime §1.2).

References go one way, from a child to what it needs: a pipeline needs its stages, a stage its model, a tensor its
storage. So closing a wrapper closes only that wrapper, and the native object goes when its last user does, in any
order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

Core = TypeVar("Core")


def _free(free: Callable[[int], object], pointer: int, needs: tuple[object, ...]) -> None:
    free(pointer)


class Resource:
    """Owns one native pointer and frees it once, when it is closed, collected, or at interpreter exit.

    `needs` holds whatever the native object uses later: other resources, buffers, names, callbacks. `free` must be a
    plain function, never a bound method of something that refers to the resource.
    """

    __slots__ = ("__weakref__", "_finalizer", "pointer")

    def __init__(self, pointer: int, free: Callable[[int], object], *needs: object) -> None:
        self.pointer = pointer
        self._finalizer = weakref.finalize(self, _free, free, pointer, needs)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a native object cannot be copied or pickled; copy a tensor with to_numpy()")

    def release(self) -> int:
        """Give the pointer away: ownership moved to native code."""
        self._finalizer.detach()
        return self.pointer

    def close(self) -> None:
        """Free now. Further calls do nothing."""
        self._finalizer()


class Closeable(Generic[Core]):
    """A public object around a core that several wrappers may share."""

    __slots__ = ("__weakref__", "_open")

    def __init__(self, core: Core) -> None:
        self._open: Core | None = core

    @property
    def _core(self) -> Core:
        core = self._open
        if core is None:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return core

    @property
    def underlying_object(self) -> Any:
        """The object behind this wrapper; opaque, only good for comparing."""
        return self._core

    @property
    def interface(self) -> Any:
        """The same as `underlying_object`."""
        return self._core

    def close(self) -> None:
        """Close this wrapper only; objects made from it go on working. Closing twice is fine."""
        self._open = None

    def __enter__(self) -> Self:
        self._core  # noqa: B018  (raises on a closed object)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
