"""Damaged GGUF files given to llama.cpp: built and run, or an exception with the path; never a signal, a hang or a
giant allocation.

Run as a program, this file is the child process of its own test: `test_mutants_gguf_build.py FOLDER`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models import recipes
from models.gguf_models import gemma3_model, random_model
from models.gguf_writer import write_gguf
from winml_lite import Vocabulary, WinMLError
from winml_lite.files.gguf import GgufFile

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

MUTANTS_PER_MODEL = 100
COUNTS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 32, 33, 63, 64, 128, 255, 303, 411, 513, 65_535, 1 << 31, (1 << 32) - 1)
NUMBERS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))
TEXTS = ("", "llama", "gpt2", "t5", "bert", "rwkv", "plamo2", "none", "no-such-thing", "\0", "long" * 5000)
SECONDS_PER_MUTANT = 60
GIBIBYTES = 4
TEXT = "héllo wörld <|im_end|> 12 🦙\n\t x".encode()


def test_damaged_models(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    folders = (root, root / "tests")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("200 damaged files and 200 impossible models")


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, limit_memory, mutants

    originals = [_split(recipes.random_gguf(folder)), _split(recipes.gemma3_gguf(folder))]
    limit_memory(GIBIBYTES)
    path = folder / "mutant.gguf"
    damaged = altered = built = 0
    for seed, (header, weights) in enumerate(originals):
        for data in mutants(header, MUTANTS_PER_MODEL, seed):
            path.write_bytes(data + weights)
            with deadline(SECONDS_PER_MUTANT):
                built += _try(path)
            damaged += 1
    chance = random.Random(0)
    for metadata, tensors in (random_model(), gemma3_model()):
        for _ in range(MUTANTS_PER_MODEL):
            write_gguf(path, _alter(chance, metadata), tensors)
            with deadline(SECONDS_PER_MUTANT):
                built += _try(path)
            altered += 1
    print(f"{damaged} damaged files and {altered} impossible models, {built} of them could be built")


def _alter(chance: random.Random, original: dict[str, object]) -> dict[str, object]:
    """Metadata with one or two values that are well-formed and do not fit."""
    metadata = dict(original)
    for key in chance.sample(sorted(metadata), chance.choice((1, 1, 2))):
        value = metadata[key]
        if isinstance(value, bool):
            metadata[key] = not value
        elif isinstance(value, int):
            metadata[key] = chance.choice(COUNTS)
        elif isinstance(value, float):
            metadata[key] = chance.choice(NUMBERS)
        elif isinstance(value, str):
            metadata[key] = chance.choice(TEXTS)
        elif isinstance(value, np.ndarray):
            metadata[key] = np.roll(value, chance.randrange(9))
        elif isinstance(value, list):
            metadata[key] = value[: chance.randrange(len(value))]
    return metadata


def _try(path: Path) -> bool:
    """Build, run and tokenise; return whether it could be built."""
    built = _builds_and_runs(path)
    _tokenize(path)
    return built


def _split(path: Path) -> tuple[bytes, bytes]:
    """Header and weights: most of a file is weights, where damage is only another number."""
    data = path.read_bytes()
    with GgufFile(path) as file:
        start = min(tensor.offset for tensor in file.tensors.values())
    return data[:start], data[start:]


def _builds_and_runs(path: Path) -> bool:
    from fakes.llama_stages import build, feed

    try:
        stage = build(path)
    except WinMLError as error:
        assert str(path) in str(error), error
        return False
    try:
        for tokens in ([1, 2, 3, 4, 5], [6], [7, 8]):
            feed(stage, tokens)
        assert stage.sequence is not None
        stage.sequence.rewind(2)
    except WinMLError:
        pass  # such as a context of two tokens
    return True


def _tokenize(path: Path) -> None:
    try:
        vocabulary = Vocabulary.from_file(path)
        vocabulary.encode(TEXT, True)
        assert len(vocabulary.pieces()) == vocabulary.token_count
    except WinMLError as error:
        assert str(path) in str(error), error


if __name__ == "__main__":
    main(Path(sys.argv[1]))
