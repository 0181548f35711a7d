"""Programs for `test_speech_lifetime.py`, each run in its own process: `speech_programs.py PROGRAM FOLDER`.

FOLDER is the tiny Whisper model; a second of its first tone is the word "one", of its seventh "café".
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from pathlib import Path
from typing import Any

from lifetime.held_memory import assert_keeps_nothing
from lifetime.interrupts import until_interrupted

from fakes.threads import in_threads
from genai import Tokenizer
from genai.tasks import (
    AutomaticSpeechRecognitionSession,
    AutomaticSpeechRecognitionStream,
    AutomaticSpeechRecognitionWaveformMetadata,
    CancellationSource,
    Tasks,
)
from genai.whisper_stages import declare_whisper_state
from models.whisper_models import tones
from winml_lite import Pipeline, Runtime, Stage, WinMLError

SOUND = tones([0, 6])
METADATA = AutomaticSpeechRecognitionWaveformMetadata(16000, SOUND.size)
SAYS = "one café"
E_NOT_VALID_STATE = 0x8007139F


def built(runtime: Runtime, path: Path) -> tuple[Stage, Pipeline]:
    """One stage with one thread."""
    with runtime.load_model(path) as model:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.ort_options().set_thread_count(1)
        declare_whisper_state(model, stage)
        return stage, builder.build()


def make(folder: str) -> dict[str, Any]:
    """Everything from the runtime to a session, by name."""
    runtime = Runtime()
    encoder, encoder_pipeline = built(runtime, Path(folder) / "encoder.onnx")
    decoder, decoder_pipeline = built(runtime, Path(folder) / "decoder.onnx")
    tokenizer = Tokenizer.from_file(folder)
    tasks = Tasks(runtime)
    task = tasks.create_automatic_speech_recognition_task(tokenizer)
    configuration = task.create_configuration()
    target = runtime.create_cpu_target()
    configuration.configure_whisper(
        encoder_pipeline=encoder_pipeline,
        encoder_stage=encoder,
        decoder_pipeline=decoder_pipeline,
        decoder_stage=decoder,
        tensor_target=target,
    )
    session = task.create_session(configuration)
    waveform = runtime.tensor_from_numpy(SOUND)
    named = (encoder, encoder_pipeline, decoder, decoder_pipeline, tokenizer, tasks, task, configuration, target)
    names = "encoder encoder_pipeline decoder decoder_pipeline tokenizer tasks task configuration target".split()
    return {**dict(zip(names, named, strict=True)), "runtime": runtime, "session": session, "waveform": waveform}


def start(objects: dict[str, Any], source: CancellationSource | None = None) -> AutomaticSpeechRecognitionStream:
    """A new stream."""
    session: AutomaticSpeechRecognitionSession = objects["session"]
    return session.transcribe_waveform(objects["waveform"], METADATA, cancellation=source)


def said(stream: AutomaticSpeechRecognitionStream) -> str:
    """Read a stream to its end."""
    return "".join(update.fragment for update in stream)


def close_everything_in_any_order(folder: str) -> None:
    """Thirty random orders; what the stream needs lives as long as the stream, unless a rule forbids to close it."""
    random.seed(3)
    for _ in range(30):
        objects = make(folder)
        stream = objects["stream"] = start(objects)
        stream.read_next()
        names = list(objects)
        random.shuffle(names)
        for name in names:
            try:
                objects[name].close()
            except WinMLError as error:
                assert (name, error.hresult) == ("session", E_NOT_VALID_STATE)
        assert stream.result.transcript == "o"
        objects["session"].close()


def drop_everything_in_any_order(folder: str) -> None:
    """Thirty random orders of dropping references; a stream that is left reads to its end."""
    random.seed(4)
    for _ in range(30):
        objects = make(folder)
        stream = start(objects)
        stream.read_next()
        names = list(objects)
        random.shuffle(names)
        for name in names:
            del objects[name]
        assert "o" + said(stream) == SAYS


def collected_by_another_thread(folder: str) -> None:
    """A stream and its session in a cycle are collected by another thread, which may not use them; nothing is said."""
    for _ in range(10):
        objects = make(folder)
        objects["stream"] = start(objects)
        objects["stream"].read_next()
        objects["cycle"] = objects
        pipeline = objects["encoder_pipeline"].underlying_object
        del objects
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
        del pipeline


def threads_with_a_model_each(folder: str) -> None:
    """Four threads, each with stages and a session of its own; each answer is right."""

    def work(number: int) -> None:
        objects = make(folder)
        for _ in range(10):
            assert said(start(objects)) == SAYS
        objects["session"].close()

    in_threads(work, 4)


def sessions_move_between_threads(folder: str) -> None:
    """One thread after the other makes a session of the same pipelines."""
    objects = make(folder)
    objects["session"].close()

    def work(_: int) -> None:
        task = objects["task"]
        bindings = objects["configuration"].whisper_bindings
        configuration = task.create_configuration().configure_whisper(
            encoder_pipeline=bindings.encoder_pipeline,
            encoder_stage=bindings.encoder_stage,
            decoder_pipeline=bindings.decoder_pipeline,
            decoder_stage=bindings.decoder_stage,
            tensor_target=bindings.tensor_target,
        )
        with task.create_session(configuration) as session:
            stream = session.transcribe_waveform(objects["waveform"], METADATA)
            assert said(stream) == SAYS
            stream.close()

    for number in range(4):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()


def cancelled_from_another_thread(folder: str) -> None:
    """Forty cancels at random moments; what was said is a part of the whole, and the session goes on."""
    random.seed(5)
    objects = make(folder)
    for _ in range(40):
        source = CancellationSource()
        timer = threading.Timer(random.random() * 0.02, source.cancel)
        timer.start()
        stream = start(objects, source)
        text = said(stream)
        timer.join()
        assert SAYS.startswith(text)
        assert stream.result.transcript == text
        assert stream.result.finish_reason.name in ("CANCELED", "INPUT_COMPLETE")
    assert said(start(objects)) == SAYS


def interrupted_streams_go_on(folder: str) -> None:
    """Thirty interrupts at random moments: the fragments that were read, and those read later, are the whole."""
    random.seed(6)
    objects = make(folder)
    caught = 0
    assert said(start(objects)) == SAYS  # what is imported late is imported now
    while caught < 30:
        stream: AutomaticSpeechRecognitionStream | None = None
        try:
            for _ in until_interrupted(random.random() * 0.02):
                stream = start(objects)
                assert said(stream) == SAYS
        except KeyboardInterrupt:
            caught += 1
        if stream is not None:
            list(stream)
            assert stream.result.transcript == SAYS
            stream.close()
        objects["session"] = usable(objects)
        assert said(start(objects)) == SAYS


def usable(objects: dict[str, Any]) -> AutomaticSpeechRecognitionSession:
    """The session, once a stream that the interrupt kept from us is collected."""
    session: AutomaticSpeechRecognitionSession = objects["session"]
    gc.collect()
    assert session.state.name == "READY", session.state
    return session


def leave_a_stream_open(folder: str) -> None:
    """The interpreter ends with a stream half read."""
    objects = make(folder)
    objects["stream"] = start(objects)
    objects["stream"].read_next()
    globals()["kept"] = objects


def transcriptions_keep_no_memory(folder: str) -> None:
    objects = make(folder)

    def transcribe() -> None:
        stream = start(objects)
        assert said(stream) == SAYS
        stream.close()

    assert_keeps_nothing(transcribe, warm_up=30, times=60)


def models_keep_no_memory(folder: str) -> None:
    def cycle() -> None:
        objects = make(folder)
        assert said(start(objects)) == SAYS
        objects["session"].close()

    assert_keeps_nothing(cycle, warm_up=10, times=20)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
