"""Programs for `test_transcript_lifetime.py`, each run in its own process: `transcript_programs.py PROGRAM FOLDER`.

FOLDER is the tiny Whisper model; a second of its first tone is the word "one", of its seventh "café".
"""

from __future__ import annotations

import asyncio
import os
import select
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from lifetime.held_memory import assert_keeps_nothing, held_memory

import genai
from fakes.strikes import Strike
from genai.pipe_reader import PipeReader
from models.voice_models import loudness_sequence
from models.whisper_models import tones

SOUND = tones([0, 6])
SAYS = "one café"
LONG_SECONDS = 900


def speech(seconds: int) -> Iterator[np.ndarray[Any, Any]]:
    """A recording in blocks of a second: a word in every other one."""
    word, pause = tones([0]), tones([None])
    for second in range(seconds):
        yield word if second % 2 == 0 else pause


def a_long_recording_takes_no_memory(folder: str) -> None:
    """What is held at the end of each window is the same for a quarter of an hour, but for the text."""
    sizes: list[int] = []
    with genai.load_speech(folder, threads=1) as model:
        result = model.transcribe(
            speech(LONG_SECONDS), voice_activity=False, progress=lambda done, total: sizes.append(held_memory())
        )
    assert len(result.segments) == LONG_SECONDS // 2
    assert len(sizes) >= LONG_SECONDS // 30
    assert max(sizes[4:]) - sizes[3] < 1 << 20, sizes


def models_keep_no_memory(folder: str) -> None:
    def cycle() -> None:
        with genai.load_speech(folder, threads=1) as model:
            assert model.transcribe(SOUND).text == SAYS

    assert_keeps_nothing(cycle, warm_up=10, times=20)


def transcriptions_keep_no_memory(folder: str) -> None:
    """Every third transcription is not read to its end."""
    with genai.load_speech(folder, threads=1) as model:

        def transcribe() -> None:
            next(model.stream(SOUND))
            assert model.transcribe(SOUND).text == SAYS
            assert model.transcribe(SOUND).text == SAYS

        assert_keeps_nothing(transcribe, warm_up=10, times=20)


def interrupts_anywhere_leave_a_usable_model(folder: str) -> None:
    """Ctrl-C at every 149th place of a transcription."""
    with genai.load_speech(folder, threads=1) as model:
        number = 1
        while True:
            strike = Strike(number)
            try:
                strike.during(lambda: model.transcribe(SOUND))
            except KeyboardInterrupt:
                pass
            assert model.transcribe(SOUND, timeout=100).text == SAYS, strike.where
            if not strike.where:
                break
            number += 149
    assert number > 1000, number


def closed_while_others_transcribe(folder: str) -> None:
    """Twenty models that are closed at some moment while three threads use them."""
    for number in range(20):
        model = genai.load_speech(folder, threads=1)
        threads = [threading.Thread(target=use, args=(model,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.01 * number)
        model.close()
        for thread in threads:
            thread.join()


def use(model: genai.SpeechModel) -> None:
    """Transcribe until the model is closed."""
    with suppress(RuntimeError):
        while True:
            result = model.transcribe(SOUND)
            assert result.text == SAYS or result.finish_reason.name == "CANCELED", result


def leave_a_stream_open(folder: str) -> None:
    """The interpreter ends with a stream half read."""
    model = genai.load_speech(folder)
    stream = model.stream(speech(100), voice_activity=False)
    next(stream)
    globals()["kept"] = model, stream


def leave_another_thread_at_work(folder: str) -> None:
    """The interpreter ends while a daemon thread transcribes."""
    model = genai.load_speech(folder)
    has_begun = threading.Event()

    def work() -> None:
        for _ in model.stream(speech(10_000), voice_activity=False):
            has_begun.set()

    threading.Thread(target=work, daemon=True).start()
    has_begun.wait()


def silence_on_standard_input() -> int:
    """Put a pipe there to which nobody writes but the header of a WAV; return what writes to it."""
    reader, writer = os.pipe()
    header = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 0, b"WAVEfmt ", 16, 1, 1, 16000, 32000, 2, 16, b"data", 0)
    os.write(writer, header)
    os.dup2(reader, 0)
    return writer


def leave_a_silent_microphone(folder: str) -> None:
    """A cancelled task and the model that it leaves end, and so does the interpreter, while nothing comes."""
    silence_on_standard_input()
    is_silent = threading.Event()
    has_come = PipeReader.has_come

    def told(pipe: PipeReader, seconds: float) -> bool:
        has = has_come(pipe, seconds)
        if not has:
            is_silent.set()
        return has

    PipeReader.has_come = told  # type: ignore[method-assign, assignment]
    onnx.save(loudness_sequence(), Path(folder, "loudness.onnx"))

    async def hear() -> None:
        with genai.VoiceActivity(Path(folder, "loudness.onnx")) as activity:
            async with genai.load_speech(folder, threads=1) as model:
                task = asyncio.create_task(model.atranscribe(sys.stdin.buffer, live=True, voice_activity=activity))
                await asyncio.to_thread(is_silent.wait)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(hear())


def leave_a_thread_in_a_silent_pipe(folder: str) -> None:
    """The interpreter ends while a daemon thread waits for standard input."""
    silence_on_standard_input()
    threading.Thread(target=genai.read_audio, args=(sys.stdin.buffer,), daemon=True).start()
    while select.select([0], [], [], 0)[0]:
        pass


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
