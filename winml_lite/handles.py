"""Ownership: `Resource` owns one native object, `Closeable` is the base of every public object (runtime §1.2).

References go one way, from a child to what it needs: a pipeline needs its stages, a stage its model, a tensor its
storage. So closing a wrapper closes only that wrapper, and the native object goes when its last user does, in any
order.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self, TypeVar

from .interrupts import strike_again

Core = TypeVar("Core")

_forks: Final = [0]
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def free_in_child(lock: Any) -> None:
    """Make a lock of a module free in a forked child: the thread that held it does not exist there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)


def _in_process(forks: int, work: Callable[..., object], *arguments: object) -> None:
    if forks == _forks[0]:
        work(*arguments)


def finalizer(owner: object, work: Callable[..., object], *arguments: object) -> weakref.finalize[..., object]:
    """Call `work(*arguments)` when `owner` goes, at interpreter exit at the latest.

    A forked child has copies of owner and finalizer: there it does nothing, for what is outside the memory of the
    process, and the threads, belong to the parent.
    """
    return weakref.finalize(owner, _in_process, _forks[0], work, *arguments)


def _free(forks: int, free: Callable[[int], object], pointer: int, needs: tuple[object, ...]) -> None:
    try:
        if forks == _forks[0]:
            free(pointer)
    except KeyboardInterrupt:  # Python would only print it, for a finalizer has no caller
        strike_again()


class Resource:
    """Owns one native pointer and frees it once, when it is closed, collected, or at interpreter exit.

    A child made by a fork inherits a copy, which frees nothing: the engine's threads are not there to help.

    `needs` holds whatever the native object uses later: other resources, buffers, names, callbacks. `free` must be a
    plain function, never a bound method of something that refers to the resource.
    """

    __slots__ = ("__weakref__", "_finalizer", "pointer")

    def __init__(self, pointer: int, free: Callable[[int], object], *needs: object) -> None:
        self.pointer = pointer
        self._finalizer = weakref.finalize(self, _free, _forks[0], free, pointer, needs)

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
        if isinstance(core, (str, int, list)):
            raise TypeError(
                f"{type(self).__name__} objects come from a Runtime, as in Runtime().load_model(path), "
                "not from calling their class"
            )
        self._open: Core | None = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self._open is None else ''}>"

    def __copy__(self) -> Self:
        """Another wrapper around the same object, to be closed on its own."""
        twin = object.__new__(type(self))
        for kind in type(self).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if name != "__weakref__":
                    setattr(twin, name, getattr(self, name))
        return twin

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or deeply copied; make another one")

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
