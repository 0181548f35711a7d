"""What the benchmarks run on: SmolLM2 as GGUF and as converted ONNX folders, or the tiny models when only trying.

Also here: the sampling of several benchmarks, and our side of those that stream.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import genai
from genai import catalog, download
from genai.convert import CONVERTER_VERSION, convert_gguf
from models.recipes import random_gguf, random_onnx

from .measure import Plan, Step, endless

FOLDER = Path(__file__).resolve().parents[1] / ".check" / "benchmarks"
STORY = "Once upon a time, in a village by the sea, there lived an old fisherman who told stories to every child."
MODEL_NAME = "smollm2"
SAMPLING: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 1}


def gguf_file(quick: bool) -> Path:
    """SmolLM2 from the catalog (downloaded once), or the random tiny model."""
    if quick:
        return random_gguf(scratch("gguf"))
    return download.pull(catalog_entry(MODEL_NAME))


def catalog_entry(name: str) -> catalog.CatalogEntry:
    """What the catalog says of a model."""
    entry = catalog.find(name)
    if entry is None:
        raise RuntimeError(f"the catalog does not know {name}")
    return entry


def onnx_folder(operators: str, weights: str, quick: bool) -> Path:
    """The same model as an ONNX folder, converted once and kept."""
    if quick:
        return random_onnx(scratch(f"{operators}-{weights}"), operators, weights)
    folder = FOLDER / f"{MODEL_NAME}-{operators}-{weights}-v{CONVERTER_VERSION}"
    if not (folder / "model.onnx").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        convert_gguf(gguf_file(False), folder, operators=operators, weights=weights)  # type: ignore[arg-type]
    return folder


def new_tokens(plan: Plan) -> int:
    """Tokens of one stream: all steps of one side, so that a stream is rarely begun anew."""
    return min(plan.chunks * plan.steps + 8, plan.context_length - 128)


def stream_step(model: genai.LanguageModel, plan: Plan, **options: Any) -> Step:
    """Take the next piece of a stream."""
    step = endless(lambda: model.stream(STORY, max_new_tokens=new_tokens(plan), **options))
    step()
    return step


def scratch(name: str) -> Path:
    """A new temporary folder."""
    return Path(tempfile.mkdtemp(prefix=f"winml-lite-{name}-"))
