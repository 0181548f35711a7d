"""What pipelines, runtimes and bindings tell of connections and owners (additions to the named API)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles
from fakes.rig import failing, floats
from winml_lite import NotSupportedError, Pipeline, Runtime, Stage
from winml_lite.native.backend import replaced_backend


@pytest.fixture(autouse=True)
def _fake_engine() -> Iterator[None]:
    with replaced_backend("ort", FakeBackend(Script())):
        yield


def chain(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Stage, Pipeline]:
    """Two adding stages: the sum of the first goes to the second, and in the next iteration back to the first."""
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("add"))
    first, second = builder.add_model_stage(model), builder.add_model_stage(model)
    builder.connect(first, 0, second, 0)
    builder.connect_next_iteration(second, 0, first, 1)
    return first, second, builder.build()


def test_a_pipeline_knows_which_inputs_its_stages_feed(runtime: Runtime, files: ModelFiles) -> None:
    first, second, pipeline = chain(runtime, files)
    assert [pipeline.is_connected(first, index) for index in (0, 1)] == [False, False]
    assert [pipeline.is_connected(second, index) for index in (0, 1)] == [True, False]
    assert [pipeline.is_connected(first, index, next_iteration=True) for index in (0, 1)] == [False, True]
    assert pipeline.is_connected(second, 0, next_iteration=True) is False


def test_a_pipeline_knows_how_many_stages_it_has(runtime: Runtime, files: ModelFiles) -> None:
    assert chain(runtime, files)[2].stage_count == 2


def test_a_pipeline_counts_the_runs_that_succeeded(runtime: Runtime, files: ModelFiles) -> None:
    first, second, pipeline = chain(runtime, files)
    with failing(0x80070057):
        pipeline.run()
    for stage, index in ((first, 0), (first, 1), (second, 1)):
        stage.bind_input(index, floats(runtime, 1, 2))
    pipeline.run()
    pipeline.run()
    assert pipeline.run_count == 2


def test_a_stage_of_another_pipeline_is_not_connected(runtime: Runtime, files: ModelFiles) -> None:
    first, _, _ = chain(runtime, files)
    _, _, other = chain(runtime, files)
    assert other.is_connected(first, 1, next_iteration=True) is False


def test_a_runtime_knows_its_tensors(runtime: Runtime) -> None:
    with Runtime() as other:
        assert runtime.owns(floats(runtime, 1, 2)) is True
        assert runtime.owns(floats(other, 1, 2)) is False


def test_named_bindings_find_an_input(runtime: Runtime, files: ModelFiles) -> None:
    first, _, _ = chain(runtime, files)
    assert [first.ort_bindings().find_input(name) for name in ("A", "B", "C")] == [0, 1, None]
    assert first.ort_bindings().input_names == ("A", "B")
    assert first.ort_bindings().output_names == ("C",)


def test_a_stage_of_another_engine_has_no_names(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_backend("llama", FakeBackend(Script(), logits=lambda ids: [0.0])):
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
        builder.build()
        with failing(0x80070032, NotSupportedError):
            stage.ort_bindings().find_input("A")
