"""How much work a step over several positions is, in calls of the engine and copies."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.decoders import IDS, llama_decoder, onnx_decoder, random_onnx
from fakes.model_files import ModelFiles
from winml_lite import Runtime

pytestmark = pytest.mark.perf


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[object]:
    """A list that grows by one with each call of `owner.name`."""
    calls: list[object] = []
    real = getattr(owner, name)

    def counted(*arguments: object) -> object:
        calls.append(name)
        return real(*arguments)

    monkeypatch.setattr(owner, name, counted)
    return calls


@pytest.mark.parametrize(("width", "batches"), [(1, 1), (5, 1), (32, 1), (33, 2), (70, 3)])
def test_a_step_is_one_batch_for_32_tokens(
    runtime: Runtime, files: ModelFiles, llama: None, monkeypatch: pytest.MonkeyPatch, width: int, batches: int
) -> None:
    from winml_lite.native.llama.context import Context

    decoder = llama_decoder(runtime, files.gguf, 128)
    calls = count_calls(monkeypatch, Context, "decode")
    copies = count_calls(monkeypatch, Context, "copy_rows")
    decoder.step(*range(width))
    assert len(calls) == batches
    assert len(copies) == batches


def test_a_step_of_a_graph_is_one_run(
    runtime: Runtime, files: ModelFiles, ort: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from winml_lite.native.ort import api

    decoder = onnx_decoder(runtime, random_onnx(files, "gqa"), 64)
    decoder.step(*IDS[:2])
    calls = count_calls(monkeypatch, api, "Run")
    decoder.step(*IDS[2:6])
    assert len(calls) == 1


def test_keeping_a_part_of_a_step_moves_no_shared_state(
    runtime: Runtime, files: ModelFiles, ort: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from winml_lite.native.ort import state

    decoder = onnx_decoder(runtime, random_onnx(files, "gqa"), 64)
    cuts = count_calls(monkeypatch, state, "truncated")
    decoder.step(*IDS)
    decoder.stage.commit_accepted_prefix(3)
    assert cuts == []
