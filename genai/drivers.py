"""Which session drives a pipeline (genai §5.2): one at a time, whatever kind of session it is."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Final, Protocol

from winml_lite import Pipeline, WinMLError

from .codes import BUSY


class Driver(Protocol):
    """What stands behind a session."""

    @property
    def is_closed(self) -> bool:
        """Whether the session has given its pipelines back."""


# By the object behind the wrappers of a pipeline.
_drivers: Final[weakref.WeakKeyDictionary[Any, weakref.ref[Driver]]] = weakref.WeakKeyDictionary()


def check_undriven(pipelines: Iterable[Pipeline]) -> None:
    """Raise 0x800700AA when another session drives one of the pipelines."""
    for pipeline in pipelines:
        present = _drivers.get(pipeline.underlying_object)
        driver = present() if present is not None else None
        if driver is not None and not driver.is_closed:
            raise WinMLError(BUSY, "create_session", "another session drives this pipeline: close it first")


def drive(pipelines: Iterable[Pipeline], driver: Driver) -> None:
    """Note that `driver` has the pipelines, as long as it lives and is not closed."""
    for pipeline in pipelines:
        _drivers[pipeline.underlying_object] = weakref.ref(driver)
