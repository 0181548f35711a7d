"""Prompts of token ids and embedding rows (genai 6.6): statement 107 of genai 13.

The encoder looks rows up in the embedding table of the decoder, so that its rows must do what the tokens do. The
scripted model says 259, 261, 264, 271 after 10, and 273, 279 after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import FakeBackend, Script
from fakes.engines import scripted_logits
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, integers
from fakes.scripted import A, B, C, Compose, Composed, D, write_tokenizer
from genai import NotSupportedError, TextGenerationOptions, Tokenizer
from genai.tasks import (
    CancellationSource,
    Tasks,
    TextGenerationConfiguration,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationSegment,
    TextGenerationSegmentKind,
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationSpeculativeMethod,
    TextGenerationSpeculativeStatistics,
    TextGenerationStream,
    TextGenerationTask,
)
from models import onnx_models
from models.recipes import scripted_onnx
from winml_lite import GgufFile, MediaEncoder, Pipeline, Runtime, Stage, TensorDataType, WinMLError
from winml_lite.native.backend import replaced_backend

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure
Segment = TextGenerationSegment
Kind = TextGenerationSegmentKind
Call = Callable[[], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
NOT_SUPPORTED = 0x80070032
INSUFFICIENT_BUFFER = 0x8007007A
E_FAIL = 0x80004005

CAPACITY = 20


@dataclass(frozen=True)
class Rig:
    """A decoder with room for 20 cells, its tokenizer, and an encoder that looks ids up in its table."""

    runtime: Runtime
    stage: Stage
    pipeline: Pipeline
    tokenizer: Tokenizer
    encoder: MediaEncoder

    def rows(self, *ids: int) -> TextGenerationSegment:
        """The rows of some tokens."""
        return Segment.from_embeddings(*self.encoder.encode(integers(self.runtime, *ids)))

    def configuration(self) -> TextGenerationConfiguration:
        """The decoder, composed."""
        return (
            Tasks(self.runtime)
            .create_text_generation_configuration()
            .configure_unified(
                pipeline=self.pipeline,
                token_input_stage=self.stage,
                token_input_index=0,
                output_stage=self.stage,
                output_index=0,
                output_kind=TextGenerationOutputKind.LOGITS,
                state_owner_stage=self.stage,
                token_target=self.runtime.create_cpu_target(),
            )
        )

    def task(self) -> TextGenerationTask:
        """A task that no EOS ends, with the decoder as its default."""
        tasks = Tasks(self.runtime)
        return tasks.create_text_generation_task(self.tokenizer, (), default_configuration=self.configuration())

    def session(self) -> TextGenerationSession:
        return self.task().default_session


@pytest.fixture(scope="session")
def lookup(tmp_path_factory: pytest.TempPathFactory, files: ModelFiles) -> str:
    with GgufFile(files.scripted_gguf) as file:
        model = onnx_models.lookup(file.dequantize("token_embd.weight"))
    return str(onnx_models.save(model, tmp_path_factory.mktemp("encoders") / "lookup.onnx"))


def rig_of(runtime: Runtime, files: ModelFiles, lookup: str, tokenizer: Tokenizer) -> Rig:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.scripted_gguf), runtime.create_cpu_target())
    stage.set_sequence_capacity_hint(CAPACITY)
    options = stage.llama_options()
    options.thread_count, options.key_type, options.value_type = 1, "f32", "f32"
    pipeline = builder.build()
    encoder_stage, encoder_pipeline = built(runtime, lookup)
    encoder = stage.create_media_encoder_from_pipeline(encoder_pipeline, encoder_stage, 0, encoder_stage, 0)
    return Rig(runtime, stage, pipeline, tokenizer, encoder)


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The vocabulary of the scripted decoder in a folder, which needs no engine."""
    return str(scripted_onnx(tmp_path_factory.mktemp("vocabulary"), "plain"))


@pytest.fixture
def rig(runtime: Runtime, files: ModelFiles, lookup: str, vocabulary: str, both_engines: str) -> Iterator[Rig]:
    with Tokenizer.from_file(vocabulary) as tokenizer:
        yield rig_of(runtime, files, lookup, tokenizer)


@pytest.fixture
def fake_rig(runtime: Runtime, files: ModelFiles, lookup: str, vocabulary: str, script: Script) -> Iterator[Rig]:
    """The same on the fake engine alone, where `script` says what happens in which run of the decoder."""
    with (
        replaced_backend("ort", FakeBackend(Script())),
        replaced_backend("llama", FakeBackend(script, logits=scripted_logits)),
        Tokenizer.from_file(vocabulary) as tokenizer,
    ):
        yield rig_of(runtime, files, lookup, tokenizer)


def options(count: int, **fields: Any) -> TextGenerationOptions:
    return TextGenerationOptions(count, **fields)


def tokens(*ids: int) -> TextGenerationSegment:
    return Segment.from_tokens(ids)


def ids(stream: TextGenerationStream) -> list[int | None]:
    return [update.token_id for update in stream]


# --- segments as values -----------------------------------------------------------------------------------------------


def test_g107_a_segment_of_tokens(rig: Rig) -> None:
    segment = Segment.from_tokens(iter([1, 2]))
    assert (segment.kind, segment.token_ids) == (Kind.TOKENS, (1, 2))
    assert (segment.embedding_tensor, segment.layout) == (None, None)
    assert Segment(Kind.TOKENS, (1, 2)) == segment
    assert [(member.name, member.value) for member in Kind] == [("TOKENS", 0), ("EMBEDDINGS", 1)]
    with pytest.raises(AttributeError):
        segment.kind = Kind.EMBEDDINGS  # type: ignore[misc]


def test_g107_wrong_segments(rig: Rig) -> None:
    tensor, layout = rig.encoder.encode(integers(rig.runtime, 5))
    wrong: Any = Segment
    values: list[Call] = [
        lambda: wrong(Kind.TOKENS),
        lambda: wrong(Kind.TOKENS, (1,), tensor, None),
        lambda: wrong(Kind.TOKENS, (1,), None, layout),
        lambda: wrong(Kind.EMBEDDINGS, (1,), tensor, layout),
        lambda: wrong(Kind.TOKENS, (-1,)),
        lambda: wrong(3, (1,)),
    ]
    for make in values:
        with pytest.raises(ValueError):
            make()
    types: list[Call] = [
        lambda: wrong(Kind.EMBEDDINGS, (), tensor, None),
        lambda: wrong(Kind.EMBEDDINGS, (), None, layout),
        lambda: wrong(Kind.EMBEDDINGS, (), layout, tensor),
        lambda: wrong(True, (1,)),
        lambda: wrong(Kind.TOKENS, b"ab"),
        lambda: wrong(Kind.TOKENS, ("1",)),
    ]
    for make in types:
        with pytest.raises(TypeError):
            make()


def test_g107_the_list_must_end_with_tokens(rig: Rig) -> None:
    session: Any = rig.session()
    with pytest.raises(ValueError, match="must not be empty"):
        session.generate_segments([])
    with pytest.raises(ValueError, match="last segment must be tokens"):
        session.generate_segments([tokens(1), rig.rows(5)])
    for wrong in ([[1, 2]], [tokens(1), None], 5):
        with pytest.raises(TypeError):
            session.generate_segments(wrong)
    with pytest.raises(TypeError, match="options"):
        session.generate_segments([tokens(1)], {})
    with pytest.raises(TypeError, match="constraint"):
        session.generate_segments_with_constraint([tokens(1)], None)
    assert session.state is State.EMPTY


# --- token segments alone ---------------------------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path) as stage:
        yield stage


def test_g107_token_segments_are_their_concatenation(stage: Composed) -> None:
    session = stage.session(())
    with session.generate_segments([tokens(A, B), tokens(C)], options(3)) as stream:
        assert ids(stream) == [D, A, B]
        assert stream.result.prompt_token_count == 3
    assert session.retained_token_ids == (A, B, C, D, A, B)
    assert session.sequence_state.disclosure is Disclosure.RETAINED
    with session.continue_tokens((), options(1)) as stream:
        assert ids(stream) == [C]


def test_g107_token_segments_share_a_prefix_like_tokens(stage: Composed) -> None:
    session = stage.session(())
    ids(session.generate_tokens([A, B, C], options(1)))
    with session.generate_segments([tokens(A), tokens(B, A)], options(2)) as stream:
        assert ids(stream) == [B, C]
        assert stream.result.timings.evaluated_prompt_token_count == 1


def test_g107_a_prompt_of_segments_may_not_be_longer_than_the_capacity(tmp_path: Path, compose: Compose) -> None:
    with compose(tmp_path, capacity=4) as stage:
        session = stage.session(())
        with failing(INSUFFICIENT_BUFFER):
            session.generate_segments([tokens(A, B, C), tokens(A, B)])
        assert session.state is State.EMPTY
        assert ids(session.generate_segments([tokens(A, B), tokens(A)])) == [B]


# --- embedding segments -----------------------------------------------------------------------------------------------


def test_g107_rows_do_what_their_tokens_do(rig: Rig) -> None:
    session = rig.session()
    plain = session.generate_tokens([7, 5, 9, 33, 10], options(6))
    expected = ids(plain)
    with session.generate_segments([tokens(7), rig.rows(5, 9, 33), tokens(10)], options(6)) as stream:
        assert ids(stream) == expected == [259, 261, 264, 271, 273, 279]
        result = stream.result
    assert result.prompt_token_count == 5
    assert result.timings.evaluated_prompt_token_count == 5
    assert result.finish_reason is Reason.MAX_TOKENS
    assert rig.stage.sequence_position == 10


def test_g107_rows_may_come_first_and_next_to_each_other(rig: Rig) -> None:
    session = rig.session()
    segments = [rig.rows(5), rig.rows(9, 33), tokens(4, 4), rig.rows(2), tokens(10)]
    assert ids(session.generate_segments(segments, options(3))) == [259, 261, 264]
    assert rig.stage.sequence_position == 9


def test_g107_starting_runs_nothing(fake_rig: Rig, script: Script) -> None:
    session = fake_rig.session()
    stream = session.generate_segments([tokens(7), fake_rig.rows(5), tokens(10)], options(2))
    assert script.runs == 0
    stream.close()
    assert (script.runs, session.state) == (0, State.EMPTY)
    stream = session.generate_segments([tokens(7), fake_rig.rows(5), tokens(10)], options(2))
    stream.read_next()
    assert script.runs == 3
    stream.read_next()
    assert script.runs == 4


def test_g107_after_rows_the_sequence_is_unusable(rig: Rig) -> None:
    session = rig.session()
    stream = session.generate_segments([tokens(7), rig.rows(5), tokens(10)], options(2))
    assert session.sequence_state.disclosure is Disclosure.UNUSABLE
    ids(stream)
    state = session.sequence_state
    assert (state.session_state, state.disclosure) == (State.READY, Disclosure.UNUSABLE)
    assert (state.evaluated_token_count, state.retained_token_count, session.retained_token_ids) == (0, 0, ())
    with failing(E_NOT_VALID_STATE):
        session.continue_tokens([5])
    assert session.state is State.READY
    again = session.generate_tokens([7, 5, 10], options(2))
    assert ids(again) == [259, 261]
    assert again.result.timings.evaluated_prompt_token_count == 3
    assert session.sequence_state.disclosure is Disclosure.RETAINED
    assert session.retained_token_ids == (7, 5, 10, 259, 261)


def test_g107_the_capacity_is_charged_with_cells(rig: Rig) -> None:
    session = rig.session()
    rows = rig.rows(*range(100, 115))
    stream = session.generate_segments([tokens(7), rows, tokens(5, 10)], options(9))
    assert ids(stream) == [259, 261]  # 3 tokens and 15 cells leave room for 2
    assert stream.result.finish_reason is Reason.SEQUENCE_CAPACITY
    with failing(INSUFFICIENT_BUFFER) as caught:
        session.generate_segments([tokens(7, 7, 7, 7), rows, tokens(5, 10)])
    assert "21 prompt tokens" in str(caught.value)
    assert session.state is State.READY
    full = session.generate_segments([tokens(7, 7, 7), rows, tokens(5, 10)])
    assert ids(full) == []
    assert (full.result.finish_reason, full.result.prompt_token_count) == (Reason.SEQUENCE_CAPACITY, 20)
    assert session.state is State.EMPTY


def test_g107_tensor_and_layout_must_be_a_pair(rig: Rig) -> None:
    session = rig.session()
    ids(session.generate_tokens([7, 10], options(1)))
    tensor, _ = rig.encoder.encode(integers(rig.runtime, 5))
    _, layout = rig.encoder.encode(integers(rig.runtime, 5))
    with failing(E_INVALIDARG):
        session.generate_segments([Segment.from_embeddings(tensor, layout), tokens(10)])
    assert session.retained_token_ids == (7, 10, 259)
    assert ids(session.continue_tokens((), options(1))) == [261]


def test_g107_rows_of_an_encoder_of_another_stage(rig: Rig, files: ModelFiles, lookup: str) -> None:
    other = rig_of(rig.runtime, files, lookup, rig.tokenizer)
    session = rig.session()
    with failing(E_INVALIDARG):
        session.generate_segments([other.rows(5), tokens(10)])
    assert session.state is State.EMPTY


def test_g107_a_token_outside_the_vocabulary(rig: Rig) -> None:
    session = rig.session()
    with failing(E_INVALIDARG):
        session.generate_segments([tokens(331), rig.rows(5), tokens(10)])
    assert session.state is State.EMPTY


def test_segments_from_a_session_that_is_not_free(rig: Rig) -> None:
    session = rig.session()
    stream = session.generate_tokens([10], options(2))
    with failing(E_NOT_VALID_STATE):
        session.generate_segments([rig.rows(5), tokens(10)])
    assert ids(stream) == [259, 261]


def test_a_stage_moved_behind_the_session_is_noticed_after_rows(rig: Rig) -> None:
    session = rig.session()
    ids(session.generate_segments([rig.rows(5), tokens(10)], options(2)))
    rig.stage.rewind(1)
    with failing(E_NOT_VALID_STATE):
        session.generate_tokens([10])
    assert session.state is State.RESET_REQUIRED
    session.reset()
    assert ids(session.generate_segments([rig.rows(5), tokens(10)], options(2))) == [259, 261]


def test_rows_under_a_constraint(rig: Rig) -> None:
    pytest.importorskip("llguidance")
    constraint = rig.tokenizer.create_constraint_from_choices(["Paris is"])
    session = rig.session()
    assert session.capabilities.supports_constrained_embedding_segments
    stream = session.generate_segments_with_constraint([rig.rows(5), tokens(10)], constraint, options(9))
    assert "".join(update.fragment for update in stream) == "Paris is"
    assert stream.result.finish_reason is Reason.STOP_TOKEN


def test_capabilities_of_a_decoder_that_takes_rows(rig: Rig) -> None:
    found = rig.session().capabilities
    assert (found.supports_segmented_prompts, found.supports_embedding_segments) == (True, True)
    assert (found.supports_constrained_continuation, found.supports_constrained_embedding_segments) == (True, True)


def test_a_decoder_with_a_stage_behind_it_takes_tokens_only(rig: Rig, files: ModelFiles) -> None:
    runtime, builder = rig.runtime, rig.runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.scripted_gguf), runtime.create_cpu_target())
    watch = runtime.create_processor(lambda logits: None, [(TensorDataType.FLOAT32, (None, None))], [])
    builder.connect(stage, 0, builder.add_processor_stage(watch), 0)
    configuration = (
        Tasks(runtime)
        .create_text_generation_configuration()
        .configure_unified(
            pipeline=builder.build(),
            token_input_stage=stage,
            token_input_index=0,
            output_stage=stage,
            output_index=0,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=stage,
            token_target=runtime.create_cpu_target(),
        )
    )
    session = Tasks(runtime).create_text_generation_task(rig.tokenizer, ()).create_session(configuration)
    assert session.capabilities.supports_embedding_segments is False
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_segments([rig.rows(5), tokens(10)])
    assert ids(session.generate_segments([tokens(5), tokens(10)], options(2))) == [259, 261]


def test_an_onnx_decoder_takes_tokens_only(rig: Rig, tmp_path: Path, runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(
        runtime.load_model(onnx_models.save(onnx_models.sum_state(16), tmp_path / "s.onnx"))
    )
    stage.add_state_tensor_pair(1, 1)
    stage.ort_options().set_thread_count(1)
    parts: dict[str, Any] = {
        "pipeline": builder.build(),
        "token_input_stage": stage,
        "output_stage": stage,
        "state_owner_stage": stage,
    }
    configuration = (
        Tasks(runtime)
        .create_text_generation_configuration()
        .configure_unified(
            token_input_index=0,
            output_index=0,
            output_kind=TextGenerationOutputKind.LOGITS,
            token_target=runtime.create_cpu_target(),
            **parts,
        )
    )
    tokenizer = Tokenizer.from_file(write_tokenizer(tmp_path))
    session = Tasks(runtime).create_text_generation_task(tokenizer, ()).create_session(configuration)
    found = session.capabilities
    assert (found.supports_segmented_prompts, found.supports_embedding_segments) == (True, False)
    assert found.supports_constrained_embedding_segments is False
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.generate_segments([rig.rows(5), tokens(1)])
    with failing(NOT_SUPPORTED, NotSupportedError):
        session.create_media_encoder_from_file("projector.gguf")
    assert ids(session.generate_segments([tokens(1), tokens(2, 3)], options(2))) == [6, 12]


# --- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [1, 2, 3, 4])
def test_an_interrupt_in_any_run_loses_nothing(fake_rig: Rig, script: Script, run: int) -> None:
    stream = fake_rig.session().generate_segments([tokens(7), fake_rig.rows(5), tokens(10)], options(3))
    script.fail_at[run] = KeyboardInterrupt()
    read: list[int | None] = []
    with pytest.raises(KeyboardInterrupt):
        read += ids(stream)
    while (update := stream.read_next()) is not None:
        read.append(update.token_id)
    assert stream.result.token_ids == (259, 261, 264)
    assert fake_rig.stage.sequence_position == 5


@pytest.mark.parametrize("run", [1, 2, 3, 4])
def test_a_failure_in_any_run_ends_the_stream(fake_rig: Rig, script: Script, run: int) -> None:
    session = fake_rig.session()
    stream = session.generate_segments([tokens(7), fake_rig.rows(5), tokens(10)], options(3))
    script.fail_at[run] = WinMLError(E_FAIL, "engine", "scripted failure")
    ids(stream)
    assert (stream.result.finish_reason, stream.result.error_code) == (Reason.ERROR, E_FAIL)
    assert session.state is State.RESET_REQUIRED
    session.reset()
    assert ids(session.generate_tokens([7, 10], options(2))) == [259, 261]  # no rows are left selected
    assert fake_rig.stage.sequence_position == 3


@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_cancel_during_the_prompt_leaves_the_session_usable(fake_rig: Rig, script: Script, run: int) -> None:
    session, source = fake_rig.session(), CancellationSource()
    segments = [tokens(7), fake_rig.rows(5), tokens(10)]
    stream = session.generate_segments(segments, options(3), cancellation=source)
    script.call_at[run] = source.cancel
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.CANCELED
    assert script.runs == run
    assert session.state in (State.READY, State.EMPTY)
    assert ids(session.generate_segments(segments, options(3))) == [259, 261, 264]


# --- by the task, and encoders from files -----------------------------------------------------------------------------


def test_the_task_delegates_to_its_default_session(rig: Rig) -> None:
    task = rig.task()
    segments = [rig.rows(5), tokens(10)]
    assert ids(task.stream_segments(segments, options(2))) == [259, 261]
    result = task.generate_segments(segments, options(3))
    assert (result.token_ids, result.prompt_token_count) == ((259, 261, 264), 2)
    assert task.default_session.state is State.READY


def test_a_projector_file_needs_a_path(rig: Rig) -> None:
    task: Any = rig.task()
    for make in (task.create_media_encoder_from_file, task.default_session.create_media_encoder_from_file):
        with pytest.raises(ValueError, match="path"):
            make("")
        with pytest.raises(TypeError):
            make(5)
        with failing(0x80070002):
            make("nowhere.gguf")


def test_the_encoder_runs_where_the_stage_does(rig: Rig, tmp_path: Path) -> None:
    session = rig.session()
    with Runtime() as other, failing(NOT_SUPPORTED, NotSupportedError):
        session.create_media_encoder_from_file(tmp_path, other.create_cpu_target())


def test_nothing_is_drafted_after_embedding_rows(rig: Rig) -> None:
    configuration = rig.configuration()
    configuration.set_speculative_decoding(TextGenerationSpeculativeMethod.PROMPT_LOOKUP)
    task = Tasks(rig.runtime).create_text_generation_task(rig.tokenizer, ())
    with task.create_session(configuration) as session:
        with session.generate_segments([rig.rows(5, 6), tokens(10)], options(4)) as stream:
            assert ids(stream) == [259, 261, 264, 271]
            assert stream.result.speculative_statistics == TextGenerationSpeculativeStatistics(
                TextGenerationSpeculativeMethod.NONE, 0, 0, 0
            )
        with session.generate_segments([tokens(5, 6), tokens(10)], options(4)) as stream:
            assert ids(stream) == [259, 261, 264, 271]
            found = stream.result.speculative_statistics
            assert found is not None
            assert found.method is TextGenerationSpeculativeMethod.PROMPT_LOOKUP
