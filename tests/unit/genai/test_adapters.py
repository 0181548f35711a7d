"""How LoRA adapters are given: files, and pairs of a file and a scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genai.adapters import adapter_pairs


def test_files_have_scale_1_and_pairs_their_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one.gguf", tmp_path / "two.gguf"
    assert adapter_pairs([one, (str(two), 0.5)]) == ((str(one), 1.0), (str(two), 0.5))


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert adapter_pairs(["a.gguf"]) == ((str(tmp_path / "a.gguf"), 1.0),)


@pytest.mark.parametrize("given", ["a.gguf", Path("a.gguf"), [5], [("a.gguf",)], [("a.gguf", "1")], [b"a.gguf"]])
def test_what_is_no_list_of_adapters(given: Any) -> None:
    with pytest.raises(TypeError, match="adapter"):
        adapter_pairs(given)


@pytest.mark.parametrize("given", [[""], [("a.gguf", float("nan"))]])
def test_values_that_cannot_be(given: Any) -> None:
    with pytest.raises(ValueError, match="adapter"):
        adapter_pairs(given)
