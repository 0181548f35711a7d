"""Configurations of two pipelines, and of the wrong parts of both modes (genai 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import Script
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.two_pipelines import IDS, LOGITS, PRESENT, TwoPipelines, tensor_of, two_pipelines
from genai.tasks import (
    Tasks,
    TextGenerationConfiguration,
    TextGenerationConfigurationMode,
    TextGenerationDecodeInputMode,
    TextGenerationOutputKind,
    TextGenerationPhaseBinding,
    TextGenerationPipelinePhase,
    TextGenerationSession,
)
from winml_lite import Runtime

Phase = TextGenerationPipelinePhase
Kind = TextGenerationOutputKind
Mode = TextGenerationConfigurationMode
Input = TextGenerationDecodeInputMode
Call = Callable[[], object]
Set = Callable[[TextGenerationConfiguration, TwoPipelines], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
BUSY = 0x800700AA


@pytest.fixture
def two(fake_ort: Any, tmp_path: Path, files: ModelFiles, script: Script) -> Iterator[TwoPipelines]:
    with two_pipelines(tmp_path, files, script) as two:
        yield two


def empty(two: TwoPipelines) -> TextGenerationConfiguration:
    return Tasks(two.runtime).create_text_generation_configuration()


def session_of(two: TwoPipelines, configuration: TextGenerationConfiguration) -> TextGenerationSession:
    return Tasks(two.runtime).create_text_generation_task(two.tokenizer, ()).create_session(configuration)


def test_the_numbers_of_the_enumerations() -> None:
    assert [(member.name, member.value) for member in Input] == [("CALLER_BOUND", 0), ("PIPELINE_FEEDBACK", 1)]
    assert [(member.name, member.value) for member in Mode] == [("UNIFIED", 0), ("PREFILL_DECODE", 1)]
    assert [(member.name, member.value) for member in Phase] == [("UNIFIED", 0), ("PREFILL", 1), ("DECODE", 2)]
    assert [(member.name, member.value) for member in Kind] == [("LOGITS", 0), ("SAMPLED_TOKEN", 1)]


def test_the_bundle_returns_the_configuration_and_fills_every_getter(two: TwoPipelines) -> None:
    configuration = empty(two)
    parts = two.parts(tokenizer=two.tokenizer)
    assert configuration.configure_prefill_decode(**parts) is configuration
    configuration.validate()
    assert configuration.mode is Mode.PREFILL_DECODE
    prefill, decode = two.prefill, two.decode
    assert configuration.phase(Phase.PREFILL) == TextGenerationPhaseBinding(
        prefill.pipeline, prefill.stage, IDS, prefill.stage, LOGITS, Kind.LOGITS
    )
    assert configuration.phase(Phase.DECODE) == TextGenerationPhaseBinding(
        decode.pipeline, decode.stage, IDS, decode.stage, LOGITS, Kind.LOGITS
    )
    assert configuration.pipeline is decode.pipeline
    assert (configuration.token_input_stage, configuration.token_input_index) == (decode.stage, IDS)
    assert (configuration.output_stage, configuration.output_index) == (decode.stage, LOGITS)
    assert configuration.output_kind is Kind.LOGITS
    assert configuration.state_owner_stage is decode.stage
    assert configuration.tokenizer is two.tokenizer
    assert configuration.token_target is parts["token_target"]
    assert configuration.decode_input_mode is Input.CALLER_BOUND
    assert configuration.logical_capacity == 32
    assert configuration.output_bindings == ()


def test_the_mode_follows_from_what_is_set(two: TwoPipelines) -> None:
    configuration = empty(two)
    assert configuration.mode is Mode.UNIFIED
    configuration.set_pipeline(Phase.DECODE, two.decode.pipeline)
    assert configuration.mode is Mode.PREFILL_DECODE
    assert configuration.phase(Phase.PREFILL) == TextGenerationPhaseBinding()
    for setter in (lambda c: c.set_logical_capacity(4), lambda c: c.set_decode_input_mode(Input.CALLER_BOUND)):
        configuration = empty(two)
        setter(configuration)
        assert configuration.mode is Mode.PREFILL_DECODE


def test_a_phase_of_the_other_mode_has_no_endpoints(two: TwoPipelines) -> None:
    with failing(E_NOT_VALID_STATE):
        two.configuration().phase(Phase.UNIFIED)
    for phase in (Phase.PREFILL, Phase.DECODE):
        with failing(E_NOT_VALID_STATE):
            empty(two).phase(phase)


SETTERS: dict[str, Set] = {
    "PREFILL: a pipeline": lambda c, t: c.set_pipeline(Phase.PREFILL, t.prefill.pipeline),
    "PREFILL: a token input": lambda c, t: c.set_token_input(Phase.PREFILL, t.prefill.stage, IDS),
    "PREFILL: an output": lambda c, t: c.set_output(Phase.PREFILL, t.prefill.stage, LOGITS, Kind.LOGITS),
    "DECODE: a pipeline": lambda c, t: c.set_pipeline(Phase.DECODE, t.decode.pipeline),
    "DECODE: a token input": lambda c, t: c.set_token_input(Phase.DECODE, t.decode.stage, IDS),
    "DECODE: an output": lambda c, t: c.set_output(Phase.DECODE, t.decode.stage, LOGITS, Kind.LOGITS),
    "a state owner stage": lambda c, t: c.set_state_owner_stage(t.decode.stage),
    "a token target": lambda c, t: c.set_token_target(t.runtime.create_cpu_target()),
    "a logical capacity": lambda c, t: c.set_logical_capacity(8),
    "a decode input mode": lambda c, t: c.set_decode_input_mode(Input.CALLER_BOUND),
}


@pytest.mark.parametrize("part", SETTERS)
def test_each_part_is_required(two: TwoPipelines, part: str) -> None:
    configuration = empty(two)
    for other in SETTERS.keys() - {part}:
        SETTERS[other](configuration, two)
    with failing(E_NOT_VALID_STATE) as caught:
        configuration.validate()
    assert f"{part} is missing" in str(caught.value)
    SETTERS[part](configuration, two)
    configuration.validate()


def test_a_phase_that_does_not_fit_the_mode_is_refused(two: TwoPipelines) -> None:
    configuration = two.configuration()
    configuration.set_pipeline(Phase.UNIFIED, two.decode.pipeline)
    with failing(E_NOT_VALID_STATE) as caught:
        configuration.validate()
    assert "no UNIFIED phase" in str(caught.value)
    configuration.configure_prefill_decode(**two.parts())
    configuration.validate()


def test_output_bindings_need_two_pipelines(two: TwoPipelines) -> None:
    configuration = empty(two)
    configuration.add_output_binding(Phase.DECODE, two.decode.stage, PRESENT, two.decode.present)
    assert (configuration.mode, configuration.output_bindings) == (Mode.UNIFIED, ())
    with failing(E_NOT_VALID_STATE) as caught:
        configuration.validate()
    assert "output bindings" in str(caught.value)
    configuration.configure_prefill_decode(**two.parts())
    configuration.validate()
    assert len(configuration.output_bindings) == 1


def test_an_output_binding_of_the_unified_phase_is_refused(two: TwoPipelines) -> None:
    configuration = two.configuration()
    configuration.add_output_binding(Phase.UNIFIED, two.decode.stage, LOGITS, tensor_of(two.runtime, 1, 1, 16))
    with failing(E_NOT_VALID_STATE):
        configuration.validate()


def test_an_output_is_bound_once(two: TwoPipelines) -> None:
    configuration = two.configuration()
    configuration.add_output_binding(Phase.DECODE, two.decode.stage, PRESENT, tensor_of(two.runtime, 1, 1))
    with failing(E_INVALIDARG) as caught:
        configuration.validate()
    assert "bound twice" in str(caught.value)


def test_output_bindings_are_checked(two: TwoPipelines) -> None:
    with Runtime() as other:
        wrong: dict[str, tuple[Any, ...]] = {
            "not in the pipeline": (Phase.PREFILL, two.decode.stage, LOGITS, tensor_of(two.runtime, 1, 1, 16)),
            "has no output 3": (Phase.DECODE, two.decode.stage, 3, tensor_of(two.runtime, 1, 1)),
            "another Runtime": (Phase.DECODE, two.decode.stage, LOGITS, tensor_of(other, 1, 1, 16)),
        }
        for text, binding in wrong.items():
            configuration = two.configuration()
            configuration.add_output_binding(*binding)
            with failing(E_INVALIDARG) as caught:
                configuration.validate()
            assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"logical_capacity": 0}, "logical capacity"),
        ({"prefill_token_input_index": 2}, "index 2"),
        ({"decode_output_index": 3}, "index 3"),
        ({"prefill_token_input_index": 1}, "token input"),
        ({"decode_output_kind": Kind.SAMPLED_TOKEN}, "sampled token output"),
        ({"prefill_output_index": 2}, "logits output"),
    ],
)
def test_parts_that_do_not_fit_are_refused(two: TwoPipelines, changes: dict[str, Any], text: str) -> None:
    configuration = two.configuration(**changes)
    with failing(E_INVALIDARG) as caught:
        configuration.validate()
    assert text in str(caught.value)
    configuration.configure_prefill_decode(**two.parts())
    configuration.validate()


def test_stages_must_be_in_their_own_pipeline(two: TwoPipelines) -> None:
    for part in ("prefill_token_input_stage", "prefill_output_stage"):
        with failing(E_INVALIDARG) as caught:
            two.configuration(**{part: two.decode.stage}).validate()
        assert "PREFILL" in str(caught.value)
    for part in ("decode_token_input_stage", "decode_output_stage"):
        with failing(E_INVALIDARG) as caught:
            two.configuration(**{part: two.prefill.stage}).validate()
        assert "DECODE" in str(caught.value)


def test_the_state_owner_is_in_one_of_the_pipelines(two: TwoPipelines, files: ModelFiles) -> None:
    two.configuration(state_owner_stage=two.prefill.stage).validate()
    builder = two.runtime.create_pipeline_builder()
    stray = builder.add_model_stage(two.runtime.load_model(files.onnx("running_sum")))
    builder.build()
    with failing(E_INVALIDARG) as caught:
        two.configuration(state_owner_stage=stray).validate()
    assert "in neither pipeline" in str(caught.value)


def test_objects_of_another_runtime_are_refused(
    two: TwoPipelines, tmp_path: Path, files: ModelFiles, script: Script
) -> None:
    with two_pipelines(tmp_path / "other", files, script) as other:
        for changes in (
            {"prefill_pipeline": other.prefill.pipeline},
            {"decode_pipeline": other.decode.pipeline},
            {"token_target": other.runtime.create_cpu_target()},
        ):
            with failing(E_INVALIDARG) as caught:
                two.configuration(**changes).validate()
            assert "another Runtime" in str(caught.value)


def test_logits_must_cover_the_vocabulary_in_both_phases(two: TwoPipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (two.prefill, two.decode):
        executor = part.stage.underlying_object.executor
        outputs = executor.outputs
        narrow = ((outputs[0][0], (1, outputs[0][1][1], 15)), *outputs[1:])
        with monkeypatch.context() as patch:
            patch.setattr(executor, "outputs", narrow)
            with failing(E_INVALIDARG) as caught:
                session_of(two, two.configuration())
        assert "15 entries, the tokenizer 16 tokens" in str(caught.value)


def test_a_decode_input_takes_one_token(tmp_path: Path, files: ModelFiles, fake_ort: Any, script: Script) -> None:
    with two_pipelines(tmp_path, files, script, prompt_length=3) as two:
        with failing(E_INVALIDARG) as caught:
            two.configuration(
                decode_pipeline=two.prefill.pipeline,
                decode_token_input_stage=two.prefill.stage,
                decode_output_stage=two.prefill.stage,
                state_owner_stage=two.prefill.stage,
            ).validate()
        assert "DECODE" in str(caught.value)


def test_a_prefill_pipeline_for_one_length_takes_no_other(
    tmp_path: Path, files: ModelFiles, fake_ort: Any, script: Script
) -> None:
    with two_pipelines(tmp_path, files, script, prompt_length=3) as two:
        session = two.session()
        with failing(E_INVALIDARG) as caught:
            session.generate_tokens([1, 2])
        assert "built for 3 tokens" in str(caught.value)
        assert script.runs == 0
        stream = session.generate_tokens([1, 2, 3])
        update = stream.read_next()
        assert update is not None and update.token_id == 6


def test_a_bundle_drops_the_other_mode(two: TwoPipelines) -> None:
    configuration = empty(two).configure_prefill_decode(**two.parts())
    configuration.configure_unified(
        pipeline=two.decode.pipeline,
        token_input_stage=two.decode.stage,
        token_input_index=IDS,
        output_stage=two.decode.stage,
        output_index=LOGITS,
        output_kind=Kind.LOGITS,
        state_owner_stage=two.decode.stage,
        token_target=two.runtime.create_cpu_target(),
    )
    assert configuration.mode is Mode.UNIFIED
    assert (configuration.decode_input_mode, configuration.logical_capacity) == (None, None)
    configuration.configure_prefill_decode(**two.parts())
    configuration.validate()


def test_a_wrong_bundle_changes_nothing(two: TwoPipelines) -> None:
    configuration = two.configuration()
    with pytest.raises(TypeError, match="decode_output_stage"):
        configuration.configure_prefill_decode(**two.parts(logical_capacity=9, decode_output_stage=None))
    assert configuration.logical_capacity == 32
    configuration.validate()


def test_setters_check_types(two: TwoPipelines) -> None:
    configuration: Any = two.configuration()
    calls: list[Call] = [
        lambda: configuration.set_logical_capacity(True),
        lambda: configuration.set_logical_capacity("8"),
        lambda: configuration.set_decode_input_mode(False),
        lambda: configuration.set_decode_input_mode("CALLER_BOUND"),
        lambda: configuration.add_output_binding(Phase.DECODE, two.decode.stage, 0, None),
        lambda: configuration.add_output_binding(Phase.DECODE, two.decode.pipeline, 0, two.decode.past),
        lambda: configuration.add_output_binding(True, two.decode.stage, 0, two.decode.past),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    for call in (lambda: configuration.set_decode_input_mode(2), lambda: configuration.set_logical_capacity(-1)):
        with pytest.raises(ValueError, match=r"2|-1"):
            call()
    configuration.set_decode_input_mode(1)
    assert configuration.decode_input_mode is Input.PIPELINE_FEEDBACK


def test_what_is_set_after_validation_counts(two: TwoPipelines) -> None:
    configuration = two.configuration()
    configuration.validate()
    configuration.set_output(Phase.DECODE, two.decode.stage, 7, Kind.LOGITS)
    with failing(E_INVALIDARG):
        session_of(two, configuration)
    configuration.set_output(Phase.DECODE, two.decode.stage, LOGITS, Kind.LOGITS)
    session_of(two, configuration)


def test_g103_after_consumption_setters_are_refused_and_getters_work(two: TwoPipelines) -> None:
    configuration = two.configuration()
    session = session_of(two, configuration)
    calls: list[Call] = [
        lambda: configuration.set_logical_capacity(1),
        lambda: configuration.set_decode_input_mode(Input.CALLER_BOUND),
        lambda: configuration.add_output_binding(Phase.DECODE, two.decode.stage, 0, two.decode.past),
        lambda: configuration.configure_prefill_decode(**two.parts()),
        configuration.validate,
    ]
    for call in calls:
        with failing(E_NOT_VALID_STATE) as caught:
            call()
        assert "has consumed this configuration" in str(caught.value)
    assert configuration.logical_capacity == 32
    assert len(configuration.output_bindings) == 2
    assert session.configuration is configuration


def test_both_pipelines_serve_one_session_at_a_time(two: TwoPipelines) -> None:
    first = two.session()
    with failing(BUSY):
        two.session()
    first.close()
    two.session()


def test_closing_the_callers_wrappers_does_not_close_the_session(two: TwoPipelines) -> None:
    session = two.session()
    for part in (two.prefill.stage, two.prefill.pipeline, two.decode.stage, two.decode.pipeline):
        part.close()
    stream = session.generate_tokens([1, 2, 3])
    update = stream.read_next()
    assert update is not None and update.token_id == 6
