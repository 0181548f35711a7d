"""Models of language, embeddings and pictures at the end of their lives; a crash is a return code, so each test has a
process.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from fakes.model_files import ModelFiles, require_engine
from models.classifier_models import write_colour_folder
from models.recipes import encoder_gguf, encoder_onnx, random_gguf, random_onnx


@pytest.fixture(params=["generate-llama", "generate-ort", "embed-llama", "embed-ort", "classify-ort"])
def model(request: pytest.FixtureRequest, files: ModelFiles, tmp_path: Path) -> tuple[str, Path]:
    """What a model does, and where it is."""
    kind, _, engine = request.param.partition("-")
    require_engine(engine)
    if kind == "classify":
        return kind, write_colour_folder(tmp_path / "model")
    if kind == "generate":
        return kind, random_gguf(files.folder) if engine == "llama" else random_onnx(files.folder, "gqa")
    return kind, encoder_gguf(files.folder) if engine == "llama" else encoder_onnx(files.folder)


@pytest.mark.parametrize(
    "program",
    [
        "exit_with_a_model_alive",
        "exit_while_daemon_threads_call",
        "closing_waits_for_a_call",
        "nothing_grows_over_many_cycles",
    ],
)
def test_a_program_ends_well_and_prints_nothing(model: tuple[str, Path], program: str) -> None:
    run_program("model_programs.py", program, *model, **COUNTED)
