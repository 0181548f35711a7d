"""The short road of speech recognition: memory, Ctrl-C anywhere, threads and exit, each in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles, require_engine
from models.whisper_models import tiny_whisper

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("transcript_programs.py")
ROOT = PROGRAM.parents[2]


@pytest.mark.parametrize(
    "program",
    [
        "a_long_recording_takes_no_memory",
        "models_keep_no_memory",
        "transcriptions_keep_no_memory",
        "interrupts_anywhere_leave_a_usable_model",
        "closed_while_others_transcribe",
        "leave_a_stream_open",
        "leave_another_thread_at_work",
    ],
)
def test_a_transcript_program_ends_quietly(program: str, files: ModelFiles) -> None:
    require_engine("ort")
    folder = tiny_whisper(files.folder / "whisper-transcripts")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), program, str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
