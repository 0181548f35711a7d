"""The long road (`genai.runtime`, `genai.tasks`) over the tiny models, composed by hand on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from fakes.model_files import ModelFiles, require_engine
from fakes.rig import failing
from genai.runtime import Pipeline, Runtime, Stage, Tokenizer
from genai.tasks import (
    CancellationSource,
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatRole,
    Tasks,
    TextGenerationConfiguration,
    TextGenerationFinishReason,
    TextGenerationOptions,
    TextGenerationOutputKind,
    TextGenerationSession,
    TextGenerationSessionState,
)
from models import recipes

pytestmark = pytest.mark.real

SENTENCE = "Paris is the capital of France, a city with good café and museums."
PIECES = ["Paris", " is", " the", " capital", " of", " France", ",", " a", " city", " with", " good", " caf", "", "é"]
PIECES += [" and", " museums", "."]
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
FORMS = ["gguf", "plain", "std", "gqa"]
Reason = TextGenerationFinishReason
State = TextGenerationSessionState


def composed(form: str, path: Path, runtime: Runtime) -> tuple[Pipeline, Stage, int, int]:
    """Build the decoder; return it with the positions of the token input and of the logits."""
    builder = runtime.create_pipeline_builder()
    if form == "gguf":
        stage = builder.add_model_stage(runtime.load_model(path))
        stage.llama_options().thread_count = 1
        return builder.build(), stage, 0, 0
    model = runtime.load_model(path / "model.onnx")
    names, schema = model.ort_schema(), model.schema()
    stage = builder.add_model_stage(model)
    stage.ort_options().set_thread_count(1)
    stage.set_sequence_capacity_hint(512)
    for index in range(schema.input_count):
        name = names.input_name(index)
        if name.startswith("past_key_values"):
            stage.add_state_tensor_pair(index, names.find_output(name.replace("past_key_values", "present")))
    return builder.build(), stage, names.find_input("input_ids"), names.find_output("logits")


@pytest.fixture(params=FORMS)
def session(request: pytest.FixtureRequest, files: ModelFiles, runtime: Runtime) -> Iterator[TextGenerationSession]:
    """A session over the scripted model."""
    require_engine("llama" if request.param == "gguf" else "ort")
    gguf = request.param == "gguf"
    path = recipes.scripted_gguf(files.folder) if gguf else recipes.scripted_onnx(files.folder, request.param)
    pipeline, stage, token_input, logits = composed(request.param, path, runtime)
    with Tasks(runtime) as tasks, Tokenizer.from_file(path) as tokenizer:
        configuration = tasks.create_text_generation_configuration()
        assert isinstance(configuration, TextGenerationConfiguration)
        configuration.configure_unified(
            pipeline=pipeline,
            token_input_stage=stage,
            token_input_index=token_input,
            output_stage=stage,
            output_index=logits,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=stage,
            token_target=runtime.create_cpu_target(),
            tokenizer=tokenizer,
        )
        yield tasks.create_text_generation_task(tokenizer).create_session(configuration)


def tokenizer_of(session: TextGenerationSession) -> Tokenizer:
    tokenizer = session.configuration.tokenizer
    assert tokenizer is not None
    return tokenizer


def test_g99_the_sentence_is_streamed_token_by_token(session: TextGenerationSession) -> None:
    with session.generate_text(ASKED) as stream:
        updates = list(stream)
        result = stream.result
    assert [update.fragment for update in updates] == PIECES
    assert tuple(update.token_id for update in updates) == result.token_ids
    assert (result.text, result.finish_reason) == (SENTENCE, Reason.EOS_TOKEN)
    assert session.state is State.READY


def test_g79_everything_is_retained_and_evaluated_after_eos(session: TextGenerationSession) -> None:
    prompt = tokenizer_of(session).encode(ASKED)
    result = session.generate(ASKED)
    assert session.retained_token_ids == (*prompt, *result.token_ids)
    assert session.sequence_state.evaluated_token_count == len(prompt) + 17


def test_g88_a_cut_sentence_is_continued(session: TextGenerationSession) -> None:
    first = session.generate(ASKED, TextGenerationOptions(4))
    assert first.text == "Paris is the capital"
    rest = [update.fragment for update in session.continue_tokens()]
    assert first.text + "".join(rest) == SENTENCE


def test_g111_a_formatted_conversation_is_reused_in_the_next_turn(session: TextGenerationSession) -> None:
    tokenizer = tokenizer_of(session)
    turns = [ChatCompletionMessage(ChatRole.USER, "What?")]
    first = list(tokenizer.format_conversation(ChatCompletionRequest(tuple(turns))).token_ids)
    with session.generate_tokens(first) as stream:
        assert "".join(update.fragment for update in stream) == SENTENCE
    turns += [ChatCompletionMessage(ChatRole.ASSISTANT, SENTENCE), ChatCompletionMessage(ChatRole.USER, "Where?")]
    second = list(tokenizer.format_conversation(ChatCompletionRequest(tuple(turns))).token_ids)
    with session.generate_tokens(second) as stream:
        assert "".join(update.fragment for update in stream) == SENTENCE
        assert stream.result.timings.evaluated_prompt_token_count == len(second) - len(first) - 17


def test_g94_a_cancel_from_another_thread_stops_the_stream(session: TextGenerationSession) -> None:
    source, begun = CancellationSource(), Event()
    stream = session.generate_text(ASKED, TextGenerationOptions(400), cancellation=source)

    def cancel() -> None:
        begun.wait(100)
        source.cancel()

    thread = Thread(target=cancel)
    thread.start()
    assert stream.read_next() is not None
    begun.set()
    thread.join(100)
    assert stream.read_next() is None
    assert (stream.result.finish_reason, stream.result.text) == (Reason.CANCELED, "Paris")
    stream.close()
    assert session.generate(ASKED).text == SENTENCE


def test_g101_another_thread_is_refused(session: TextGenerationSession) -> None:
    refused: list[int] = []

    def call() -> None:
        with failing(0x8001010E) as caught:
            session.generate(ASKED)
        refused.append(caught.value.hresult)

    thread = Thread(target=call)
    thread.start()
    thread.join(100)
    assert refused == [0x8001010E]


def test_a_pipeline_that_was_run_by_hand_needs_a_reset(session: TextGenerationSession) -> None:
    session.generate(ASKED, TextGenerationOptions(2))
    stage = session.configuration.state_owner_stage
    assert stage is not None
    stage.rewind(3)
    with failing(0x8007139F):
        session.continue_tokens()
    session.reset()
    assert session.generate(ASKED).text == SENTENCE


def test_closing_everything_else_first_leaves_the_session_working(session: TextGenerationSession) -> None:
    configuration = session.configuration
    for part in (configuration.pipeline, configuration.state_owner_stage, configuration.token_target):
        assert part is not None
        part.close()
    session.runtime.close()
    assert session.generate(ASKED).text == SENTENCE
    session.close()
