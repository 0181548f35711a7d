"""The busy rule: claims are exclusive, never wait, and give back only what they took."""

from __future__ import annotations

import pytest

from fakes.rig import failing
from winml_lite.gate import Gate


def test_a_second_claim_is_refused_at_once() -> None:
    gate, first, second = Gate(), object(), object()
    gate.enter(first, "IWinMLPipeline.Run")
    with failing(0x800700AA) as caught:
        gate.enter(second, "IWinMLStage.BindInput")
    assert "IWinMLStage.BindInput" in str(caught.value)


def test_a_refused_claim_gives_nothing_back() -> None:
    gate, first, second = Gate(), object(), object()
    gate.enter(first, "")
    with failing(0x800700AA):
        gate.enter(second, "")
    gate.leave(second)
    assert gate.is_held
    gate.leave(first)
    gate.leave(first)
    assert not gate.is_held


def test_the_same_thread_has_no_privilege() -> None:
    gate, outer = Gate(), object()
    gate.enter(outer, "")
    with failing(0x800700AA):
        gate.enter(object(), "")


def interrupted_between_enter_and_work(gate: Gate) -> None:
    claim = object()
    try:
        gate.enter(claim, "")
        raise KeyboardInterrupt
    finally:
        gate.leave(claim)


def test_an_interrupt_leaves_the_gate_free() -> None:
    gate = Gate()
    with pytest.raises(KeyboardInterrupt):
        interrupted_between_enter_and_work(gate)
    assert not gate.is_held
