"""Damaged states given to both engines: refused with the path, or loaded and run as if nothing had been; never a
signal.

Run as a program, this file is the child process of its own test: `test_mutants_state.py FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models import recipes
from winml_lite import Runtime, WinMLError

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama", "ort")]

DAMAGED = 150
SECONDS_PER_MUTANT = 60


def test_damaged_states(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "600 damaged states, 0 of them loaded\n"


def main(folder: Path) -> None:
    from fakes.decoders import IDS, llama_decoder, onnx_decoder
    from fakes.mutate_files import deadline, mutants

    path = folder / "sequence.state"
    count = loaded = 0
    with Runtime() as runtime:
        for decoder in (
            llama_decoder(runtime, str(recipes.random_gguf(folder)), 32),
            llama_decoder(runtime, str(recipes.hybrid_gguf(folder)), 32),
            onnx_decoder(runtime, str(recipes.random_onnx(folder, "plain") / "model.onnx"), 32),
            onnx_decoder(runtime, str(recipes.random_onnx(folder, "gqa") / "model.onnx"), 32),
        ):
            decoder.run(*IDS)
            decoder.stage.save_sequence_state(path)
            for data in mutants(path.read_bytes(), DAMAGED, count):
                path.write_bytes(data)
                with deadline(SECONDS_PER_MUTANT):
                    try:
                        decoder.stage.load_sequence_state(path)
                        loaded += 1
                    except WinMLError as error:
                        assert str(path) in str(error), error
                    assert decoder.stage.sequence_position == len(IDS)
                count += 1
            decoder.run(IDS[0])
    print(f"{count} damaged states, {loaded} of them loaded")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
