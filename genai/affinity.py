"""The thread rule of sessions and streams (genai §0.4): only the thread that made an object may use it."""

from __future__ import annotations

import threading

from winml_lite import WinMLError

from .codes import WRONG_THREAD


class ThreadAffinity:
    """Remembers the creating thread itself, not its id: ids are used again by later threads."""

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = threading.local()
        self._local.is_here = True

    def check(self, what: str) -> None:
        """Raise 0x8001010E on any other thread; `what` names the object."""
        if not getattr(self._local, "is_here", False):
            raise WinMLError(WRONG_THREAD, what, "use this object only on the thread that created it")
