"""The short road of speech recognition: memory, Ctrl-C anywhere, threads and exit, each in a process."""

from __future__ import annotations

import select

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from fakes.model_files import ModelFiles, require_engine
from models.whisper_models import tiny_whisper

pytestmark = pytest.mark.real


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
    run_program("transcript_programs.py", program, folder, **COUNTED)


@pytest.mark.skipif(not hasattr(select, "poll"), reason="this system cannot tell what a pipe holds")
@pytest.mark.parametrize("program", ["leave_a_silent_microphone", "leave_a_thread_in_a_silent_pipe"])
def test_silence_on_standard_input_holds_nobody_up(program: str, files: ModelFiles) -> None:
    require_engine("ort")
    pytest.importorskip("soundfile")
    run_program("transcript_programs.py", program, tiny_whisper(files.folder / "whisper-transcripts"))
