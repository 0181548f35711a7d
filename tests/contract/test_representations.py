"""What `repr` says of the objects of the long road: their state, on any thread, before and after closing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from fakes.chats import asked, chatting, greeting
from fakes.model_files import ModelFiles
from fakes.scripted import Composed, composed
from fakes.speech import Recognizer, recognizing
from genai.speech_live import (
    AutomaticSpeechRecognitionLiveInput,
    AutomaticSpeechRecognitionLiveTranscription,
    LiveChunks,
)
from genai.tasks import (
    AutomaticSpeechRecognitionWaveformMetadata,
    CancellationSource,
    Tasks,
    TextGenerationConfiguration,
    TextGenerationOptions,
    TextGenerationPipelinePhase,
)
from winml_lite import Runtime

TWO = TextGenerationOptions(max_new_tokens=2)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Composed]:
    with composed(tmp_path) as stage:
        yield stage


@pytest.fixture
def recognizer(onnx_engine: str, files: ModelFiles) -> Iterator[Recognizer]:
    with recognizing(files.folder) as recognizer:
        yield recognizer


def test_a_text_session_tells_its_state_and_how_much_it_keeps(stage: Composed) -> None:
    session = stage.session()
    assert repr(session) == "<TextGenerationSession EMPTY, 0 tokens>"
    stream = session.generate_text("ab", TWO)
    assert repr(session).startswith("<TextGenerationSession ACTIVE, ")
    stream.close()
    session.generate("ab", TWO)
    assert repr(session) == "<TextGenerationSession READY, 4 tokens>"
    session.close()
    assert repr(session) == "<TextGenerationSession (closed)>"


def test_a_text_stream_tells_how_it_ended(stage: Composed) -> None:
    stream = stage.session().generate_text("ab", TWO)
    assert repr(stream) == "<TextGenerationStream unfinished>"
    assert len(list(stream)) == 2
    assert repr(stream) == "<TextGenerationStream MAX_TOKENS>"
    stream.close()
    assert repr(stream) == "<TextGenerationStream (closed)>"


def test_tasks_tell_their_tokenizer(stage: Composed) -> None:
    tasks = Tasks(stage.runtime)
    task = tasks.create_text_generation_task(stage.tokenizer)
    assert repr(tasks) == "<Tasks>"
    assert repr(task) == f"<TextGenerationTask of {stage.tokenizer!r}>"
    task.close()
    tasks.close()
    assert (repr(tasks), repr(task)) == ("<Tasks (closed)>", "<TextGenerationTask (closed)>")


def test_a_configuration_tells_its_mode_and_whether_it_is_used_up(stage: Composed) -> None:
    two = TextGenerationConfiguration(stage.runtime)
    assert repr(two) == "<TextGenerationConfiguration UNIFIED>"
    two.set_pipeline(TextGenerationPipelinePhase.PREFILL, stage.pipeline)
    assert repr(two) == "<TextGenerationConfiguration PREFILL_DECODE>"
    used = stage.session().configuration
    assert repr(used) == "<TextGenerationConfiguration UNIFIED, consumed>"
    used.close()
    assert repr(used) == "<TextGenerationConfiguration UNIFIED (closed)>"


def test_any_thread_may_look(stage: Composed) -> None:
    session = stage.session()
    stream = session.generate_text("ab", TWO)
    seen: list[str] = []
    thread = Thread(target=lambda: seen.extend((repr(session), repr(stream))))
    thread.start()
    thread.join(100)
    assert seen == [repr(session), repr(stream)]


def test_a_chat_session_tells_the_session_that_generates(tmp_path: Path) -> None:
    with chatting(composed, tmp_path, greeting) as chat:
        assert repr(chat.task) == f"<ChatCompletionTask of {chat.stage.tokenizer!r}>"
        assert repr(chat.session) == "<ChatCompletionSession on <TextGenerationSession EMPTY, 0 tokens>>"
        stream = chat.session.stream(asked("hi"))
        assert repr(stream) == "<ChatCompletionStream unfinished>"
        list(stream)
        assert repr(stream) == "<ChatCompletionStream finished>"
        assert stream.result.content == "Salut."
        assert repr(stream) == "<ChatCompletionStream EOS_TOKEN>"
        stream.close()
        chat.session.close()
        assert repr(stream) == "<ChatCompletionStream (closed)>"
        assert repr(chat.session) == "<ChatCompletionSession (closed)>"


def test_speech_recognition_tells_as_text_generation_does(recognizer: Recognizer) -> None:
    assert repr(recognizer.task) == f"<AutomaticSpeechRecognitionTask of {recognizer.tokenizer!r}>"
    configuration = recognizer.task.create_configuration()
    assert repr(configuration) == "<AutomaticSpeechRecognitionConfiguration empty>"
    configuration.configure_whisper(**recognizer.parts())
    assert repr(configuration) == "<AutomaticSpeechRecognitionConfiguration Whisper>"
    session = recognizer.task.create_session(configuration)
    assert repr(configuration) == "<AutomaticSpeechRecognitionConfiguration Whisper, consumed>"
    configuration.close()
    assert repr(configuration) == "<AutomaticSpeechRecognitionConfiguration (closed)>"
    assert repr(session) == "<AutomaticSpeechRecognitionSession READY>"
    stream = session.stream(*recognizer.sound(0))
    seen = (repr(session), repr(stream))
    assert seen == ("<AutomaticSpeechRecognitionSession ACTIVE>", "<AutomaticSpeechRecognitionStream unfinished>")
    assert "".join(update.fragment for update in stream) == "one"
    assert repr(stream) == "<AutomaticSpeechRecognitionStream INPUT_COMPLETE>"
    stream.close()
    session.close()
    assert repr(stream) == "<AutomaticSpeechRecognitionStream (closed)>"
    assert repr(session) == "<AutomaticSpeechRecognitionSession (closed)>"
    recognizer.task.close()
    assert repr(recognizer.task) == "<AutomaticSpeechRecognitionTask (closed)>"


def test_live_input_tells_whether_more_may_come(recognizer: Recognizer, runtime: Runtime) -> None:
    stream = recognizer.session().stream(*recognizer.sound(0))
    metadata = AutomaticSpeechRecognitionWaveformMetadata(16000, 1)
    given = AutomaticSpeechRecognitionLiveInput(runtime, metadata, LiveChunks(2), stream)
    live = AutomaticSpeechRecognitionLiveTranscription(stream, given)
    assert repr(live) == f"<AutomaticSpeechRecognitionLiveTranscription {given!r}, {stream!r}>"
    assert repr(given) == "<AutomaticSpeechRecognitionLiveInput open>"
    given.complete_input()
    assert repr(given) == "<AutomaticSpeechRecognitionLiveInput complete>"
    live.close()
    assert repr(given) == "<AutomaticSpeechRecognitionLiveInput (closed)>"


def test_a_cancellation_source_tells_whether_it_is_canceled() -> None:
    source = CancellationSource()
    assert repr(source) == "<CancellationSource not canceled>"
    source.cancel()
    assert repr(source) == "<CancellationSource canceled>"
    source.close()
    assert repr(source) == "<CancellationSource (closed)>"


def test_a_decoder_tells_what_it_holds_back(stage: Composed) -> None:
    decoder = stage.tokenizer.create_decoder()
    assert repr(decoder) == "<TokenizerDecoder that holds 0 bytes back>"
    decoder.close()
    assert repr(decoder) == "<TokenizerDecoder (closed)>"


def test_an_output_parser_tells_how_many_events_wait(tmp_path: Path) -> None:
    with chatting(composed, tmp_path, greeting) as chat:
        parser = chat.stage.tokenizer.format_conversation(asked("hi")).create_output_parser()
    assert repr(parser) == "<ConversationOutputParser unfinished, 0 events to read>"
    parser.append("Salut.")
    parser.flush()
    assert repr(parser) == "<ConversationOutputParser flushed, 2 events to read>"
    parser.close()
    assert repr(parser) == "<ConversationOutputParser (closed)>"
