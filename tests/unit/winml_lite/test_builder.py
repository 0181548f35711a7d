"""The order in which stages run."""

from __future__ import annotations

from typing import Any

from fakes.rig import failing
from winml_lite.builder import run_order
from winml_lite.graph import Edge
from winml_lite.stage_core import StageCore


def stages(count: int) -> list[StageCore]:
    model: Any = None
    return [StageCore(model, None, f"stage {number}") for number in range(count)]


def test_independent_stages_keep_their_order() -> None:
    a, b, c = members = stages(3)
    assert run_order(members, []) == [a, b, c]


def test_a_stage_follows_those_that_feed_it() -> None:
    a, b, c, d = members = stages(4)
    assert run_order(members, [Edge(d, 0, b, 0), Edge(b, 0, a, 0)]) == [c, d, b, a]


def test_a_circle_names_its_stages() -> None:
    a, b, c = members = stages(3)
    with failing(0x80070057) as caught:
        run_order(members, [Edge(b, 0, c, 0), Edge(c, 0, b, 0), Edge(a, 0, b, 1)])
    assert "stage 1, stage 2" in str(caught.value)
