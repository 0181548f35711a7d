"""What a failing step of an engine means to the operation that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import CANCELLED

T = TypeVar("T")


def failure_text(error: WinMLError) -> str:
    """Return what failed, without the code, which a result has beside it."""
    return ": ".join(part for part in (error.context, error.native_message) if part)


def past_late_cancel(step: Callable[[], T], latch: CancellationLatch) -> T:
    """Return `step()`; done once more when a late cancel, meant for an operation before this one, has stopped it.

    `latch` is what cancels this operation.
    """
    try:
        return step()
    except WinMLError as error:
        if error.hresult != CANCELLED or latch.is_canceled:
            raise
    return step()
