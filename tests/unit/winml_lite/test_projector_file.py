"""Checks of projector files that come before libmtmd; nothing native is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.rig import failing
from models import projector_models, recipes
from models.gguf_writer import write_gguf
from winml_lite.native.llama import projector_file
from winml_lite.native.llama.projector_file import check_projector


class Rehearsal:
    """Stands in for the other process."""

    def __init__(self, outcome: int | Exception) -> None:
        self.outcome = outcome
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        self.commands.append(command)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return subprocess.CompletedProcess(command, self.outcome)


def rehearse(monkeypatch: pytest.MonkeyPatch, outcome: int | Exception) -> Rehearsal:
    rehearsal = Rehearsal(outcome)
    monkeypatch.setattr(subprocess, "run", rehearsal)
    monkeypatch.setattr(projector_file, "_passed", set())
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    return rehearsal


def altered(folder: Path, **changes: object) -> str:
    """A gemma3 projector with other values (`__` for a dot) or tensors (arrays)."""
    metadata, tensors = projector_models.gemma3_projector(64)
    named = {name.replace("__", "."): value for name, value in changes.items()}
    arrays = {name: value for name, value in named.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in named.items() if name not in arrays}
    return str(write_gguf(folder / "altered.gguf", {**metadata, **values}, {**tensors, **arrays}))


@pytest.mark.parametrize(
    "changes",
    [
        {"general__architecture": "llama"},
        {"clip__vision__attention__layer_norm_epsilon": float("nan")},
        {"clip__vision__attention__layer_norm_epsilon": -1.0},
        {"clip__vision__attention__layer_norm_epsilon": 3},
        {"clip__projector_type": "qwen2vl_merger", "clip__vision__block_count": 0},
        {"v__blk__0__ln1__weight": np.ones(16, np.float16)},
        {"v__position_embd__weight": np.ones((16, 16), np.float16)},
        {"mm__input_projection__bias": np.ones(64, np.float32)},  # the weight has 16 rows
    ],
)
def test_what_libmtmd_would_not_survive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, object]
) -> None:
    rehearsal = rehearse(monkeypatch, 0)
    path = altered(tmp_path, **changes)
    with failing(0x80070570) as caught:
        check_projector(path)
    assert path in str(caught.value)
    assert rehearsal.commands == []


def test_rows_that_depend_on_their_place_in_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rehearse(monkeypatch, 0)
    with failing(0x80070032):
        check_projector(altered(tmp_path, clip__projector_type="deepseek4v"))


def test_positions_that_are_looked_up_have_any_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rehearse(monkeypatch, 0)
    positions = np.ones((16, 16), np.float16)
    check_projector(altered(tmp_path, clip__projector_type="mlp", v__position_embd__weight=positions))


@pytest.mark.parametrize("outcome", [-6, -11, 3, 0xC0000005])
def test_a_file_that_ends_the_other_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: int) -> None:
    rehearsal = rehearse(monkeypatch, outcome)
    for _ in range(2):
        with failing(0x80070570):
            check_projector(str(recipes.projector_gguf(tmp_path)))
    assert len(rehearsal.commands) == 2


def test_a_file_that_hangs_the_other_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rehearse(monkeypatch, subprocess.TimeoutExpired("python", 60))
    with failing(0x80070570) as caught:
        check_projector(str(recipes.projector_gguf(tmp_path)))
    assert "60 seconds" in str(caught.value)


@pytest.mark.parametrize("outcome", [0, 1, PermissionError("no processes here")])
def test_a_file_that_passes_or_cannot_be_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: int | Exception
) -> None:
    rehearse(monkeypatch, outcome)
    check_projector(str(recipes.projector_gguf(tmp_path)))


def test_a_file_is_tried_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rehearsal = rehearse(monkeypatch, 0)
    path = recipes.projector_gguf(tmp_path)
    check_projector(str(path))
    check_projector(str(path))
    assert len(rehearsal.commands) == 1
    path.write_bytes(path.read_bytes() + b"\0")  # another file now
    check_projector(str(path))
    assert len(rehearsal.commands) == 2


@pytest.mark.parametrize("executable", ["", "/opt/app/program", None])
def test_a_program_that_is_no_python_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executable: str | None
) -> None:
    rehearsal = rehearse(monkeypatch, 0)
    monkeypatch.setattr(sys, "executable", executable)
    check_projector(str(recipes.projector_gguf(tmp_path)))
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    check_projector(str(recipes.projector_gguf(tmp_path)))
    assert rehearsal.commands == []
