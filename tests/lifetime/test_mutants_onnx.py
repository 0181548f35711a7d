"""Damaged `.onnx` and `.ort` files: an exception with the path, never a signal, a hang or a giant allocation.

Run as a program, this file is the child process of its own tests: `test_mutants_onnx.py FORMAT FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from fakes.mutate_files import deadline, limit_memory, mutants
from models import onnx_models
from winml_lite.errors import WinMLError
from winml_lite.files.artifact import OnnxArtifact
from winml_lite.files.onnx import read_onnx
from winml_lite.files.ort import read_ort
from winml_lite.native.backend import OrtOptions, Placement, StageExecutor, StageOptions, backend
from winml_lite.storage import allocate
from winml_lite.values import FREE_DIMENSION, ExecutionTargetKind, TensorDataType

MUTANTS_PER_MODEL = 50
SECONDS_PER_MUTANT = 60

Model = tuple[Callable[[], onnx.ModelProto], tuple[tuple[int, int], ...]]
MODELS: tuple[Model, ...] = (
    (onnx_models.group_query_attention, ((2, 1), (3, 2))),
    (onnx_models.sum_state, ((1, 1),)),
    (onnx_models.stat, ()),
    (lambda: onnx_models.slow(rounds=3), ()),
)


@pytest.mark.real
@pytest.mark.parametrize("form", ["onnx", "ort"])
def test_damaged_models(form: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
    done = subprocess.run(
        [sys.executable, __file__, form, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "200 mutants\n"


def main(form: str, folder: Path) -> None:
    count = 0
    path = folder / f"mutant.{form}"
    originals = [_original(build, form, folder) for build, _ in MODELS]
    limit_memory(6)
    for seed, (original, (_, pairs)) in enumerate(zip(originals, MODELS, strict=True)):
        for data in mutants(original, MUTANTS_PER_MODEL, seed):
            path.write_bytes(data)
            with deadline(SECONDS_PER_MUTANT):
                _try(path, pairs)
            count += 1
    print(f"{count} mutants")


def _original(build: Callable[[], onnx.ModelProto], form: str, folder: Path) -> bytes:
    source = onnx_models.save(build(), folder / "original.onnx")
    return (source if form == "onnx" else onnx_models.to_ort(source, folder / "original.ort")).read_bytes()


def _try(path: Path, pairs: tuple[tuple[int, int], ...]) -> None:
    """Load, build, run; a refusal at load or build must name the file."""
    try:
        artifact: OnnxArtifact = (read_onnx if path.suffix == ".onnx" else read_ort)(str(path))
        options = StageOptions(state_pairs=pairs, capacity_hint=8, ort=OrtOptions(thread_count=1))
        stage = backend("ort").build_stage(artifact, Placement(ExecutionTargetKind.CPU), options)
    except WinMLError as error:
        assert str(path) in str(error), error
        return
    timer = threading.Timer(5, stage.abort)
    timer.start()
    try:
        _run(stage, {past for past, _ in pairs})
    except WinMLError:
        return
    finally:
        timer.cancel()
        timer.join()


def _run(stage: StageExecutor, states: set[int]) -> None:
    for index, (data_type, extents) in enumerate(stage.inputs):
        if index not in states and data_type is not TensorDataType.UNDEFINED:
            shape = tuple(1 if extent == FREE_DIMENSION else extent for extent in extents)
            stage.bind_input(index, allocate(data_type, shape))
    for index, (data_type, _) in enumerate(stage.outputs):
        stage.bind_output(index, None, data_type is not TensorDataType.UNDEFINED)
    for _ in range(2):
        stage.run()
        stage.commit()
        for index, (data_type, _) in enumerate(stage.outputs):
            if data_type is not TensorDataType.UNDEFINED:
                stage.output(index).data.copy()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
