"""Which Python functions of the object model a run enters."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from winml_lite import Pipeline


def calls_of(pipeline: Pipeline) -> Counter[str]:
    """Python functions that one run enters, without those of the engine."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "/winml_lite/" in frame.f_code.co_filename.replace("\\", "/"):
            seen[frame.f_code.co_name] += 1

    pipeline.run()
    sys.setprofile(note)
    try:
        pipeline.run()
    finally:
        sys.setprofile(None)
    del seen["<listcomp>"]  # a function only before Python 3.12
    return seen
