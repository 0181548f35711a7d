"""Damaged LoRA adapters given to llama.cpp: a stage that runs, or an exception with the path; never a signal.

Run as a program, this file is the child process of its own test: `test_mutants_adapter.py FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from models import lora_adapters, recipes
from models.gguf_writer import Stored, Tensors, write_gguf
from winml_lite import Runtime, WinMLError
from winml_lite.files.gguf import GgufFile

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

DAMAGED = 60
SECONDS_PER_MUTANT = 60
ALTERED: tuple[dict[str, object], ...] = (
    {"general.type": 1},
    {"general.type": "model"},
    {"general.architecture": 7},
    {"general.architecture": "gemma3"},
    {"adapter.type": np.zeros(2, np.int32)},
    {"adapter.type": "control_vector"},
    {"adapter.lora.alpha": 8},
    {"adapter.lora.alpha": np.float64(8)},
    {"adapter.lora.alpha": float("nan")},
    {"adapter.lora.alpha": "much"},
    {"adapter.alora.invocation_tokens": np.array([1], np.uint32)},
)
"""Values that libllama asserts, or refuses, or that we refuse."""


def test_damaged_adapters(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("85 damaged adapters, ")


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, mutants

    path = folder / "mutant.gguf"
    header, weights = _split(recipes.adapter_gguf(folder))
    files = [damaged + weights for damaged in mutants(header, DAMAGED, 3)]
    files += [write_gguf(path, *model).read_bytes() for model in _impossible()]
    works = 0
    for data in files:
        path.write_bytes(data)
        with deadline(SECONDS_PER_MUTANT):
            works += _works(recipes.random_gguf(folder), path)
    print(f"{len(files)} damaged adapters, {works} of them work")


def _impossible() -> Iterator[tuple[dict[str, object], Tensors]]:
    """Well-formed adapters with a value or a tensor that does not fit."""
    metadata, tensors = lora_adapters.adapter_model()
    for values in ALTERED:
        yield {**metadata, **values}, tensors
    for key in ("general.type", "general.architecture", "adapter.type"):
        yield {name: value for name, value in metadata.items() if name != key}, tensors
    name = lora_adapters.ADAPTED[0]
    a, b = f"{name}.lora_a", f"{name}.lora_b"
    yield metadata, {}
    yield metadata, {key: tensor for key, tensor in tensors.items() if key != b}
    yield metadata, {**tensors, a: np.zeros((4, 64), np.float32)}
    yield metadata, {**tensors, a: np.zeros((2, 3, 64), np.float32), b: np.zeros((2, 64, 3), np.float32)}
    yield metadata, {**tensors, a: np.zeros(64, np.float32)}
    yield metadata, {**tensors, a: Stored(24, (3, 64), bytes(192))}
    yield metadata, {**tensors, "no.such.weight.lora_a": tensors[a], "no.such.weight.lora_b": tensors[b]}
    yield metadata, {**tensors, "blk.0.attn_q.bias": np.zeros(64, np.float32)}
    embedding = np.zeros((303, 4), np.float32)
    yield metadata, {**tensors, "token_embd.weight.lora_a": embedding, "token_embd.weight.lora_b": tensors[b]}
    zeros = np.zeros((64, 4), np.float32)
    yield metadata, {**tensors, "token_embd.weight.lora_a": embedding, "token_embd.weight.lora_b": zeros}
    norm = np.ones((1, 64), np.float32)
    yield metadata, {**tensors, "output_norm.weight.lora_a": norm, "output_norm.weight.lora_b": np.ones((1, 1), "f4")}


def _split(path: Path) -> tuple[bytes, bytes]:
    """Header and weights: most of a file is weights, where damage is only another number."""
    data = path.read_bytes()
    with GgufFile(path) as file:
        start = min(tensor.offset for tensor in file.tensors.values())
    return data[:start], data[start:]


def _works(model: Path, path: Path) -> bool:
    """Build a stage with the adapter and run it; return whether that went well."""
    try:
        with Runtime() as runtime:
            builder = runtime.create_pipeline_builder()
            stage = builder.add_model_stage(runtime.load_model(model), runtime.create_cpu_target())
            stage.llama_options().adapters = ((str(path), 1.0),)
            stage.llama_options().thread_count = 1
            stage.bind_input(0, runtime.tensor_from_tokens([1, 2, 3]))
            builder.build().run()
    except WinMLError as error:
        assert str(path) in str(error), error
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
