"""Checks of a LoRA adapter that llama.cpp itself answers by ending the process, or by computing nonsense.

The reader in `files/` has proved that every tensor lies inside the file; that names and outer extents fit the model is
left to the engine, which reports it. Not here: models (`guard.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NoReturn

from ...errors import FILE_CORRUPT, NOT_SUPPORTED, WinMLError
from ...files.gguf import GgufFile
from ...files.gguf_header import GgufTensor

_BUILD = "IWinMLPipelineBuilder.Build"
_TYPES = ("F32", "F16", "BF16", "Q8_0")
_TEXTS = ("general.type", "general.architecture", "adapter.type")
_ALPHA = "adapter.lora.alpha"
_INVOCATION = "adapter.alora.invocation_tokens"
_EMBEDDING = "token_embd.weight"


def check_adapter(file: GgufFile, model_tensors: Mapping[str, GgufTensor]) -> None:
    """Refuse an adapter that the engine must not see: 0x80070570, or 0x80070032 for one that is applied in parts.

    `model_tensors` are those of the model, as far as they are known.
    """
    for key in _TEXTS:
        if not isinstance(file.metadata.get(key), str):
            _refuse(file, f"{key} is missing or no text; is it an adapter, as convert_lora_to_gguf.py writes it?")
    if file.metadata["general.type"] != "adapter":
        _refuse(file, f"it is a {file.metadata['general.type']!r}, not an adapter")
    alpha = file.metadata.get(_ALPHA, 0.0)
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        _refuse(file, f"{_ALPHA} is {alpha!r}, not a finite number")
    if _INVOCATION in file.metadata:
        text = f"{file.path} is an activated LoRA, which works from certain tokens on; only plain ones are applied"
        raise WinMLError(NOT_SUPPORTED, _BUILD, text)
    names = [name.removesuffix(".lora_a") for name in file.tensors if name.endswith(".lora_a")]
    if not names:
        _refuse(file, "it has no tensors of an adapter")
    for name in names:
        second = file.tensors.get(f"{name}.lora_b")
        if second is not None:  # a missing one is reported by the engine
            _check_pair(file, name, file.tensors[f"{name}.lora_a"], second, model_tensors.get(name))


def _check_pair(file: GgufFile, name: str, a: GgufTensor, b: GgufTensor, adapted: GgufTensor | None) -> None:
    for tensor in (a, b):
        if tensor.type_name not in _TYPES:
            _refuse(file, f"{tensor.name} is {tensor.type_name}, not one of {', '.join(_TYPES)}")
        if len(tensor.shape) < 2 or 0 in tensor.shape:
            _refuse(file, f"{tensor.name} has the shape {tensor.shape}, which is no matrix")
    rank = a.shape[-1] if name.endswith(_EMBEDDING) else a.shape[-2]
    stacked = a.shape[:-2]
    if b.shape[-1] != rank or b.shape[:-2] != stacked or (adapted is not None and adapted.shape[:-2] != stacked):
        _refuse(file, f"the shapes of {name} do not go together: {a.shape} and {b.shape}")


def _refuse(file: GgufFile, problem: str) -> NoReturn:
    raise WinMLError(FILE_CORRUPT, _BUILD, f"{file.path}: {problem}")
