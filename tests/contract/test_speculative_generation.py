"""Speculative decoding of sessions over a scripted stage: the same tokens, in fewer runs. They run on the fake, on ONNX
Runtime and on llama.cpp.

Statements 112-116 of genai 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fakes.backend import Script
from fakes.decoders import Decoder, last_row_onnx, llama_decoder, onnx_decoder, random_onnx
from fakes.model_files import ModelFiles, require_engine
from fakes.rig import failing
from fakes.scripted import (
    EOS,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    Compose,
    Composed,
    D,
    X,
    Y,
    composed,
    majority,
    one_hot,
    saying,
    successor,
)
from fakes.two_pipelines import two_pipelines
from genai import CancellationSource, TextGenerationOptions, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationConfiguration,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationResult,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationSpeculativeMethod,
    TextGenerationSpeculativeStatistics,
)
from models.table_decoders import TableDecoder
from winml_lite import NotSupportedError, Runtime, WinMLError
from winml_lite.native.backend import EngineKey

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Method = TextGenerationSpeculativeMethod

NOT_SUPPORTED = 0x80070032
E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F

PERIODIC = [A, B, C, D] * 3
"""A prompt in which the last tokens have occurred before."""
NOISY = TableDecoder(VOCABULARY_SIZE, following=np.array([one_hot((t + 1) % 4) / 2 for t in range(VOCABULARY_SIZE)]))
"""Scripts the next of a, b, c, d with a probability of 0.86 (90 of 105), else one of the other tokens."""


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without times each further position counts as a quarter of a step: what is drafted depends on the text alone."""
    monkeypatch.setattr("genai.speculative_evaluation.perf_counter", lambda: 0.0)


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage that says a, b, c, d over and over, with room for 64 tokens."""
    with compose(tmp_path) as stage:
        yield stage


def options(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def drafting(stage: Composed, method: Method = Method.PROMPT_LOOKUP, count: int = 0) -> TextGenerationConfiguration:
    configuration = stage.configuration()
    configuration.set_speculative_decoding(method, count)
    return configuration


def session_of(
    stage: Composed, configuration: TextGenerationConfiguration, eos: tuple[int, ...] | None = ()
) -> TextGenerationSession:
    return Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, eos).create_session(configuration)


def generated(session: TextGenerationSession, prompt: list[int], given: TextGenerationOptions) -> TextGenerationResult:
    with session.generate_tokens(prompt, given) as stream:
        for _ in stream:
            pass
        return stream.result


def statistics(result: TextGenerationResult) -> TextGenerationSpeculativeStatistics:
    assert result.speculative_statistics is not None
    return result.speculative_statistics


def both(stage: Composed, prompt: list[int], given: TextGenerationOptions) -> tuple[TextGenerationResult, ...]:
    """Results without drafts and with them, of one pipeline."""
    results = []
    for configuration in (stage.configuration(), drafting(stage, count=16)):
        with session_of(stage, configuration, None) as session:
            results.append(generated(session, prompt, given))
    return tuple(results)


# --- the same tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [successor, majority])
def test_g112_lookup_gives_the_greedy_tokens(tmp_path: Path, compose: Compose, script: TableDecoder) -> None:
    with compose(tmp_path, script) as stage:
        plain, drafted = both(stage, PERIODIC, options(40))
    assert drafted.token_ids == plain.token_ids
    assert statistics(drafted).accepted_draft_token_count > 10


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fields", [{}, {"top_k": 3, "repetition_penalty": 1.1, "frequency_penalty": 0.2}])
def test_g112_lookup_gives_the_sampled_tokens(
    tmp_path: Path, compose: Compose, seed: int, fields: dict[str, object]
) -> None:
    with compose(tmp_path, NOISY) as stage:
        plain, drafted = both(stage, PERIODIC, options(40, temperature=1, seed=seed, **fields))
    assert drafted.token_ids == plain.token_ids
    assert statistics(drafted).draft_token_count > statistics(drafted).accepted_draft_token_count > 0


def test_g112_the_end_is_the_same(tmp_path: Path, compose: Compose) -> None:
    answer = [A, B, C, D, A, B, C, D, A, X, A, B, C, D, EOS]
    with compose(tmp_path, saying(len(PERIODIC), *answer)) as stage:
        plain, drafted = both(stage, PERIODIC, options(40))
    assert drafted.token_ids == plain.token_ids == tuple(answer[:-1])
    assert drafted.finish_reason is plain.finish_reason is Reason.EOS_TOKEN
    assert drafted.text == plain.text


# --- statistics -------------------------------------------------------------------------------------------------------


def test_g113_statistics_of_a_text_that_repeats(stage: Composed) -> None:
    with session_of(stage, drafting(stage)) as session:
        found = statistics(generated(session, PERIODIC, options(18)))
    assert found.method is Method.PROMPT_LOOKUP
    assert found.failure is None
    assert found.accepted_draft_token_count == found.draft_token_count > 0
    assert found.acceptance_rate == 1.0
    sequential = 18 - found.accepted_draft_token_count - found.verification_step_count
    assert sequential == 3  # the first row is that of the prompt, and two single steps tell what a step costs


def test_g113_statistics_of_a_text_that_does_not(tmp_path: Path, compose: Compose) -> None:
    with compose(tmp_path, saying(3, A, C, B, D)) as stage, session_of(stage, drafting(stage)) as session:
        found = statistics(generated(session, [X, Y, X], options(4)))
    assert found == TextGenerationSpeculativeStatistics(Method.PROMPT_LOOKUP, 0, 0, 0)
    assert found.acceptance_rate == 0.0


def test_g113_wrong_drafts_are_drafted_and_not_accepted(tmp_path: Path, compose: Compose) -> None:
    answer = [A, B, C, X, A, B, C, Y, A, B, C, X, A, B, C, Y]  # what follows a, b, c was another the last time
    with compose(tmp_path, saying(12, *answer)) as stage, session_of(stage, drafting(stage)) as session:
        found = statistics(generated(session, PERIODIC, options(16)))
    assert 0 < found.accepted_draft_token_count < found.draft_token_count
    assert 0 < found.acceptance_rate < 1


def test_g116_without_speculation_there_are_no_statistics(stage: Composed) -> None:
    with session_of(stage, stage.configuration()) as session:
        assert generated(session, PERIODIC, options(8)).speculative_statistics is None
    with session_of(stage, drafting(stage, Method.NONE)) as session:
        assert generated(session, PERIODIC, options(8)).speculative_statistics is None


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 10])
def test_g114_the_token_limit_holds(stage: Composed, count: int) -> None:
    with session_of(stage, drafting(stage, count=16)) as session:
        updates = list(session.generate_tokens(PERIODIC, options(count)))
    assert [update.token_id for update in updates] == ([A, B, C, D] * 3)[:count]


@pytest.mark.parametrize("capacity", [13, 14, 15, 16, 17, 20, 21])
def test_g114_the_capacity_holds(tmp_path: Path, compose: Compose, capacity: int) -> None:
    with compose(tmp_path, capacity=capacity) as stage, session_of(stage, drafting(stage, count=16)) as session:
        result = generated(session, PERIODIC, options(99))
        state = session.sequence_state
    assert result.finish_reason is Reason.SEQUENCE_CAPACITY
    assert result.generated_token_count == capacity - 12
    assert (state.evaluated_token_count, state.retained_token_count) == (capacity - 1, capacity)


def test_g114_every_token_is_an_update(stage: Composed) -> None:
    with (
        session_of(stage, drafting(stage, count=16)) as session,
        session.generate_tokens(PERIODIC, options(30)) as stream,
    ):
        updates = list(stream)
        result = stream.result
    assert [update.token_id for update in updates] == [A, B, C, D] * 7 + [A, B]
    assert [update.fragment for update in updates] == list("abcd" * 7 + "ab")
    assert result.generated_token_count == 30


def test_g114_a_draft_is_no_longer_than_asked(stage: Composed) -> None:
    with session_of(stage, drafting(stage, count=2)) as session:
        found = statistics(generated(session, PERIODIC, options(30)))
    assert found.draft_token_count == 2 * found.verification_step_count
    assert found.verification_step_count == 9  # of 27 tokens


def test_three_tokens_are_drafted_where_nothing_is_said(stage: Composed) -> None:
    with session_of(stage, drafting(stage)) as session:
        found = statistics(generated(session, PERIODIC, options(30)))
    assert found.draft_token_count == 2 + 6 * 3  # the first draft is a short one
    assert found.verification_step_count == 7


# --- what cannot speculate --------------------------------------------------------------------------------------------


def test_g115_without_a_predictor_there_is_no_session_and_the_configuration_stays(stage: Composed) -> None:
    configuration = drafting(stage, Method.MODEL)
    with failing(NOT_SUPPORTED, NotSupportedError):
        session_of(stage, configuration)
    with failing(NOT_SUPPORTED, NotSupportedError):
        configuration.validate()
    configuration.set_speculative_decoding(Method.NONE)
    with session_of(stage, configuration) as session:
        assert generated(session, PERIODIC, options(2)).token_ids == (A, B)


def test_a_draft_model_needs_a_pipeline(stage: Composed) -> None:
    configuration = drafting(stage, Method.DRAFT_MODEL)
    with failing(E_INVALIDARG):
        session_of(stage, configuration)
    with_draft(configuration, stage)
    session_of(stage, configuration).close()


def test_a_draft_pipeline_is_another_one(stage: Composed) -> None:
    configuration = drafting(stage, Method.DRAFT_MODEL)
    configuration.set_draft_pipeline(
        pipeline=stage.pipeline,
        token_input_stage=stage.stage,
        token_input_index=0,
        output_stage=stage.stage,
        output_index=0,
        state_owner_stage=stage.stage,
    )
    with failing(E_INVALIDARG):
        session_of(stage, configuration)


def test_the_stages_of_a_draft_are_in_its_pipeline(stage: Composed) -> None:
    other, pipeline = stage.another()
    configuration = drafting(stage, Method.DRAFT_MODEL)
    for token_stage, owner in ((stage.stage, other), (other, stage.stage)):
        configuration.set_draft_pipeline(
            pipeline=pipeline,
            token_input_stage=token_stage,
            token_input_index=0,
            output_stage=other,
            output_index=0,
            state_owner_stage=owner,
        )
        with failing(E_INVALIDARG):
            session_of(stage, configuration)


def test_a_draft_pipeline_has_one_session(stage: Composed) -> None:
    first = drafting(stage, Method.DRAFT_MODEL)
    other, pipeline = with_draft(first, stage)
    with session_of(stage, first):
        stage.stage, stage.pipeline = other, pipeline
        with failing(0x800700AA):
            session_of(stage, stage.configuration())
    session_of(stage, stage.configuration()).close()


def test_tokens_that_the_pipeline_chooses_cannot_be_verified(tmp_path: Path, compose: Compose) -> None:
    with compose(tmp_path) as stage:
        configuration = drafting(stage)
        phase, kind = TextGenerationPipelinePhase.UNIFIED, TextGenerationOutputKind.SAMPLED_TOKEN
        configuration.set_output(phase, stage.stage, 0, kind)
        with failing(E_INVALIDARG):  # logits are no tokens
            configuration.validate()
        configuration.set_output(phase, stage.stage, 0, TextGenerationOutputKind.LOGITS)
        configuration.validate()


def test_two_pipelines_cannot_speculate(onnx_engine: str, tmp_path: Path, files: ModelFiles, script: Script) -> None:
    with two_pipelines(tmp_path, files, script) as two:
        configuration = two.configuration()
        configuration.set_speculative_decoding(Method.PROMPT_LOOKUP)
        with failing(NOT_SUPPORTED, NotSupportedError):
            configuration.validate()
        configuration.set_speculative_decoding(Method.NONE)
        configuration.validate()


def decoder_configuration(decoder: Decoder) -> TextGenerationConfiguration:
    configuration = Tasks(decoder.runtime).create_text_generation_configuration()
    configuration.configure_unified(
        pipeline=decoder.pipeline,
        token_input_stage=decoder.stage,
        token_input_index=0,
        output_stage=decoder.stage,
        output_index=0,
        output_kind=TextGenerationOutputKind.LOGITS,
        state_owner_stage=decoder.stage,
        token_target=decoder.runtime.create_cpu_target(),
    )
    configuration.set_speculative_decoding(Method.PROMPT_LOOKUP)
    return configuration


def test_a_graph_with_the_last_row_only_cannot_speculate(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        decoder_configuration(onnx_decoder(runtime, last_row_onnx(files), 16)).validate()
    assert "converted again" in str(caught.value)
    decoder_configuration(onnx_decoder(runtime, random_onnx(files, "gqa", all_logits=False), 16)).validate()


def test_recurrent_state_must_be_prepared_to_go_back(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        decoder_configuration(llama_decoder(runtime, files.hybrid_gguf, 16)).validate()
    assert "draft_token_limit_hint" in str(caught.value)
    decoder_configuration(llama_decoder(runtime, files.hybrid_gguf, 16, 2)).validate()


def test_a_stage_with_a_predictor_drafts_with_it(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    decoder = llama_decoder(runtime, files.hybrid_gguf, 128, 2, predicts=True)
    configuration = decoder_configuration(decoder)
    configuration.set_speculative_decoding(Method.MODEL, 16)
    with Tokenizer.from_file(files.hybrid_gguf) as tokenizer:
        task = Tasks(runtime).create_text_generation_task(tokenizer, ())
        with task.create_session(configuration) as session:
            found = statistics(generated(session, [5, 9, 33, 120, 7], options(60)))
    assert found.method is Method.MODEL
    assert 0 < found.accepted_draft_token_count <= found.draft_token_count <= 2 * found.verification_step_count


def test_the_stage_of_the_output_keeps_the_state(both_engines: str, runtime: Runtime, files: ModelFiles) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (builder.add_model_stage(runtime.load_model(files.scripted_gguf)) for _ in range(2))
    pipeline = builder.build()
    for token_stage, output_stage in ((first, second), (second, first)):
        configuration = Tasks(runtime).create_text_generation_configuration()
        configuration.configure_unified(
            pipeline=pipeline,
            token_input_stage=token_stage,
            token_input_index=0,
            output_stage=output_stage,
            output_index=0,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=first,
            token_target=runtime.create_cpu_target(),
        )
        configuration.validate()
        configuration.set_speculative_decoding(Method.PROMPT_LOOKUP)
        with failing(NOT_SUPPORTED, NotSupportedError):
            configuration.validate()


def test_drafting_is_set_by_known_methods_and_counts(stage: Composed) -> None:
    configuration = stage.configuration()
    with pytest.raises(TypeError):
        configuration.set_speculative_decoding("lookup")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        configuration.set_speculative_decoding(9)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        configuration.set_speculative_decoding(Method.PROMPT_LOOKUP, True)
    with pytest.raises(ValueError):
        configuration.set_speculative_decoding(Method.PROMPT_LOOKUP, -1)


def test_a_consumed_configuration_is_not_changed(stage: Composed) -> None:
    configuration = drafting(stage)
    with session_of(stage, configuration):
        with failing(E_NOT_VALID_STATE):
            configuration.set_speculative_decoding(Method.NONE)
        with failing(E_NOT_VALID_STATE):
            with_draft(configuration, stage)


# --- a second model ---------------------------------------------------------------------------------------------------


def with_draft(configuration: TextGenerationConfiguration, stage: Composed, script: TableDecoder = successor) -> tuple:  # type: ignore[type-arg]
    """Give a configuration a second pipeline that follows `script`."""
    other, pipeline = stage.build(script)
    configuration.set_draft_pipeline(
        pipeline=pipeline,
        token_input_stage=other,
        token_input_index=0,
        output_stage=other,
        output_index=0,
        state_owner_stage=other,
    )
    return other, pipeline


def test_a_draft_model_that_agrees(stage: Composed) -> None:
    configuration = drafting(stage, Method.DRAFT_MODEL, 4)
    other, _ = with_draft(configuration, stage)
    with session_of(stage, configuration) as session:
        result = generated(session, [X, Y, A], options(30))
        assert result.token_ids == tuple(([B, C, D, A] * 8)[:30])
        found = statistics(result)
        assert found.method is Method.DRAFT_MODEL
        assert found.accepted_draft_token_count == found.draft_token_count > 15
        assert session.sequence_state.evaluated_token_count == 32
    assert other.sequence_position > 25


@pytest.mark.parametrize("engine", ["ort", "llama"])
def test_a_draft_model_that_never_agrees_is_soon_left_alone(
    tmp_path: Path, files: ModelFiles, engine: EngineKey
) -> None:
    require_engine(engine)
    with composed(tmp_path, engine=engine, models=files.folder) as stage:
        configuration = drafting(stage, Method.DRAFT_MODEL, 4)
        with_draft(configuration, stage, saying(1, X, X))
        with session_of(stage, configuration) as session:
            result = generated(session, [X, Y, A], options(40))
    assert result.token_ids == (B, C, D, A) * 10
    assert statistics(result).accepted_draft_token_count == 0
    assert statistics(result).verification_step_count == 4  # two, one after 8 more steps, one after 16 more


def test_a_draft_model_follows_the_next_operation(stage: Composed) -> None:
    configuration = drafting(stage, Method.DRAFT_MODEL, 4)
    with_draft(configuration, stage)
    with session_of(stage, configuration) as session:
        generated(session, [X, Y, A], options(10))
        result = generated(session, [X, Y, A, B, X, C], options(20))
        assert result.token_ids == ((D, A, B, C) * 5)
        with session.continue_tokens([], options(10)) as stream:
            assert [update.token_id for update in stream] == [D, A, B, C, D, A, B, C, D, A]
            assert statistics(stream.result).accepted_draft_token_count > 5


def test_a_draft_model_that_fails_does_not_fail_the_generation(stage: Composed) -> None:
    configuration = drafting(stage, Method.DRAFT_MODEL, 4)
    other, _ = with_draft(configuration, stage)
    executor = other.underlying_object.executor

    def fail() -> None:
        raise WinMLError(0x80004005, "", "broken")

    executor.run = fail
    with session_of(stage, configuration) as session:
        result = generated(session, [X, Y, A], options(6))
    assert result.token_ids == (B, C, D, A, B, C)
    assert "broken" in str(statistics(result).failure)
    assert statistics(result).draft_token_count == 0


# --- among verified rows ----------------------------------------------------------------------------------------------


def _leave(session: TextGenerationSession, reads: int, end: Callable[[object], object]) -> None:
    stream = session.generate_tokens(PERIODIC, options(40))
    for _ in range(reads):
        stream.read_next()
    end(stream)
    stream.close()


@pytest.mark.parametrize("reads", [3, 4, 5, 6, 7, 8, 9])
def test_a_stream_may_be_closed_at_any_token(stage: Composed, reads: int) -> None:
    with session_of(stage, drafting(stage, count=16)) as session:
        _leave(session, reads, lambda stream: None)
        assert session.state is State.READY
        assert session.retained_token_ids == (*PERIODIC, *(PERIODIC * 2)[:reads])
        assert session.sequence_state.evaluated_token_count == 11 + reads
        assert stage.stage.sequence_position == 11 + reads
        with session.continue_tokens([], options(4)) as stream:
            assert [update.token_id for update in stream] == (PERIODIC * 2)[reads : reads + 4]


@pytest.mark.parametrize("reads", [3, 5, 7])
def test_a_stream_may_be_cancelled_at_any_token(stage: Composed, reads: int) -> None:
    with session_of(stage, drafting(stage, count=16)) as session:
        source = CancellationSource()
        with session.generate_tokens(PERIODIC, options(40), cancellation=source) as stream:
            for _ in range(reads):
                stream.read_next()
            source.cancel()
            assert stream.read_next() is None
            assert stream.result.finish_reason is Reason.CANCELED
        assert stage.stage.sequence_position == 11 + reads
        assert generated(session, PERIODIC, options(8)).token_ids == (A, B, C, D, A, B, C, D)


def test_a_prompt_that_shares_a_drafted_prefix_is_evaluated_from_there(stage: Composed) -> None:
    with session_of(stage, drafting(stage, count=16)) as session:
        _leave(session, 9, lambda stream: None)
        with session.generate_tokens([*PERIODIC, A, B, C, D, X, A], options(2)) as stream:
            assert [update.token_id for update in stream] == [B, C]
            assert stream.result.timings.evaluated_prompt_token_count == 2
