"""Damaged encoders given to llama.cpp: rows, or an exception with the path; never a signal, a hang or a giant
allocation.

Run as a program, this file is the child process of its own test: `test_mutants_encoder.py FOLDER`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models import encoder_models, recipes
from models.gguf_writer import write_gguf
from winml_lite import Runtime, WinMLError
from winml_lite.files.gguf import GgufFile

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

MUTANTS = 60
COUNTS = (0, 1, 2, 3, 5, 8, 16, 33, 64, 128, 1000, 65_535, 1 << 31, (1 << 32) - 1)
NUMBERS = (0.0, -1.0, 1e30, float("inf"), float("nan"))
SECONDS_PER_MUTANT = 60
GIBIBYTES = 4
TEXTS = ([2, 4, 5, 3], [6], list(range(60)))


def test_damaged_encoders(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("120 damaged encoders, ")


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, limit_memory, mutants

    path = folder / "mutant.gguf"
    header, weights = _split(recipes.encoder_gguf(folder))
    metadata, tensors = encoder_models.encoder_model()
    limit_memory(GIBIBYTES)
    count = works = 0
    for data in mutants(header, MUTANTS, 5):
        path.write_bytes(data + weights)
        with deadline(SECONDS_PER_MUTANT):
            works += _works(path)
        count += 1
    chance = random.Random(0)
    for _ in range(MUTANTS):
        write_gguf(path, _alter(chance, metadata), tensors)
        with deadline(SECONDS_PER_MUTANT):
            works += _works(path)
        count += 1
    print(f"{count} damaged encoders, {works} of them work")


def _alter(chance: random.Random, original: dict[str, object]) -> dict[str, object]:
    """Metadata with one or two values that are well-formed and do not fit."""
    metadata = dict(original)
    for key in chance.sample(sorted(metadata), chance.choice((1, 2))):
        value = metadata[key]
        if isinstance(value, bool):
            metadata[key] = not value
        elif isinstance(value, float):
            metadata[key] = chance.choice(NUMBERS)
        elif isinstance(value, int):
            metadata[key] = chance.choice(COUNTS)
        elif isinstance(value, np.uint32):
            metadata[key] = np.uint32(chance.choice(COUNTS))
        elif isinstance(value, np.ndarray):
            metadata[key] = np.roll(value, chance.randrange(9))
        elif isinstance(value, list):
            metadata[key] = value[: chance.randrange(len(value))]
    return metadata


def _split(path: Path) -> tuple[bytes, bytes]:
    """Header and weights: most of a file is weights, where damage is only another number."""
    data = path.read_bytes()
    with GgufFile(path) as file:
        start = min(tensor.offset for tensor in file.tensors.values())
    return data[:start], data[start:]


def _works(path: Path) -> bool:
    """Build a stage and embed some texts; return whether it could be built."""
    with Runtime() as runtime:
        try:
            builder = runtime.create_pipeline_builder()
            stage = builder.add_model_stage(runtime.load_model(path), runtime.create_cpu_target())
            stage.llama_options().embeddings = True
            stage.llama_options().thread_count = 1
            stage.request_output(0)
            pipeline = builder.build()
        except WinMLError as error:
            assert str(path) in str(error), error
            return False
        for text in TEXTS:
            stage.bind_input(0, runtime.tensor_from_tokens(text))
            stage.bind_input(1, runtime.tensor_from_tokens([len(text)]))
            try:
                pipeline.run()
            except WinMLError:
                pass  # such as a vocabulary that is too small for the text
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
