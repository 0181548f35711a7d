"""ModelSource: progress inside a large tensor."""

from __future__ import annotations

from pathlib import Path

import pytest

from genai.convert import source
from genai.convert.source import ModelSource
from models.recipes import random_gguf


def test_progress_is_told_for_each_piece_and_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(source, "_CHUNK_BYTES", 1)  # one row at a time
    with ModelSource(random_gguf(tmp_path), lambda done, total: calls.append(done)) as model:
        name = "token_embd.weight"
        rows, width = model.shapes[name]
        size = 4 * rows * width
        assert len(list(model.row_chunks(name))) == rows
        assert (len(calls), calls[0], calls[-1]) == (rows, 4 * width, size)
        list(model.row_chunks(name))
        model.report(name)
        assert len(calls) == rows
        model.report("output_norm.weight")
        assert calls[-1] == size + 4 * width
