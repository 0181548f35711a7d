"""A model file that changes between `load_model` and `build` is refused: what was checked is not what would run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles
from fakes.rig import failing
from winml_lite import PipelineBuilder, Runtime

pytestmark = pytest.mark.real


def added(runtime: Runtime, source: str, path: Path) -> PipelineBuilder:
    """A builder with a stage of a copy of the model."""
    shutil.copy(source, path)
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(runtime.load_model(path))
    return builder


def test_a_truncated_gguf(llama: None, runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    builder = added(runtime, files.gguf, tmp_path / "m.gguf")
    os.truncate(tmp_path / "m.gguf", 100)
    with failing(0x800703EE) as caught:
        builder.build()
    assert "m.gguf has changed since it was loaded; load it again" in str(caught.value)


def test_a_gguf_that_is_gone(llama: None, runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    builder = added(runtime, files.gguf, tmp_path / "m.gguf")
    (tmp_path / "m.gguf").unlink()
    with failing(0x800703EE):
        builder.build()


def test_another_onnx_in_its_place(ort: None, runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    builder = added(runtime, files.onnx("add"), tmp_path / "m.onnx")
    shutil.copy(files.onnx("two"), tmp_path / "m.onnx")
    with failing(0x800703EE) as caught:
        builder.build()
    assert "m.onnx has changed since it was loaded" in str(caught.value)


def test_an_unchanged_copy_builds(ort: None, runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    added(runtime, files.onnx("add"), tmp_path / "m.onnx").build().close()
