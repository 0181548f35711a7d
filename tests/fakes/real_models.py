"""The real model of the tests: SmolLM2 from the catalog, fetched into the user's own cache and converted there once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genai import catalog, download
from genai.convert import convert_gguf
from winml_lite import WinMLError


def smollm2_gguf() -> Path:
    """Return the GGUF; skip the test where it is neither cached nor to be had."""
    entry = catalog.find("smollm2")
    assert entry is not None
    try:
        return download.pull(entry)
    except (WinMLError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"SmolLM2 is not to be had: {error}")


def smollm2_onnx(operators: str, weights: str) -> Path:
    """Return SmolLM2 as an ONNX model folder."""
    folder = download.converted_folder(smollm2_gguf(), f"test-{operators}-{weights}")
    with download.locked(folder):
        if not (folder / "genai_config.json").is_file():
            convert_gguf(smollm2_gguf(), folder, operators=operators, weights=weights)  # type: ignore[arg-type]
    return folder
