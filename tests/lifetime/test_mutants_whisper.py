"""Damaged CTranslate2 Whisper folders: converted, or an exception that names the file; never a signal, a hang, a giant
allocation, or a folder that is left behind.

Run as a program, this file is the child process of its own test: `test_mutants_whisper.py FOLDER`.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from genai.convert import convert_whisper
from models.whisper_weights import SHAPE, ct2_whisper, model_bytes, whisper_model
from winml_lite import WinMLError

SMALL = replace(SHAPE, mel_count=2, width=4, hidden=4, encoder_layers=1, decoder_layers=1, encoder_heads=1)
MUTANTS = 250
SETTINGS_MUTANTS = 60
SECONDS_PER_MUTANT = 60
GIBIBYTES = 4
COUNTS = (0, 1, 2, 3, 255, 1500, 65_535, 1 << 31, (1 << 32) - 1)


def test_damaged_folders(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{MUTANTS + 2 * SETTINGS_MUTANTS} damaged folders, ")


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, limit_memory, mutants

    source = ct2_whisper(folder / "source", shape=SMALL)
    limit_memory(GIBIBYTES)
    works = count = 0
    for name in ("model.bin", "tokenizer.json", "config.json"):
        original = (source / name).read_bytes()
        damaged = list(_models()) if name == "model.bin" else mutants(original, SETTINGS_MUTANTS, 7)
        for data in damaged:
            (source / name).write_bytes(data)
            with deadline(SECONDS_PER_MUTANT):
                works += _works(source, folder / "made")
            count += 1
        (source / name).write_bytes(original)
    print(f"{count} damaged folders, {works} of them work")


def _models() -> Iterator[bytes]:
    """Model files in which a count, an extent, a name or a type is another one: most bytes are weights, which do not
    matter."""
    from fakes.mutate_files import mutants

    chance = random.Random(9)
    stored, aliases = whisper_model(SMALL)
    data = model_bytes(stored, aliases)
    names = [data.find(name.encode() + b"\0") for name in stored]
    for _ in range(MUTANTS // 2):
        changed = bytearray(data)
        place = chance.choice(names)
        start = data.index(b"\0", place) + 1
        field = chance.choice((start + 1, start + 5, start + 2, start))
        changed[field : field + 4] = struct.pack("<I", chance.choice(COUNTS))
        yield bytes(changed)
    head, tail = data[:4096], data[4096:]
    for damaged in mutants(head, MUTANTS - MUTANTS // 2, 11):
        yield damaged + tail


def _works(source: Path, target: Path) -> bool:
    """Convert; return whether that went well."""
    before = sorted(path.name for path in target.parent.iterdir())
    try:
        convert_whisper(source, target)
    except WinMLError as error:
        assert str(source) in str(error), error
        assert sorted(path.name for path in target.parent.iterdir()) == before
        return False
    shutil.rmtree(target)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
