"""What a run of several stages costs, in counts: a graph on stable shapes binds nothing and makes no memory."""

from __future__ import annotations

from _thread import _count as count_threads
from collections import Counter

import pytest

from fakes.backend import FakeBackend, Script
from fakes.call_counts import calls_of
from fakes.model_files import ModelFiles
from fakes.rig import integers
from fakes.traced_growth import traced_growth
from fakes.waiting import until
from winml_lite import Pipeline, Runtime, Stage
from winml_lite.native.llama.executor import LlamaExecutor
from winml_lite.native.ort.executor import OrtExecutor

pytestmark = pytest.mark.perf


def chain(runtime: Runtime, files: ModelFiles) -> Pipeline:
    """Three stages in a row, each x -> x + 1; the last one writes into a bound tensor."""
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second, third = (builder.add_model_stage(model) for _ in range(3))
    builder.connect(first, 0, second, 0)
    builder.connect(second, 0, third, 0)
    first.bind_input(0, integers(runtime, 1))
    third.bind_output(0, integers(runtime, 0))
    return builder.build()


def counting(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Pipeline]:
    """x -> x + 1 on its own output."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, integers(runtime, 0))
    return stage, builder.build()


def token_loop(runtime: Runtime, files: ModelFiles) -> Pipeline:
    """A GGUF decoder and an ONNX stage that selects, each feeding the other."""
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    choice = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    decoder.bind_input(0, integers(runtime, 10))
    return builder.build()


@pytest.fixture
def preparations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a stage of an engine was bound, or prepared for changed bindings."""
    seen: Counter[str] = Counter()

    def count(kind: type[object], name: str) -> None:
        work = getattr(kind, name)

        def counted(self: object, *arguments: object) -> None:
            seen[name] += 1
            work(self, *arguments)

        monkeypatch.setattr(kind, name, counted)

    for kind, name in (
        (OrtExecutor, "bind_input"),
        (OrtExecutor, "bind_output"),
        (OrtExecutor, "_prepare"),
        (LlamaExecutor, "bind_input"),
        (LlamaExecutor, "bind_output"),
    ):
        count(kind, name)
    return seen


def test_edges_of_fixed_shape_are_bound_twice_and_never_again(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    pipeline = chain(runtime, files)
    seen = []
    for _ in range(5):
        pipeline.run()
        seen.append(script.binds)
    assert seen == [3, 5, 5, 5, 5]  # first what the first run made, then the storage for good


def test_a_graph_on_stable_shapes_prepares_nothing_on_onnx_runtime(
    runtime: Runtime, files: ModelFiles, ort: None, preparations: Counter[str]
) -> None:
    pipeline = chain(runtime, files)
    pipeline.run()
    pipeline.run()
    preparations.clear()
    for _ in range(100):
        pipeline.run()
    assert preparations == {}


def test_feedback_of_a_small_value_binds_nothing_either(
    runtime: Runtime, files: ModelFiles, ort: None, preparations: Counter[str]
) -> None:
    stage, pipeline = counting(runtime, files)
    pipeline.run()
    pipeline.run()
    preparations.clear()
    pipeline.iteration_execution().submit_iterations(97).wait()
    assert preparations == {}
    stage.request_output(0)
    pipeline.run()
    assert stage.output(0).to_numpy().tolist() == [100]


def test_a_token_loop_over_both_engines_binds_nothing(
    runtime: Runtime, files: ModelFiles, ort: None, llama: None, preparations: Counter[str]
) -> None:
    pipeline = token_loop(runtime, files)
    pipeline.run()
    pipeline.run()
    preparations.clear()
    pipeline.iteration_execution().submit_iterations(50).wait()
    assert preparations == {}


def test_a_run_of_three_stages_enters_few_functions(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = chain(runtime, files)
    pipeline.run()
    pipeline.run()
    for executor in fake_ort.executors:
        monkeypatch.setattr(executor, "run", lambda: None)
    assert calls_of(pipeline) == {
        "run": 2,  # of the pipeline and of its graph
        "hold": 1,
        "execute": 1,
        "carry": 2,
        "bind": 2,
        "check_cancelled": 3,
        "_commit": 1,
    }


def test_iterations_keep_no_memory(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    _, pipeline = counting(runtime, files)
    iterations = pipeline.iteration_execution()
    threads = count_threads()
    iterations.submit_iterations(3000).wait()
    growth = traced_growth(
        lambda: iterations.submit_iterations(100).wait(),
        20,
        lambda: until(lambda: count_threads() <= threads),
    )
    assert growth < 4096


def test_submissions_keep_no_memory(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    _, pipeline = counting(runtime, files)
    execution = pipeline.execution()
    threads = count_threads()
    for _ in range(300):
        execution.submit().wait()
    growth = traced_growth(lambda: execution.submit().wait(), 500, lambda: until(lambda: count_threads() <= threads))
    assert growth < 4096  # 8 bytes each


def test_submissions_leave_no_threads(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    _, pipeline = counting(runtime, files)
    before = count_threads()
    for _ in range(50):
        pipeline.execution().submit().wait()
    until(lambda: count_threads() <= before)
