"""What looking for outputs in common memory costs: it grows as the number of outputs does, not faster."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fakes.backend import FakeBackend
from fakes.model_files import ModelFiles
from fakes.rig import integers
from winml_lite import Pipeline, Runtime, TensorAccessMode
from winml_lite.written_memory import check_outputs_apart

pytestmark = pytest.mark.perf


def writers(runtime: Runtime, files: ModelFiles, count: int) -> Pipeline:
    """Stages that write side by side into one array."""
    builder, numbers = runtime.create_pipeline_builder(), np.zeros(count, np.int64)
    model = runtime.load_model(files.onnx("inc"))
    for place in range(count):
        stage = builder.add_model_stage(model)
        stage.bind_input(0, integers(runtime, place))
        view = runtime.tensor_from_dlpack(numbers[place : place + 1], access=TensorAccessMode.READWRITE)
        stage.bind_output(0, view)
    return builder.build()


def calls_of_check(pipeline: Pipeline) -> int:
    """Functions of Python and of C that are called."""
    core, seen = pipeline.underlying_object, [0]

    def note(frame: object, event: str, argument: object) -> None:
        seen[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        check_outputs_apart(core.stages, core.edges, core.feedback)
    finally:
        sys.setprofile(None)
    return seen[0]


def test_views_are_not_compared_each_with_each(runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend) -> None:
    some, twice_as_many = (calls_of_check(writers(runtime, files, count)) for count in (20, 40))
    assert twice_as_many < 2.2 * some
