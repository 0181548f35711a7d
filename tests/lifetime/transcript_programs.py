"""Programs for `test_transcript_lifetime.py`, each run in its own process: `transcript_programs.py PROGRAM FOLDER`.

FOLDER is the tiny Whisper model; a second of its first tone is the word "one", of its seventh "café".
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
from lifetime.memory_programs import resident

import genai
from fakes.strikes import Strike
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
    """The peak of a quarter of an hour is that of half a minute."""
    with genai.load_speech(folder, threads=1) as model:
        model.transcribe(speech(30), voice_activity=False)
        model.transcribe(speech(61), voice_activity=False)
        gc.collect()
        before = peak()
        result = model.transcribe(speech(LONG_SECONDS), voice_activity=False)
        assert len(result.segments) == LONG_SECONDS // 2
        assert peak() - before < 16 << 20, peak() - before


def models_keep_no_memory(folder: str) -> None:
    """The memory after 40 models is that after 10."""
    sizes = []
    for number in range(40):
        with genai.load_speech(folder, threads=1) as model:
            assert model.transcribe(SOUND).text == SAYS
        if number % 10 == 9:
            sizes.append(resident())
    assert sizes[-1] - sizes[0] < 8 << 20, sizes


def transcriptions_keep_no_memory(folder: str) -> None:
    """The memory after 150 transcriptions is that after 30; every third is not read to its end."""
    sizes = []
    with genai.load_speech(folder, threads=1) as model:
        for number in range(150):
            if number % 3:
                assert model.transcribe(SOUND).text == SAYS
            else:
                next(model.stream(SOUND))
            if number % 30 == 29:
                sizes.append(resident())
    assert sizes[-1] - sizes[0] < 4 << 20, sizes


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
            assert model.transcribe(SOUND, timeout=5).text == SAYS, strike.where
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


def peak() -> int:
    """Most bytes of memory so far."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
