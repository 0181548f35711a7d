"""Ctrl-C at a chosen place of the project's own code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SHELTERED = ("_free", "_in_process", "receive", "_write_log", "<genexpr>")
_FOLDERS = tuple(str(ROOT / name) for name in ("genai", "winml_lite"))


class Strike:
    """Raises KeyboardInterrupt at place `number` (from 1) among those where the interpreter looks for signals.

    These are the entry of a function and the return of a native one. `places` counts them, and `where` is the one that
    was struck. Finalizers and callbacks of native code cannot let it through, nor can a generator that is being closed:
    there it waits. No collection of garbage comes in between, whose finalizers would be further places.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.places = 0
        self.where = ""

    def during(self, call: Callable[[], Any]) -> Any:
        """Return `call()`, or raise the KeyboardInterrupt out of it."""
        if self.where:
            return call()
        collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._note)
        try:
            return call()
        finally:
            sys.setprofile(None)
            if collects:
                gc.enable()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(_FOLDERS):
            return
        if event == "c_return" and argument.__name__ == "append" and type(argument.__self__) is list:
            return  # the interpreter does not look there
        self.places += 1
        if self.places < self._number or _is_sheltered(frame):
            return
        self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {event}"
        sys.setprofile(None)
        raise KeyboardInterrupt


def _is_sheltered(frame: FrameType | None) -> bool:
    """Whether an exception would not reach the caller of the code that is struck."""
    while frame is not None:
        if frame.f_code.co_name in _SHELTERED:
            return True
        frame = frame.f_back
    return False
