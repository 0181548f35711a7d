"""The parts of a text generator and what fits together (genai 5.1, 5.2): statements 103 and 104, and their causes.

`stage` is on the fake, on ONNX Runtime and on llama.cpp, `fake_stage` is for models that no tables make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import VOCABULARY_SIZE, Compose, Composed, composed, one_hot, write_tokenizer
from genai import NotSupportedError, TextGenerationOptions, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationConfiguration,
    TextGenerationConfigurationMode,
    TextGenerationOutputKind,
    TextGenerationPhaseBinding,
    TextGenerationPipelinePhase,
    TextGenerationSessionState,
)
from winml_lite import TensorDataType
from winml_lite.values import FREE_DIMENSION

Phase = TextGenerationPipelinePhase
Kind = TextGenerationOutputKind
Call = Callable[[], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
NOT_SUPPORTED = 0x80070032


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path) as stage:
        yield stage


@pytest.fixture
def fake_stage(tmp_path: Path) -> Iterator[Composed]:
    with composed(tmp_path) as stage:
        yield stage


def test_a_complete_configuration_is_valid(stage: Composed) -> None:
    configuration = stage.configuration()
    configuration.validate()
    configuration.validate()
    assert configuration.mode is TextGenerationConfigurationMode.UNIFIED


def test_the_bundle_returns_the_configuration_and_fills_every_getter(stage: Composed) -> None:
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    assert configuration.configure_unified(**stage.parts(), tokenizer=stage.tokenizer) is configuration
    assert configuration.runtime is stage.runtime
    assert configuration.phase(Phase.UNIFIED) == TextGenerationPhaseBinding(
        stage.pipeline, stage.stage, 0, stage.stage, 0, Kind.LOGITS
    )
    assert configuration.pipeline is stage.pipeline
    assert configuration.token_input_stage is stage.stage
    assert configuration.token_input_index == 0
    assert configuration.output_stage is stage.stage
    assert configuration.output_index == 0
    assert configuration.output_kind is Kind.LOGITS
    assert configuration.state_owner_stage is stage.stage
    assert configuration.token_target is stage.target
    assert configuration.tokenizer is stage.tokenizer
    assert (configuration.decode_input_mode, configuration.logical_capacity) == (None, None)
    assert configuration.output_bindings == ()


def test_a_fresh_configuration_has_nothing(stage: Composed) -> None:
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    assert configuration.phase(Phase.UNIFIED) == TextGenerationPhaseBinding()
    assert configuration.tokenizer is None
    with failing(E_NOT_VALID_STATE) as caught:
        configuration.validate()
    assert "a pipeline is missing" in str(caught.value)


SETTERS: dict[str, Callable[[TextGenerationConfiguration, Composed], object]] = {
    "a pipeline": lambda c, s: c.set_pipeline(Phase.UNIFIED, s.pipeline),
    "a token input": lambda c, s: c.set_token_input(Phase.UNIFIED, s.stage, 0),
    "an output": lambda c, s: c.set_output(Phase.UNIFIED, s.stage, 0, Kind.LOGITS),
    "a state owner stage": lambda c, s: c.set_state_owner_stage(s.stage),
    "a token target": lambda c, s: c.set_token_target(s.target),
}


@pytest.mark.parametrize("part", SETTERS)
def test_each_part_is_required(stage: Composed, part: str) -> None:
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    for other in SETTERS.keys() - {part}:
        SETTERS[other](configuration, stage)
    with failing(E_NOT_VALID_STATE) as caught:
        configuration.validate()
    assert f"{part} is missing" in str(caught.value)
    SETTERS[part](configuration, stage)
    configuration.validate()


@pytest.mark.parametrize("change", ["token_input_index", "output_index"])
def test_an_index_out_of_range_is_refused(stage: Composed, change: str) -> None:
    with failing(E_INVALIDARG):
        _configured(stage, **{change: 2}).validate()


def test_a_stage_of_another_pipeline_is_refused(stage: Composed) -> None:
    stray, _ = stage.another()
    for change in ("token_input_stage", "output_stage", "state_owner_stage"):
        with failing(E_INVALIDARG) as caught:
            _configured(stage, **{change: stray}).validate()
        assert "is not in the pipeline" in str(caught.value)


def test_objects_of_another_runtime_are_refused(stage: Composed, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with composed(tmp_path / "other") as other:
        for parts in ({"token_target": other.target}, {"pipeline": other.pipeline}):
            with failing(E_INVALIDARG) as caught:
                _configured(stage, **parts).validate()
            assert "another Runtime" in str(caught.value)


def test_a_token_input_must_be_integer(fake_stage: Composed) -> None:
    fake_stage.executor.inputs = ((TensorDataType.FLOAT32, (1, FREE_DIMENSION)),)
    with failing(E_INVALIDARG) as caught:
        fake_stage.configuration().validate()
    assert "token input" in str(caught.value)


def test_a_token_input_for_a_fixed_number_of_tokens_is_refused(fake_stage: Composed) -> None:
    fake_stage.executor.inputs = ((TensorDataType.INT64, (1, 7)),)
    with failing(E_INVALIDARG):
        fake_stage.configuration().validate()


def test_logits_must_be_floating(fake_stage: Composed) -> None:
    fake_stage.executor.outputs = ((TensorDataType.INT64, (1, VOCABULARY_SIZE)),)
    with failing(E_INVALIDARG) as caught:
        fake_stage.configuration().validate()
    assert "logits output" in str(caught.value)


def test_logits_must_cover_the_vocabulary(fake_stage: Composed) -> None:
    fake_stage.executor.outputs = ((TensorDataType.FLOAT32, (1, 15)),)
    with failing(E_INVALIDARG) as caught:
        _configured(fake_stage, tokenizer=fake_stage.tokenizer).validate()
    assert "15 entries, the tokenizer 16 tokens" in str(caught.value)


def test_the_tokenizer_of_the_task_counts_when_the_configuration_has_none(fake_stage: Composed) -> None:
    fake_stage.executor.outputs = ((TensorDataType.FLOAT32, (1, 15)),)
    configuration = fake_stage.configuration()
    configuration.validate()
    with failing(E_INVALIDARG):
        Tasks(fake_stage.runtime).create_text_generation_task(fake_stage.tokenizer).create_session(configuration)


def test_a_state_owner_without_state_is_not_supported(fake_stage: Composed) -> None:
    fake_stage.executor.sequence = None
    with failing(NOT_SUPPORTED, NotSupportedError):
        fake_stage.configuration().validate()


def test_logits_are_no_sampled_tokens(stage: Composed) -> None:
    with failing(E_INVALIDARG) as caught:
        _configured(stage, output_kind=Kind.SAMPLED_TOKEN).validate()
    assert "sampled token output" in str(caught.value)


def test_setters_check_types(stage: Composed) -> None:
    configuration: Any = Tasks(stage.runtime).create_text_generation_configuration()
    calls: list[Call] = [
        lambda: configuration.set_pipeline(Phase.UNIFIED, stage.stage),
        lambda: configuration.set_pipeline(True, stage.pipeline),
        lambda: configuration.set_token_input(Phase.UNIFIED, stage.stage, True),
        lambda: configuration.set_output(Phase.UNIFIED, stage.pipeline, 0, Kind.LOGITS),
        lambda: configuration.set_state_owner_stage(None),
        lambda: configuration.set_token_target(stage.stage),
        lambda: configuration.set_tokenizer("tokenizer.json"),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="7"):
        configuration.set_pipeline(7, stage.pipeline)


def test_g103_after_consumption_setters_are_refused_and_getters_work(stage: Composed) -> None:
    configuration = stage.configuration()
    session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer).create_session(configuration)
    calls: list[Call] = [
        lambda: configuration.set_pipeline(Phase.UNIFIED, stage.pipeline),
        lambda: configuration.set_state_owner_stage(stage.stage),
        lambda: configuration.set_tokenizer(stage.tokenizer),
        configuration.validate,
    ]
    for call in calls:
        with failing(E_NOT_VALID_STATE) as caught:
            call()
        assert "has consumed this configuration" in str(caught.value)
    assert configuration.pipeline is stage.pipeline
    assert session.configuration is configuration


def test_a_configuration_is_a_context_manager(stage: Composed) -> None:
    with stage.configuration() as configuration:
        session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer).create_session(configuration)
    assert configuration.pipeline is stage.pipeline
    for call in (configuration.validate, configuration.__enter__):
        with pytest.raises(RuntimeError, match="TextGenerationConfiguration is closed"):
            call()
    assert session.generate("a", TextGenerationOptions(2)).text == "bc"


def test_validating_does_not_touch_the_bindings(fake_stage: Composed) -> None:
    binds = fake_stage.script.binds
    fake_stage.configuration().validate()
    assert fake_stage.script.binds == binds


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_tasks_take_a_runtime_only() -> None:
    with pytest.raises(TypeError, match="Runtime"):
        Tasks(object())  # type: ignore[arg-type]


def test_tasks_keep_the_runtime_until_closed(stage: Composed) -> None:
    with Tasks(stage.runtime) as tasks:
        assert tasks.runtime is stage.runtime
    tasks.close()
    with pytest.raises(RuntimeError, match="Tasks is closed"):
        tasks.runtime  # noqa: B018


def test_the_default_eos_ids_come_from_the_tokenizer(stage: Composed) -> None:
    tasks = Tasks(stage.runtime)
    assert tasks.create_text_generation_task(stage.tokenizer).default_eos_token_ids == (13,)
    assert tasks.create_text_generation_task(stage.tokenizer, ()).default_eos_token_ids == ()
    assert tasks.create_text_generation_task(stage.tokenizer, iter([3, 2])).default_eos_token_ids == (3, 2)


def test_a_task_checks_its_arguments(stage: Composed) -> None:
    tasks: Any = Tasks(stage.runtime)
    with pytest.raises(TypeError, match="Tokenizer"):
        tasks.create_text_generation_task("tokenizer.json")
    with pytest.raises(TypeError, match="eos token id"):
        tasks.create_text_generation_task(stage.tokenizer, [True])
    with pytest.raises(ValueError, match="eos token id"):
        tasks.create_text_generation_task(stage.tokenizer, [-1])
    with pytest.raises(TypeError, match="default_configuration"):
        tasks.create_text_generation_task(stage.tokenizer, default_configuration=stage.pipeline)
    with pytest.raises(TypeError, match="configuration"):
        tasks.create_text_generation_task(stage.tokenizer).create_session(None)


def test_a_closed_task_raises(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
    task.close()
    with pytest.raises(RuntimeError, match="TextGenerationTask is closed"):
        task.create_session(stage.configuration())


def test_a_session_goes_on_when_everything_it_was_made_of_is_closed(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
    session = task.create_session(stage.configuration())
    for part in (task, stage.pipeline, stage.stage, stage.target, stage.tokenizer, stage.runtime):
        part.close()
    assert session.generate("a", TextGenerationOptions(3)).text == "bcd"
    session.close()
    assert session.state is TextGenerationSessionState.CLOSED


def test_a_model_may_name_fewer_tokens_than_it_has_logits(fake_stage: Composed) -> None:
    fake_stage.backend.vocabulary_size = 20
    fake_stage.executor.outputs = ((TensorDataType.FLOAT32, (1, 20)),)
    fake_stage.follow(lambda history: one_hot(1, 20))
    configuration = _configured(fake_stage, tokenizer=fake_stage.tokenizer)
    session = Tasks(fake_stage.runtime).create_text_generation_task(fake_stage.tokenizer).create_session(configuration)
    assert session.generate("a").text == "b" * 63


def _configured(stage: Composed, **changes: Any) -> TextGenerationConfiguration:
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    return configuration.configure_unified(**{**stage.parts(), **changes})


def test_a_tokenizer_folder_may_be_opened_twice(stage: Composed, tmp_path: Path) -> None:
    with Tokenizer.from_file(write_tokenizer(tmp_path / "copy")) as copy:
        assert copy.encode("abc") == stage.tokenizer.encode("abc") == [0, 1, 2]
