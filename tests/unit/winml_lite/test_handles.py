"""Ownership: resources are freed once, wrappers close only themselves."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

from winml_lite import handles
from winml_lite.handles import Closeable, Resource, finalizer


class Buffer:
    """Something that native code would use."""


def test_a_resource_is_freed_once() -> None:
    freed: list[int] = []
    resource = Resource(7, freed.append)
    resource.close()
    resource.close()
    del resource
    assert freed == [7]


def test_a_resource_is_freed_when_its_last_user_goes() -> None:
    freed: list[int] = []
    gc.disable()
    try:
        resource = Resource(7, freed.append)
        user = [resource]
        del resource
        assert freed == []
        user.clear()
        assert freed == [7]
    finally:
        gc.enable()


def test_a_released_resource_is_not_freed() -> None:
    freed: list[int] = []
    resource = Resource(7, freed.append)
    assert resource.release() == 7
    resource.close()
    del resource
    assert freed == []


def test_what_a_resource_needs_lives_as_long() -> None:
    buffer = Buffer()
    seen = weakref.ref(buffer)
    resource = Resource(7, lambda pointer: None, buffer)
    del buffer
    assert seen() is not None
    resource.close()
    assert seen() is None


def test_a_wrapper_closes_only_itself() -> None:
    core = object()
    first, second = Closeable(core), Closeable(core)
    first.close()
    first.close()
    assert second.underlying_object is core
    assert second.interface is core
    with pytest.raises(RuntimeError, match="Closeable is closed"):
        _ = first.underlying_object


def test_a_wrapper_is_a_context_manager_that_swallows_nothing() -> None:
    wrapper = Closeable(object())
    with pytest.raises(ZeroDivisionError), wrapper as entered:
        assert entered is wrapper
        raise ZeroDivisionError
    with pytest.raises(RuntimeError), wrapper:
        pass


def test_a_native_object_is_not_copied() -> None:
    resource = Resource(1, lambda pointer: None)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            attempt(resource)


def test_a_finalizer_works_when_its_owner_goes() -> None:
    seen: list[int] = []
    owner = Buffer()
    finalizer(owner, seen.append, 3)
    del owner
    assert seen == [3]


def test_a_forked_child_frees_nothing_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    inherited, owner = Resource(7, freed.append), Buffer()
    finalizer(owner, freed.append, 8)
    monkeypatch.setattr(handles, "_forks", [handles._forks[0] + 1])
    own = Resource(9, freed.append)
    inherited.close()
    own.close()
    del owner
    assert freed == [9]


def test_a_wrapper_says_whether_it_is_closed() -> None:
    wrapper = Closeable(object())
    assert repr(wrapper) == "<Closeable>"
    wrapper.close()
    assert repr(wrapper) == "<Closeable (closed)>"
