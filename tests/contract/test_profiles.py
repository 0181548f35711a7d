"""Compositions beside one pipeline with logits (genai §6.8, 6.9): pipelines that choose their tokens, two pipelines.

Statements 108-110 of genai 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.scripted import EOS, A, B, C, Compose, Composed, D, saying, successor
from fakes.two_pipelines import LOGITS, PRESENT, TwoPipelines, tensor_of, two_pipelines
from genai import NotSupportedError, TextGenerationOptions
from genai.tasks import (
    Tasks,
    TextGenerationDecodeInputMode,
    TextGenerationExecutionProfile,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationSegment,
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationStream,
)
from winml_lite import PipelineBuilder, Stage, TensorDataType

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure
Profile = TextGenerationExecutionProfile
Phase = TextGenerationPipelinePhase
Kind = TextGenerationOutputKind
Call = Callable[[], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
NOT_SUPPORTED = 0x80070032
INSUFFICIENT_BUFFER = 0x8007007A
INVALID_DATA = 0x8007000D
E_FAIL = 0x80004005
BUSY = 0x800700AA


def options(count: int, **fields: Any) -> TextGenerationOptions:
    return TextGenerationOptions(count, **fields)


def ids(stream: TextGenerationStream) -> list[int | None]:
    return [update.token_id for update in stream]


@pytest.fixture
def two(onnx_engine: str, tmp_path: Path, files: ModelFiles, script: Script) -> Iterator[TwoPipelines]:
    """Two pipelines with the state of the caller, on the fake and on ONNX Runtime."""
    with two_pipelines(tmp_path, files, script) as two:
        yield two


@pytest.fixture
def fed_back(onnx_engine: str, tmp_path: Path, files: ModelFiles, script: Script) -> Iterator[TwoPipelines]:
    """The same, and the second pipeline feeds its token back."""
    with two_pipelines(tmp_path, files, script, feeds_back=True) as two:
        yield two


def read_moving(two: TwoPipelines, stream: TextGenerationStream) -> list[int | None]:
    """Read to the end as a caller does who moves the state after each read."""
    read = []
    while (update := stream.read_next()) is not None:
        read.append(update.token_id)
        two.move(len(read))
    return read


# --- pipelines that choose: one pipeline ------------------------------------------------------------------------------


class Chooser:
    """Adds a stage that chooses the likeliest token of the last row, plus `shift`, as a tensor of some shape."""

    def __init__(self, shape: tuple[int | None, ...] = (1,), shift: int = 0, fed_back: bool = False) -> None:
        self.shape = shape
        self.shift = shift
        self.fed_back = fed_back
        self.stage: Stage | None = None

    def __call__(self, builder: PipelineBuilder, decoder: Stage) -> None:
        is_onnx = decoder.supports_symbolic_dimensions
        rows = (None,) * (3 if is_onnx else 2)
        self.data_type = TensorDataType.INT64 if is_onnx else TensorDataType.INT32
        processor = self.runtime.create_processor(
            self.choose, [(TensorDataType.FLOAT32, rows)], [(self.data_type, self.shape)]
        )
        self.stage = builder.add_processor_stage(processor)
        builder.connect(decoder, 0, self.stage, 0)
        if self.fed_back:
            builder.connect_next_iteration(self.stage, 0, decoder, 0)

    def choose(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.integer[Any]]:
        token = int(logits.reshape(-1, logits.shape[-1])[-1].argmax()) + self.shift
        return np.full([extent or 1 for extent in self.shape], token, self.data_type.name.lower())

    def parts(self, stage: Composed, logits: Any = successor) -> dict[str, Any]:
        """What `configure_unified` takes, with the chosen token as the output."""
        self.runtime = stage.runtime
        if isinstance(stage.engine, FakeBackend):
            stage.follow(logits)
        decoder, pipeline = stage.build(logits, self)
        own = {"pipeline": pipeline, "token_input_stage": decoder, "state_owner_stage": decoder}
        chosen = {"output_stage": self.stage, "output_kind": Kind.SAMPLED_TOKEN}
        return stage.parts() | own | chosen

    def session(self, stage: Composed, logits: Any = successor, eos: tuple[int, ...] = ()) -> TextGenerationSession:
        configuration = Tasks(stage.runtime).create_text_generation_configuration()
        configuration.configure_unified(**self.parts(stage, logits))
        return Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, eos).create_session(configuration)


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage that says a, b, c, d over and over, on every engine."""
    with compose(tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("shape", [(1,), (1, 1), (None,), (1, None), ()])
def test_g109_the_token_that_a_pipeline_chooses_is_taken(stage: Composed, shape: tuple[int | None, ...]) -> None:
    session = Chooser(shape).session(stage)
    with session.generate_tokens([A, B], options(3)) as stream:
        assert [update.fragment for update in stream] == ["c", "d", "a"]
    assert session.retained_token_ids == (A, B, C, D, A)
    assert stage.script.runs == 3


SAMPLING: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.1,
    "repetition_penalty": 1.5,
    "presence_penalty": 1.0,
    "frequency_penalty": -1.0,
    "seed": 7,
    "min_new_tokens": 1,
    "logit_bias": {A: 1.0},
    "ignore_eos": True,
    "no_repeat_ngram_size": 2,
    "typical_p": 0.5,
    "top_n_sigma": 1.0,
    "xtc_probability": 0.5,
    "dry_multiplier": 1.0,
    "logits_processors": (lambda ids, row: row,),
    "top_logprobs": 2,
}


@pytest.mark.parametrize("name", SAMPLING)
def test_g109_an_option_that_needs_logits_is_refused(stage: Composed, name: str) -> None:
    session = Chooser().session(stage)
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        session.generate_tokens([A], options(2, **{name: SAMPLING[name]}))
    assert name in str(caught.value)
    assert session.state is State.EMPTY
    assert stage.script.runs == 0


def test_g109_stops_and_limits_still_count(stage: Composed) -> None:
    session = Chooser().session(stage)
    result = session.generate("a", options(9, stop_token_ids=[D]))
    assert (result.finish_reason, result.token_ids) == (Reason.STOP_TOKEN, (B, C))
    result = session.generate("a", options(9, stop=["cd"], repetition_penalty_window=5))
    assert (result.finish_reason, result.text) == (Reason.STOP_TOKEN, "b")
    result = session.generate("a", options(2))
    assert (result.finish_reason, result.token_ids) == (Reason.MAX_TOKENS, (B, C))


def test_g109_eos_ends_a_chosen_text(stage: Composed) -> None:
    result = Chooser().session(stage, saying(1, B, EOS), (EOS,)).generate("a")
    assert (result.finish_reason, result.token_ids) == (Reason.EOS_TOKEN, (B,))


def test_g109_a_chosen_sequence_is_continued_and_used_again(stage: Composed) -> None:
    session = Chooser().session(stage)
    session.generate_tokens([A, B], options(2)).close()
    with session.generate_tokens([A, B], options(2)) as stream:
        assert ids(stream) == [C, D]
    with session.continue_tokens((), options(2)) as stream:
        assert ids(stream) == [A, B]
    with session.generate_tokens([A, B, C, A], options(1)) as stream:
        assert ids(stream) == [B]
        assert stream.result.timings.evaluated_prompt_token_count == 1


def test_g109_a_long_prompt_is_one_run_of_a_pipeline_that_chooses(tmp_path: Path, compose: Compose) -> None:
    with compose(tmp_path, capacity=256) as stage:
        session = Chooser().session(stage)
        with session.generate_tokens([A, B] * 100, options(1)) as stream:
            assert ids(stream) == [C]
        assert stage.script.runs == 1


def test_g109_a_token_outside_the_vocabulary_is_an_error(stage: Composed) -> None:
    result = Chooser(shift=14).session(stage).generate("bb", options(3))  # c is 2, and 16 is none
    assert (result.finish_reason, result.error_code, result.token_ids) == (Reason.ERROR, INVALID_DATA, ())
    assert "token 16 of a vocabulary of 16" in (result.error_message or "")


def test_g109_a_constraint_needs_logits(stage: Composed) -> None:
    pytest.importorskip("llguidance")
    session = Chooser().session(stage)
    constraint = stage.tokenizer.create_constraint_from_choices(["b"])
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_tokens_with_constraint([A], constraint)
    assert session.state is State.EMPTY


def test_capabilities_of_a_pipeline_that_chooses(stage: Composed) -> None:
    found = Chooser().session(stage).capabilities
    assert (found.execution_profile, found.output_kind) == (Profile.SINGLE_PIPELINE, Kind.SAMPLED_TOKEN)
    assert (found.supports_continuation, found.supports_segmented_prompts) == (True, True)
    assert (found.supports_constraints, found.supports_constrained_continuation) == (False, False)
    assert (found.supports_embedding_segments, found.supports_constrained_embedding_segments) == (False, False)


def test_a_sampled_token_output_must_be_integer_and_logits_floating(stage: Composed) -> None:
    parts = Chooser().parts(stage)
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    with failing(E_INVALIDARG) as caught:
        configuration.configure_unified(**parts | {"output_kind": Kind.LOGITS}).validate()
    assert "logits output" in str(caught.value)
    decoder = {"output_stage": parts["token_input_stage"]}
    with failing(E_INVALIDARG) as caught:
        configuration.configure_unified(**parts | decoder).validate()
    assert "sampled token output" in str(caught.value)
    configuration.configure_unified(**parts).validate()


def test_one_pipeline_must_not_feed_its_token_input_back(stage: Composed) -> None:
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    with failing(E_INVALIDARG) as caught:
        configuration.configure_unified(**Chooser((1, 1), fed_back=True).parts(stage)).validate()
    assert "PIPELINE_FEEDBACK" in str(caught.value)


# --- two pipelines, the caller binds ----------------------------------------------------------------------------------


def test_the_caller_moves_the_state_between_reads(two: TwoPipelines) -> None:
    session = two.session()
    stream = session.generate_tokens([1, 2, 3], options(5))
    assert read_moving(two, stream) == [6, 12, 8, 0, 0]
    result = stream.result
    assert (result.finish_reason, result.token_ids) == (Reason.MAX_TOKENS, (6, 12, 8, 0, 0))
    assert (result.prompt_token_count, result.timings.evaluated_prompt_token_count) == (3, 3)


def test_the_session_moves_no_state(two: TwoPipelines) -> None:
    assert ids(two.session().generate_tokens([1, 2, 3], options(4))) == [6, 6, 6, 6]


def test_each_read_is_one_run_of_one_pipeline(two: TwoPipelines) -> None:
    stream = two.session().generate_tokens([1, 2, 3], options(3))
    assert two.prefill.state() == [0.0]
    stream.read_next()
    assert (two.prefill.state(), two.decode.state()) == ([6.0], [0.0])
    two.move(1)
    stream.read_next()
    assert (two.prefill.state(), two.decode.state()) == ([6.0], [12.0])
    assert stream.read_next() is not None  # not moved: 6 + 12 once more
    assert two.decode.state() == [18.0]
    assert stream.read_next() is None
    assert two.decode.state() == [18.0]


def test_g108_after_a_run_the_sequence_is_unusable(two: TwoPipelines) -> None:
    session = two.session()
    assert session.sequence_state.disclosure is Disclosure.NONE
    stream = session.generate_tokens([1, 2, 3], options(1))
    assert session.sequence_state.disclosure is Disclosure.UNUSABLE
    ids(stream)
    state = session.sequence_state
    assert (state.disclosure, state.session_state) == (Disclosure.UNUSABLE, State.READY)
    assert (state.evaluated_token_count, state.retained_token_count, session.retained_token_ids) == (0, 0, ())
    with failing(E_NOT_VALID_STATE):
        session.continue_tokens([1])
    assert session.state is State.READY
    session.reset()
    assert (session.state, session.sequence_state.disclosure) == (State.EMPTY, Disclosure.NONE)


def test_g108_segments_need_one_pipeline(two: TwoPipelines) -> None:
    session = two.session()
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_segments([TextGenerationSegment.from_tokens([1])])
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.create_media_encoder_from_file("projector.gguf")
    assert session.state is State.EMPTY


@pytest.mark.parametrize("kind", [Kind.LOGITS, Kind.SAMPLED_TOKEN])
def test_g108_capabilities_of_two_pipelines(two: TwoPipelines, kind: TextGenerationOutputKind) -> None:
    found = two.session(**(two.sampling() if kind is Kind.SAMPLED_TOKEN else {})).capabilities
    assert (found.execution_profile, found.output_kind) == (Profile.PREFILL_DECODE_CALLER_BOUND, kind)
    assert found.supports_constraints is (kind is Kind.LOGITS)
    assert (found.supports_continuation, found.supports_segmented_prompts) == (False, False)
    assert (found.supports_embedding_segments, found.supports_constrained_continuation) == (False, False)
    assert found.supports_constrained_embedding_segments is False


def test_g108_one_pipeline_may_serve_both_phases(stage: Composed) -> None:
    # A pipeline that keeps its state itself, as every GGUF decoder does, leaves nothing to move.
    parts = stage.parts()
    owner, target = parts.pop("state_owner_stage"), parts.pop("token_target")
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    configuration.configure_prefill_decode(
        **{f"{phase}_{name}": value for phase in ("prefill", "decode") for name, value in parts.items()},
        state_owner_stage=owner,
        token_target=target,
        logical_capacity=8,
        decode_input_mode=TextGenerationDecodeInputMode.CALLER_BOUND,
    )
    session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, ()).create_session(configuration)
    for _ in range(2):
        with session.generate_tokens([A, B], options(4)) as stream:
            assert ids(stream) == [C, D, A, B]
        assert session.sequence_state.disclosure is Disclosure.UNUSABLE
    assert stage.script.runs == 8
    assert session.capabilities.supports_continuation is False


def test_both_execution_states_are_reset_when_a_generation_starts(stage: Composed) -> None:
    prefill, first = stage.build(successor)
    decode, second = stage.build(successor)
    for decoder, pipeline in ((prefill, first), (decode, second)):
        decoder.bind_input(0, stage.runtime.tensor_from_tokens([A, B, C]))
        pipeline.run()
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    configuration.set_pipeline(Phase.PREFILL, first)
    configuration.set_token_input(Phase.PREFILL, prefill, 0)
    configuration.set_output(Phase.PREFILL, prefill, 0, Kind.LOGITS)
    configuration.set_pipeline(Phase.DECODE, second)
    configuration.set_token_input(Phase.DECODE, decode, 0)
    configuration.set_output(Phase.DECODE, decode, 0, Kind.LOGITS)
    configuration.set_state_owner_stage(decode)
    configuration.set_token_target(stage.target)
    configuration.set_logical_capacity(16)
    configuration.set_decode_input_mode(TextGenerationDecodeInputMode.CALLER_BOUND)
    session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, ()).create_session(configuration)
    stream = session.generate_tokens([A, B], options(3))
    assert (prefill.sequence_position, decode.sequence_position) == (0, 0)
    assert ids(stream) == [C, D, A]
    assert (prefill.sequence_position, decode.sequence_position) == (2, 2)


def test_a_prompt_of_one_token_is_the_first_pipelines(two: TwoPipelines) -> None:
    assert read_moving(two, two.session().generate_tokens([5], options(3))) == [5, 10, 4]


def test_the_logical_capacity_limits_prompt_and_output(two: TwoPipelines) -> None:
    session = two.session(logical_capacity=5)
    stream = session.generate_tokens([1, 2, 3], options(9))
    assert read_moving(two, stream) == [6, 12]
    assert stream.result.finish_reason is Reason.SEQUENCE_CAPACITY
    with failing(INSUFFICIENT_BUFFER):
        session.generate_tokens([1] * 6)
    assert (session.state, session.sequence_state.disclosure) == (State.READY, Disclosure.UNUSABLE)
    full = session.generate_tokens([1] * 5)
    assert ids(full) == []
    assert full.result.finish_reason is Reason.SEQUENCE_CAPACITY
    assert session.state is State.EMPTY


def test_constrained_output_of_two_pipelines_with_logits(two: TwoPipelines) -> None:
    pytest.importorskip("llguidance")
    constraint = two.tokenizer.create_constraint_from_choices(["ab"])
    stream = two.session().generate_tokens_with_constraint([1, 2, 3], constraint, options(5))
    assert ids(stream) == [A, B]
    assert stream.result.finish_reason is Reason.STOP_TOKEN


def test_sampling_options_of_two_pipelines_with_logits(two: TwoPipelines) -> None:
    seeded = options(6, temperature=5.0, seed=3)
    session = two.session()
    first = ids(session.generate_tokens([1, 2, 3], seeded))
    assert first == ids(session.generate_tokens([1, 2, 3], seeded))
    assert first != [6, 6, 6, 6, 6, 6]


def test_g109_two_pipelines_that_choose(two: TwoPipelines) -> None:
    session = two.session(**two.sampling())
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(5))) == [6, 12, 8, 0, 0]
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_tokens([1], options(2, temperature=1.0))
    stream = session.generate_tokens([1, 2, 3], options(5, stop_token_ids=[8]))
    assert read_moving(two, stream) == [6, 12]
    assert stream.result.finish_reason is Reason.STOP_TOKEN


def test_g109_logits_of_the_prompt_beside_chosen_tokens_are_taken_greedily(two: TwoPipelines) -> None:
    mixed = two.sampling(prefill_output_index=LOGITS, prefill_output_kind=Kind.LOGITS)
    session = two.session(**mixed)
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(3))) == [6, 12, 8]
    assert session.capabilities.output_kind is Kind.SAMPLED_TOKEN
    assert session.capabilities.supports_constraints is False
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_tokens([1], options(2, seed=1))


def test_a_generation_after_the_first_starts_anew(two: TwoPipelines) -> None:
    session = two.session()
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(3))) == [6, 12, 8]
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(3))) == [6, 12, 8]
    assert read_moving(two, session.generate_tokens([1, 2, 4], options(2))) == [7, 14]


# --- outputs bound by the caller --------------------------------------------------------------------------------------


def test_logits_may_go_to_tensors_of_the_caller(two: TwoPipelines) -> None:
    prompt_logits, step_logits = tensor_of(two.runtime, 1, 3, 16), tensor_of(two.runtime, 1, 1, 16)
    configuration = two.configuration()
    configuration.add_output_binding(Phase.PREFILL, two.prefill.stage, LOGITS, prompt_logits)
    configuration.add_output_binding(Phase.DECODE, two.decode.stage, LOGITS, step_logits)
    session = Tasks(two.runtime).create_text_generation_task(two.tokenizer, ()).create_session(configuration)
    stream = session.generate_tokens([1, 2, 3], options(2))
    assert read_moving(two, stream) == [6, 12]
    assert prompt_logits.to_numpy()[0].argmax(-1).tolist() == [1, 3, 6]
    assert step_logits.to_numpy()[0].argmax(-1).tolist() == [12]


def test_bound_prompt_logits_fit_one_length_only(two: TwoPipelines) -> None:
    configuration = two.configuration()
    configuration.add_output_binding(Phase.PREFILL, two.prefill.stage, LOGITS, tensor_of(two.runtime, 1, 3, 16))
    session = Tasks(two.runtime).create_text_generation_task(two.tokenizer, ()).create_session(configuration)
    stream = session.generate_tokens([1, 2], options(2))
    assert ids(stream) == []
    assert (stream.result.finish_reason, stream.result.error_code) == (Reason.ERROR, E_INVALIDARG)
    assert session.state is State.RESET_REQUIRED
    session.reset()
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(2))) == [6, 12]


def test_output_bindings_are_told_with_those_of_the_prompt_first(two: TwoPipelines) -> None:
    configuration = two.configuration()
    bindings = configuration.output_bindings
    assert [binding[:3] for binding in bindings] == [
        (Phase.PREFILL, two.prefill.stage, PRESENT),
        (Phase.DECODE, two.decode.stage, PRESENT),
    ]
    assert [binding[3] for binding in bindings] == [two.prefill.present, two.decode.present]


def test_a_bound_tensor_may_be_closed(two: TwoPipelines) -> None:
    configuration = two.configuration()
    logits = tensor_of(two.runtime, 1, 1, 16)
    configuration.add_output_binding(Phase.DECODE, two.decode.stage, LOGITS, logits)
    session = Tasks(two.runtime).create_text_generation_task(two.tokenizer, ()).create_session(configuration)
    logits.close()
    assert read_moving(two, session.generate_tokens([1, 2, 3], options(3))) == [6, 12, 8]


def test_a_tensor_that_does_not_fit_is_found_when_the_session_is_made(two: TwoPipelines) -> None:
    configuration = two.configuration()
    wrong = two.runtime.create_tensor(TensorDataType.INT64, (1, 1, 16))
    configuration.add_output_binding(Phase.DECODE, two.decode.stage, LOGITS, wrong)
    task = Tasks(two.runtime).create_text_generation_task(two.tokenizer, ())
    with failing(E_INVALIDARG):
        task.create_session(configuration)
    assert configuration.set_logical_capacity(3) is None  # type: ignore[func-returns-value]


# --- two pipelines, the second feeds its token back -------------------------------------------------------------------


def test_g110_the_pipeline_carries_the_token_itself(fed_back: TwoPipelines) -> None:
    session = fed_back.session(**fed_back.feedback())
    stream = session.generate_tokens([1, 2, 3], options(5))
    assert read_moving(fed_back, stream) == [6, 12, 8, 0, 0]
    assert session.capabilities.execution_profile is Profile.PREFILL_DECODE_PIPELINE_FEEDBACK
    assert session.sequence_state.disclosure is Disclosure.UNUSABLE
    assert read_moving(fed_back, session.generate_tokens([1, 1], options(3))) == [2, 4, 8]


def test_g110_the_first_token_is_bound_once(fed_back: TwoPipelines) -> None:
    stream = fed_back.session(**fed_back.feedback()).generate_tokens([1, 2, 3], options(9))
    for number in (1, 2, 3):
        stream.read_next()
        fed_back.move(number)
    fed_back.decode.stage.bind_input(0, fed_back.runtime.tensor_from_numpy(np.array([[5]])))
    update = stream.read_next()
    assert update is not None and update.token_id == 0  # 24 + the fed 8, and not + the bound 5


def test_g110_each_read_is_one_iteration(fed_back: TwoPipelines) -> None:
    stream = fed_back.session(**fed_back.feedback()).generate_tokens([1, 2, 3], options(3))
    stream.read_next()
    assert (fed_back.prefill.state(), fed_back.decode.state()) == ([6.0], [0.0])
    fed_back.move(1)
    stream.read_next()
    assert fed_back.decode.state() == [12.0]


def test_g110_feedback_needs_an_edge_into_the_token_input(two: TwoPipelines) -> None:
    configuration = two.configuration(**two.feedback())
    with failing(E_INVALIDARG) as caught:
        configuration.validate()
    assert "connect_next_iteration" in str(caught.value)
    configuration.set_decode_input_mode(TextGenerationDecodeInputMode.CALLER_BOUND)
    configuration.validate()


def test_g110_feedback_needs_sampled_tokens(fed_back: TwoPipelines) -> None:
    logits = {"decode_output_index": LOGITS, "decode_output_kind": Kind.LOGITS}
    with failing(E_INVALIDARG) as caught:
        fed_back.configuration(**fed_back.feedback() | logits).validate()
    assert "sampled tokens" in str(caught.value)


def test_g110_a_gguf_decoder_feeds_the_chosen_token_back(stage: Composed) -> None:
    # Both phases in one pipeline: the prompt is its first iteration.
    parts = Chooser((1, 1), fed_back=True).parts(stage)
    owner, target = parts.pop("state_owner_stage"), parts.pop("token_target")
    configuration = Tasks(stage.runtime).create_text_generation_configuration()
    configuration.configure_prefill_decode(
        **{f"{phase}_{name}": value for phase in ("prefill", "decode") for name, value in parts.items()},
        state_owner_stage=owner,
        token_target=target,
        logical_capacity=64,
        decode_input_mode=TextGenerationDecodeInputMode.PIPELINE_FEEDBACK,
    )
    session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, (EOS,)).create_session(configuration)
    for _ in range(2):
        assert ids(session.generate_tokens([A, B], options(4))) == [C, D, A, B]
    assert stage.script.runs == 8
