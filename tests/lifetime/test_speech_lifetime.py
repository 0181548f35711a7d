"""Speech recognition in any closing order, in threads, under cancels and Ctrl-C, and at exit, each in a process."""

from __future__ import annotations

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from fakes.model_files import ModelFiles, require_engine
from models.whisper_models import tiny_whisper

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "program",
    [
        "close_everything_in_any_order",
        "drop_everything_in_any_order",
        "collected_by_another_thread",
        "threads_with_a_model_each",
        "sessions_move_between_threads",
        "cancelled_from_another_thread",
        "interrupted_streams_go_on",
        "leave_a_stream_open",
        "transcriptions_keep_no_memory",
        "models_keep_no_memory",
    ],
)
def test_a_speech_program_ends_quietly(program: str, files: ModelFiles) -> None:
    require_engine("ort")
    folder = tiny_whisper(files.folder / "whisper-lifetime")
    run_program("speech_programs.py", program, folder, **COUNTED)
