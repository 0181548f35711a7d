"""Damaged GGUF files: an exception with the path at load, or a valid header; never a signal, a hang or a giant
allocation.

Run as a program, this file is the child process of its own test: `test_mutants_gguf.py FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from models import recipes
from winml_lite.errors import WinMLError
from winml_lite.files.gguf import GgufFile, read_gguf

MUTANTS_PER_MODEL = 50
SECONDS_PER_MUTANT = 60
TENSORS_TO_DECODE = 3


def test_damaged_headers(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "200 mutants\n"


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, limit_memory, mutants

    count = 0
    path = folder / "mutant.gguf"
    originals = [_split(recipes.random_gguf(folder))]
    originals += [_split(recipes.vocabulary_gguf(folder, kind)) for kind in ("smollm", "spm", "qwen2")]
    limit_memory(1)
    for seed, (original, rest) in enumerate(originals):
        for data in mutants(original, MUTANTS_PER_MODEL, seed):
            path.write_bytes(data + rest)
            with deadline(SECONDS_PER_MUTANT):
                _try(path)
            count += 1
    print(f"{count} mutants")


def _split(path: Path) -> tuple[bytes, bytes]:
    """Header and weights: most of a file is weights, where no damage can be seen."""
    data = path.read_bytes()
    with GgufFile(path) as file:
        start = min((tensor.offset for tensor in file.tensors.values()), default=len(data))
    return data[:start], data[start:]


def _try(path: Path) -> None:
    """Load, and read all metadata and some tensors; a refusal must name the file."""
    try:
        file = read_gguf(str(path)).file
    except WinMLError as error:
        assert str(path) in str(error), error
        return
    with file:
        assert all(file.metadata[key] is not None for key in file.metadata)
        for name in list(file.tensors)[:TENSORS_TO_DECODE]:
            assert file.raw(name).nbytes == file.tensors[name].byte_size


if __name__ == "__main__":
    main(Path(sys.argv[1]))
