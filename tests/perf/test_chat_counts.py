"""What a chat costs beside the generation: functions per token, early and late in an answer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fakes.tool_model import tool_model

CHAT = ("chat_turn", "turn_stream", "output_parser", "output_reader", "output_event", "text_source", "stopping")


def calls_of(call: Callable[[], object]) -> Counter[str]:
    """Functions of the chat that a call enters, by their files."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = Path(frame.f_code.co_filename).stem
        if event == "call" and name in CHAT:
            seen[name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_a_token_of_a_long_answer_costs_what_an_early_one_does(tmp_path: Path) -> None:
    with tool_model(tmp_path, ["abcdefghij" * 200]) as fake:
        stream = fake.model.chat().stream("?", max_new_tokens=2000)
        for _ in range(10):
            next(stream)
        early = calls_of(lambda: next(stream))
        for _ in range(1900):
            next(stream)
        late = calls_of(lambda: next(stream))
        stream.close()
    assert late == early
    assert sum(early.values()) <= 24, early
