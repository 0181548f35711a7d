"""What the benchmarks run on: SmolLM2 as GGUF and as converted ONNX folders, or the tiny models when only trying."""

from __future__ import annotations

import tempfile
from pathlib import Path

from genai import catalog, download
from genai.convert import CONVERTER_VERSION, convert_gguf
from models.recipes import random_gguf, random_onnx

FOLDER = Path(__file__).resolve().parents[1] / ".check" / "benchmarks"
STORY = "Once upon a time, in a village by the sea, there lived an old fisherman who told stories to every child."
MODEL_NAME = "smollm2"


def gguf_file(quick: bool) -> Path:
    """SmolLM2 from the catalog (downloaded once), or the random tiny model."""
    if quick:
        return random_gguf(scratch("gguf"))
    entry = catalog.find(MODEL_NAME)
    if entry is None:
        raise RuntimeError(f"the catalog does not know {MODEL_NAME}")
    return download.pull(entry)


def onnx_folder(operators: str, weights: str, quick: bool) -> Path:
    """The same model as an ONNX folder, converted once and kept."""
    if quick:
        return random_onnx(scratch(f"{operators}-{weights}"), operators, weights)
    folder = FOLDER / f"{MODEL_NAME}-{operators}-{weights}-v{CONVERTER_VERSION}"
    if not (folder / "model.onnx").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        convert_gguf(gguf_file(False), folder, operators=operators, weights=weights)  # type: ignore[arg-type]
    return folder


def scratch(name: str) -> Path:
    """A new temporary folder."""
    return Path(tempfile.mkdtemp(prefix=f"winml-lite-{name}-"))
