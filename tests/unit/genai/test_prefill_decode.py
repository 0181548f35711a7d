"""Interrupts, failures and cancels of two pipelines: a run of theirs cannot be taken back, so none may run twice."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import Script
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.two_pipelines import TwoPipelines, two_pipelines
from genai import TextGenerationOptions
from genai.endpoints import RowOutput
from genai.tasks import (
    CancellationSource,
    TextGenerationFinishReason,
    TextGenerationSessionState,
    TextGenerationStream,
)
from winml_lite import Pipeline, WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState

E_FAIL = 0x80004005
CANCELLED = 0x800704C7


@pytest.fixture(params=["logits", "sampled", "fed back"])
def two(
    request: pytest.FixtureRequest, fake_ort: Any, tmp_path: Path, files: ModelFiles, script: Script
) -> Iterator[tuple[TwoPipelines, dict[str, Any]]]:
    """Two pipelines, and the changes that make each kind of them."""
    with two_pipelines(tmp_path, files, script, feeds_back=request.param == "fed back") as two:
        changes = {"logits": {}, "sampled": two.sampling(), "fed back": two.feedback()}
        yield two, changes[request.param]


def begin(given: tuple[TwoPipelines, dict[str, Any]], **fields: Any) -> tuple[TwoPipelines, TextGenerationStream]:
    two, changes = given
    session = two.session(**changes)
    return two, session.generate_tokens([1, 2, 3], TextGenerationOptions(4), **fields)


def read_on(two: TwoPipelines, stream: TextGenerationStream) -> None:
    """Read to the end, moving the state; a read that an interrupt stops is repeated."""
    count, done = 0, False
    while not done:
        try:
            update = stream.read_next()
        except KeyboardInterrupt:
            continue
        done = update is None
        count += 1
        if not done:
            two.move(count)


@pytest.mark.parametrize("run", [1, 2, 3, 4])
def test_an_interrupted_run_is_repeated(two: tuple[TwoPipelines, dict[str, Any]], script: Script, run: int) -> None:
    pipelines, stream = begin(two)
    script.fail_at[run] = KeyboardInterrupt()
    read_on(pipelines, stream)
    assert stream.result.token_ids == (6, 12, 8, 0)
    assert script.runs == 5


@pytest.mark.parametrize("read", [1, 2, 3, 4])
def test_a_run_whose_row_was_not_used_is_not_repeated(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, original = [0], RowOutput.read

    def interrupted(self: RowOutput) -> Any:
        reads[0] += 1
        if reads[0] == read:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(RowOutput, "read", interrupted)
    pipelines, stream = begin(two)
    read_on(pipelines, stream)
    assert stream.result.token_ids == (6, 12, 8, 0)
    assert script.runs == 4


@pytest.mark.parametrize("run", [1, 2, 3, 4])
def test_an_interrupt_behind_a_run_does_not_repeat_it(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, original = [0], Pipeline.run

    def interrupted(self: Pipeline) -> None:
        original(self)
        runs[0] += 1
        if runs[0] == run:
            raise KeyboardInterrupt

    monkeypatch.setattr(Pipeline, "run", interrupted)
    pipelines, stream = begin(two)
    read_on(pipelines, stream)
    assert stream.result.token_ids == (6, 12, 8, 0)
    assert script.runs == 4


@pytest.mark.parametrize("run", [1, 2, 4])
def test_a_failing_run_ends_the_stream(two: tuple[TwoPipelines, dict[str, Any]], script: Script, run: int) -> None:
    pipelines, changes = two
    session = pipelines.session(**changes)
    script.fail_at[run] = WinMLError(E_FAIL, "engine", "scripted")
    stream = session.generate_tokens([1, 2, 3], TextGenerationOptions(4))
    read_on(pipelines, stream)
    assert (stream.result.finish_reason, stream.result.error_code) == (Reason.ERROR, E_FAIL)
    assert stream.result.generated_token_count == run - 1
    assert session.state is State.RESET_REQUIRED
    session.reset()
    again = session.generate_tokens([1, 2, 3], TextGenerationOptions(2))
    read_on(pipelines, again)
    assert again.result.token_ids == (6, 12)


def test_a_late_cancel_of_an_earlier_operation_is_overcome(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script
) -> None:
    pipelines, stream = begin(two)
    script.fail_at[2] = WinMLError(CANCELLED)
    read_on(pipelines, stream)
    assert stream.result.token_ids == (6, 12, 8, 0)


@pytest.mark.parametrize("run", [1, 2])
def test_a_cancel_during_a_run_ends_the_stream(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script, run: int
) -> None:
    source = CancellationSource()
    pipelines, stream = begin(two, cancellation=source)
    script.call_at[run] = source.cancel
    read_on(pipelines, stream)
    assert stream.result.finish_reason is Reason.CANCELED
    assert stream.result.generated_token_count == run - 1
    assert script.runs == run


def test_closing_gives_both_pipelines_up_at_once(two: tuple[TwoPipelines, dict[str, Any]]) -> None:
    pipelines, changes = two
    session = pipelines.session(**changes)
    stream = session.generate_tokens([1, 2, 3], TextGenerationOptions(2))
    read_on(pipelines, stream)
    parts = pipelines.prefill, pipelines.decode
    executors = [weakref.ref(part.pipeline.underlying_object.executors[0]) for part in parts]
    gc.collect()
    gc.disable()
    try:
        for part in parts:
            part.stage.close()
            part.pipeline.close()
        assert None not in [executor() for executor in executors]
        session.close()
        assert [executor() for executor in executors] == [None, None]
    finally:
        gc.enable()
    assert stream.result.token_ids == (6, 12)


def test_a_pipeline_in_use_refuses_the_start_and_changes_nothing(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines, changes = two
    session = pipelines.session(**changes)
    read_on(pipelines, session.generate_tokens([1, 2, 3], TextGenerationOptions(2)))

    def refuse(self: object, *arguments: object) -> object:
        raise WinMLError(0x800700AA, "IWinMLPipeline.ResetExecutionState", "busy")

    with monkeypatch.context() as patch:
        patch.setattr("winml_lite.pipeline.Pipeline.reset", refuse)
        with failing(0x800700AA):
            session.generate_tokens([1, 2], TextGenerationOptions(2))
    assert session.state is State.READY
    again = session.generate_tokens([1, 2, 3], TextGenerationOptions(2))
    read_on(pipelines, again)
    assert again.result.token_ids == (6, 12)
