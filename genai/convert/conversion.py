"""GGUF to an ONNX model folder: the one function and its result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from .architecture import read_architecture
from .config_files import MODEL_FILE, write_model_config, write_tokenizer
from .decoder import build_decoder
from .graph import ExternalData, GraphBuilder
from .new_folder import new_folder
from .source import ModelSource, Progress
from .vocabulary import read_vocabulary

Operators = Literal["plain", "std", "gqa"]
Weights = Literal["f32", "f16", "q8"]


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """An ONNX model folder that was made from a GGUF."""

    folder: Path
    model_path: Path
    """The `.onnx` file inside."""
    architecture: str
    operators: str
    weights: str
    context_length: int
    """Most tokens of a sequence."""
    size_in_bytes: int
    """Of all files."""


def convert_gguf(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    operators: Operators = "gqa",
    weights: Weights = "q8",
    context_length: int | None = None,
    external_data: bool = True,
    all_logits: bool = False,
    progress: Progress | None = None,
) -> ConvertedModel:
    """Write the decoder in a GGUF file as an ONNX model folder.

    `operators`: `"gqa"` (ONNX Runtime's fused operators, fastest), `"std"` (standard operators of opset 23) or
    `"plain"` (primitives of opset 18). `weights`: `"q8"` (8-bit blocks), `"f16"` (float16 in the file, float32 in
    memory) or `"f32"`. `context_length` lowers the limit of the model; rotary tables grow with it.
    `external_data=False` puts the weights inside the `.onnx` file, up to 2 GB. `all_logits` gives logits for every
    token of the input instead of the last one only. `progress(done, total)` is called with bytes of tensor data.

    The folder must not exist or be empty (else FileExistsError); it appears complete under its name or not at all. For
    the first of several shards all are read. Raises `WinMLError`: NOT_SUPPORTED for an architecture, a key, a tensor
    or a tokenizer that is not known, named in the message; INVALID_DATA for a model that contradicts itself;
    FILE_CORRUPT and FILE_NOT_FOUND as `GgufFile` does. K-quants need the extra `kquants`.
    """
    for name, value, allowed in (("operators", operators, Operators), ("weights", weights, Weights)):
        if value not in get_args(allowed):
            raise ValueError(f"{name} must be one of {', '.join(get_args(allowed))}, not {value!r}")
    target = Path(folder)
    with ModelSource(source, progress) as model:
        architecture = read_architecture(model, context_length)
        vocabulary = read_vocabulary(model, architecture.vocabulary_size)
        model.check_types()
        with new_folder(target) as partial:
            write_tokenizer(partial, model, vocabulary, architecture.context_length)
            data = ExternalData(partial / f"{MODEL_FILE}.data") if external_data else None
            try:
                graph = GraphBuilder(data)
                dialect = build_decoder(graph, model, architecture, operators, weights, all_logits)
                graph.save(partial / MODEL_FILE, dialect.opset)
            finally:
                if data is not None:
                    data.close()
            write_model_config(partial, architecture, vocabulary, dialect)
            size = sum(file.stat().st_size for file in partial.iterdir())
    return ConvertedModel(
        folder=target,
        model_path=target / MODEL_FILE,
        architecture=architecture.name,
        operators=operators,
        weights=weights,
        context_length=architecture.context_length,
        size_in_bytes=size,
    )
