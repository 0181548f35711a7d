"""The node cases of the `onnx` package through a pipeline, with `onnxruntime.InferenceSession` as the judge.

For each case: where the engine refuses the model or the run, so do we, with its words; where it runs, our outputs are
its outputs to the bit. A port that no tensor can be bound to (strings, sequences, optionals, 8-bit floats, 2-bit
integers) is refused by its name, however well the engine could run it.

`onnx_backend.toml` lists what is refused, and where the engine differs from the expected outputs, for one version of
both packages.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnxruntime
import pytest

from fakes.onnx_cases import (
    Case,
    Value,
    grown,
    is_close,
    node_cases,
    run_bound,
    run_requested,
    run_session,
    session,
    stage_of,
    tensor_of,
    value_of,
    with_free_shapes,
)
from winml_lite import CompiledModelForm, Runtime, WinMLError, save_as_ort
from winml_lite.errors import E_INVALIDARG, NOT_SUPPORTED

pytestmark = pytest.mark.peer

TABLE = tomllib.loads(Path(__file__).with_name("onnx_backend.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Verdict:
    """How the engine alone ends a case."""

    case: Case
    outputs: list[Value] | None = None
    """None where it refuses, or where the ports are not for us."""
    refusal: str = ""
    """Its words, without the status in front."""


def words(error: Exception) -> str:
    """Return the text of the engine's error; its binding for Python puts a status in front."""
    return str(error).split(" : ", 3)[-1].strip()


def judged(case: Case) -> Verdict:
    try:
        made = session(case.model)
        return Verdict(case) if case.is_foreign else Verdict(case, run_session(made, case.inputs))
    except Exception as error:  # the classes of the engine's errors have no base of their own
        return Verdict(case, refusal=words(error))


@pytest.fixture(scope="module", autouse=True)
def quiet_engine() -> Iterator[None]:
    """Let the engine be silent about these models; it warns of many."""
    onnxruntime.set_default_logger_severity(4)
    yield
    onnxruntime.set_default_logger_severity(2)


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return [judged(case) for case in node_cases()]


@pytest.fixture(scope="module")
def runnable(verdicts: list[Verdict]) -> list[tuple[Case, list[Value]]]:
    """The cases that the engine runs and whose ports are tensors to us, with the outputs of the engine."""
    return [(verdict.case, verdict.outputs) for verdict in verdicts if verdict.outputs is not None]


@pytest.fixture(scope="module")
def operators(runnable: list[tuple[Case, list[Value]]]) -> list[tuple[Case, list[Value]]]:
    """Those of them that are one operator and give the same in each run."""
    return [(case, theirs) for case, theirs in runnable if not case.is_expanded and not case.is_random]


@pytest.fixture(scope="module")
def shared_runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


def trouble(runtime: Runtime, case: Case, theirs: list[Value]) -> str | None:
    """Run a case from memory, twice, and with outputs of the caller; say what is wrong."""
    try:
        pipeline, stage = stage_of(runtime, runtime.load_model_from_buffer(case.model))
        for index, value in enumerate(case.inputs):
            stage.bind_input(index, tensor_of(runtime, value))
        first = run_requested(pipeline, stage, len(theirs))
        second = run_requested(pipeline, stage, len(theirs))
        bound = run_bound(runtime, pipeline, stage, theirs)
    except WinMLError as error:
        return str(error)
    runs = (first,) if case.is_random else (first, second, bound)
    return None if all(outputs == theirs for outputs in runs) else "other outputs than the engine's"


def refusal(runtime: Runtime, case: Case) -> str:
    """Build and run a case; return the words of the refusal, "" when there is none."""
    try:
        pipeline, stage = stage_of(runtime, runtime.load_model_from_buffer(case.model))
        for index, value in enumerate(case.inputs):
            stage.bind_input(index, tensor_of(runtime, value))
        run_requested(pipeline, stage, len(case.wanted))
    except WinMLError as error:
        return error.native_message or ""
    return ""


def is_told(refusal: str, text: str) -> bool:
    """Whether a message has the words of the engine; the place in its source code may be left out of them."""
    return refusal in text or (re.search(r"\.(cc|h):\d+ ", refusal) is not None and refusal[-40:] in text)


def test_what_the_engine_runs_gives_its_outputs(
    runnable: list[tuple[Case, list[Value]]], shared_runtime: Runtime
) -> None:
    found = {case.name: trouble(shared_runtime, case, theirs) for case, theirs in runnable}
    assert {name: text for name, text in found.items() if text is not None} == {}


def test_what_the_engine_refuses_is_refused_with_its_words(verdicts: list[Verdict], shared_runtime: Runtime) -> None:
    refused = [verdict for verdict in verdicts if verdict.refusal and not verdict.case.is_foreign]
    texts = {verdict.case.name: refusal(shared_runtime, verdict.case) for verdict in refused}
    assert [verdict.case.name for verdict in refused if not is_told(verdict.refusal, texts[verdict.case.name])] == []


def foreign_trouble(runtime: Runtime, verdict: Verdict) -> str | None:
    """Say what is wrong with the refusal of a case whose ports are not for us."""
    case = verdict.case
    try:
        _, stage = stage_of(runtime, runtime.load_model_from_buffer(case.model))
    except WinMLError as error:
        text = str(error)
        if verdict.refusal:
            return None if is_told(verdict.refusal, text) else text
        is_named = any(f"{name!r}: the model declares {kind}" in text for name, kind in case.foreign_inputs.items())
        return None if is_named and error.hresult == NOT_SUPPORTED else text
    if case.foreign_inputs or verdict.refusal:
        return "it was built"
    for index, port in enumerate(case.proto.graph.output):
        if port.name in case.foreign_outputs:
            with pytest.raises(WinMLError) as caught:
                stage.request_output(index)
            wanted = f"output {index} {port.name!r}: the model declares {case.foreign_outputs[port.name]}"
            if wanted not in str(caught.value) or caught.value.hresult != NOT_SUPPORTED:
                return str(caught.value)
    return None


def test_ports_that_are_no_tensors_are_refused_by_name(verdicts: list[Verdict], shared_runtime: Runtime) -> None:
    foreign = [verdict for verdict in verdicts if verdict.case.is_foreign]
    found = {verdict.case.name: foreign_trouble(shared_runtime, verdict) for verdict in foreign}
    assert {name: text for name, text in found.items() if text is not None} == {}


def test_the_refusals_are_those_of_the_table(verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    ran = [verdict for verdict in verdicts if verdict.outputs is not None]
    differing = [verdict.case.name for verdict in ran if not verdict.case.accepts(verdict.outputs or [])]
    refused = [verdict.case.name for verdict in verdicts if verdict.refusal and not verdict.case.is_foreign]
    foreign = [verdict.case for verdict in verdicts if verdict.case.is_foreign]
    with capsys.disabled():
        print(
            f"\nonnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}: {len(verdicts)} cases, "
            f"{len(ran) - len(differing)} passed, {len(differing)} as the engine but not as expected, "
            f"{len(refused)} refused by the engine, {len(foreign)} refused for their ports"
        )
    assert len(ran) + len(refused) + len(foreign) == len(verdicts)
    if {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__} != TABLE["versions"]:
        pytest.skip("the table is for other versions of onnx and onnxruntime")
    assert len(ran) == TABLE["ran"]
    assert set(differing) <= set(TABLE["as_the_engine"]["cases"])  # rounding differs between processors
    assert refused == TABLE["refused_by_the_engine"]["cases"]
    kinds = Counter(
        kind for case in foreign for kind in {*case.foreign_inputs.values(), *case.foreign_outputs.values()}
    )
    assert kinds == TABLE["refused_for_their_ports"]
    assert len(foreign) == TABLE["refused_for_their_ports_in_all"]


def file_trouble(runtime: Runtime, case: Case, theirs: list[Value], path: Path) -> str | None:
    """Run a case from a file into tensors of the caller, then compiled, then in the ORT format.

    A compiled graph may be optimised once more when it is loaded, and then rounds otherwise.
    """
    path.write_bytes(case.model)
    try:
        model = runtime.load_model(path)
        with runtime.create_cpu_target() as target, target.model_compiler() as compiler:
            compiler.compile_to_file(model, path.with_name("compiled.onnx"), form=CompiledModelForm.DURABLE)
        save_as_ort(model, path.with_suffix(".ort"), form=CompiledModelForm.DURABLE)
        for name in (path.name, "compiled.onnx", path.with_suffix(".ort").name):
            pipeline, stage = stage_of(runtime, runtime.load_model(path.with_name(name)))
            for index, value in enumerate(case.inputs):
                stage.bind_input(index, tensor_of(runtime, value))
            ours = run_bound(runtime, pipeline, stage, theirs)
            tolerance = 0.0 if name == path.name else 1e-5
            if not all(is_close(a, b, tolerance, tolerance) for a, b in zip(ours, theirs, strict=True)):
                return f"{name} gives other outputs"
    except WinMLError as error:
        return str(error)
    return None


def test_cases_in_files_compiled_and_in_the_ort_format(
    operators: list[tuple[Case, list[Value]]], shared_runtime: Runtime, tmp_path: Path
) -> None:
    path = tmp_path / "case.onnx"
    found = {case.name: file_trouble(shared_runtime, case, theirs, path) for case, theirs in operators}
    assert {name: text for name, text in found.items() if text is not None} == {}


def free_trouble(runtime: Runtime, case: Case) -> str | None:
    """Run a case with free shapes into memory of its own, into tensors that fit, and into tensors that do not."""
    free = replace(case, proto=with_free_shapes(case.proto))
    verdict = judged(free)
    theirs = verdict.outputs
    if theirs is None:
        text = refusal(runtime, free)
        return None if verdict.refusal in text else f"{text!r} instead of {verdict.refusal!r}"
    try:
        pipeline, stage = stage_of(runtime, runtime.load_model_from_buffer(free.model))
        for index, value in enumerate(case.inputs):
            stage.bind_input(index, tensor_of(runtime, value))
        fresh = run_requested(pipeline, stage, len(theirs))
        bound = run_bound(runtime, pipeline, stage, theirs)
    except WinMLError as error:
        return str(error)
    if not fresh == bound == theirs:
        return "other outputs than the engine's"
    with pytest.raises(WinMLError) as caught:
        run_bound(runtime, pipeline, stage, [grown(value) for value in theirs])
    return None if caught.value.hresult == E_INVALIDARG else str(caught.value)


def test_cases_with_free_shapes(operators: list[tuple[Case, list[Value]]], shared_runtime: Runtime) -> None:
    found = {case.name: free_trouble(shared_runtime, case) for case, _ in operators}
    assert {name: text for name, text in found.items() if text is not None} == {}


def overwriting_trouble(runtime: Runtime, case: Case, theirs: list[Value]) -> str | None:
    """Run a case with an output in the memory of an input, for each pair that allows it."""
    pipeline, stage = stage_of(runtime, runtime.load_model_from_buffer(case.model))
    pairs = [
        (i, o) for i, value in enumerate(case.inputs) for o, output in enumerate(theirs) if value[:2] == output[:2]
    ]
    for index, output in pairs:
        tensors = [tensor_of(runtime, value) for value in case.inputs]
        for position, tensor in enumerate(tensors):
            stage.bind_input(position, tensor)
        for position in range(len(theirs)):
            stage.request_output(position)
        stage.bind_output(output, tensors[index])
        pipeline.run()
        if [value_of(stage.output(position)) for position in range(len(theirs))] != theirs:
            return f"output {output} over input {index}"
    return None


def test_an_output_may_overwrite_an_input(operators: list[tuple[Case, list[Value]]], shared_runtime: Runtime) -> None:
    found = {case.name: overwriting_trouble(shared_runtime, case, theirs) for case, theirs in operators}
    assert {name: text for name, text in found.items() if text is not None} == {}
