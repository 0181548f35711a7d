"""Programs for `test_generation_threads.py`, each run in its own process: `generation_programs.py PROGRAM MODEL`.

MODEL is the scripted model in one of its forms.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading

from lifetime.interrupts import until_interrupted

import genai
from fakes.threads import in_threads

ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
SENTENCE = "Paris is the capital of France, a city with good café and museums."


def eight_threads(path: str) -> None:
    """Eight threads call one model at once; each answer is right."""
    wrong: list[str] = []
    with genai.load(path, threads=1) as model:
        start = threading.Barrier(8)

        def work(number: int) -> None:
            start.wait()
            for turn in range(12):
                text = ASKED.replace("What", "What" if (number + turn) % 2 else "Where")
                answer = model.generate(text).text if number % 2 else "".join(model.stream(text))
                if answer != SENTENCE:
                    wrong.append(answer)

        in_threads(work, 8)
    assert wrong == []


def chats_in_threads(path: str) -> None:
    """Each thread keeps a conversation of its own on one model."""
    lengths: list[int] = []
    with genai.load(path, threads=1) as model:

        def work(number: int) -> None:
            chat = model.chat(system=f"You are number {number}.")
            for _ in range(4):
                assert chat.send("What?").text == SENTENCE
            lengths.append(len(chat.messages))

        in_threads(work, 4)
    assert lengths == [8] * 4


def dropped_streams(path: str) -> None:
    """Streams are read half and dropped in threads; one in a cycle, which the garbage collection of another finds."""
    with genai.load(path, threads=1) as model:

        def work(number: int) -> None:
            for _ in range(20):
                stream = model.stream(ASKED)
                assert next(stream) == "Paris"
                del stream

        def drop_in_a_cycle(number: int) -> None:
            ring: list[object] = [model.stream(ASKED)]
            ring.append(ring)

        in_threads(work, 4)
        in_threads(drop_in_a_cycle, 1)
        gc.collect()
        assert model.generate(ASKED, timeout=100).text == SENTENCE


def closed_while_running(path: str) -> None:
    """The model is closed while other threads read it; they end quietly or are refused by name."""
    endings: list[str] = []
    model = genai.load(path, threads=1)
    begun = threading.Event()

    def work(number: int) -> None:
        try:
            while True:
                result = model.generate(ASKED)
                begun.set()
                endings.append(result.finish_reason.name)
        except RuntimeError as error:
            endings.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(100)
    model.close()
    for thread in threads:
        thread.join(100)
    assert endings.count("LanguageModel is closed") == 3
    assert set(endings) <= {"EOS_TOKEN", "CANCELED", "LanguageModel is closed"}


def interrupts(path: str) -> None:
    """Twenty interrupts at random moments leave the model usable."""
    random.seed(7)
    caught = 0
    with genai.load(path, threads=1) as model:
        chat = model.chat()
        assert chat.send("What?").text  # what is imported late is imported now
        while caught < 20:
            try:
                for _ in until_interrupted(random.random() * 0.03):
                    chat.reset()
                    model.generate(ASKED)
                    chat.send("What?")
            except KeyboardInterrupt:
                caught += 1
            assert model.generate(ASKED, timeout=100).text == SENTENCE
            assert chat.send("Where?", max_new_tokens=4).text == "Paris is the capital"


def interrupts_of_the_long_road(path: str) -> None:
    """Twenty interrupts at random moments leave a session usable once its stream is closed."""
    from genai.tasks import TextGenerationOptions, TextGenerationSession, TextGenerationStream

    random.seed(11)
    with genai.load(path, threads=1) as model:
        core = model._open()
        session = TextGenerationSession(core, None)  # type: ignore[arg-type]
        caught = 0
        assert session.generate(ASKED).text == SENTENCE  # what is imported late is imported now
        while caught < 20:
            stream: TextGenerationStream | None = None
            try:
                for _ in until_interrupted(random.random() * 0.01):
                    stream = session.generate_text(ASKED, TextGenerationOptions(12))
                    for update in stream:
                        assert update.fragment in SENTENCE
            except KeyboardInterrupt:
                caught += 1
            if stream is not None:
                stream.close()
            core.recover()
            assert session.generate(ASKED).text == SENTENCE


def leave_a_stream_open(path: str) -> None:
    """The interpreter ends with a model loaded and a stream half read."""
    globals()["kept"] = genai.load(path, threads=1).stream(ASKED)
    next(globals()["kept"])


def leave_a_session_open(path: str) -> None:
    """The interpreter ends with a session whose stream is half read."""
    from genai.tasks import TextGenerationSession

    model = genai.load(path, threads=1)
    session = TextGenerationSession(model._open(), None)  # type: ignore[arg-type]
    stream = session.generate_text(ASKED)
    stream.read_next()
    globals()["kept"] = model, session, stream


def fork_while_another_thread_streams(path: str) -> None:
    """The child lacks the thread whose turn it is: it does not wait for it, and is told what to do instead."""
    model = genai.load(path, threads=1)
    go_on, begun = threading.Event(), threading.Event()

    def work() -> None:
        stream = model.stream(ASKED)
        next(stream)
        begun.set()
        go_on.wait(100)
        assert stream.read().text == SENTENCE

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(100)
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        try:
            model.generate(ASKED)
        except RuntimeError as error:
            assert "'spawn'" in str(error), error
            model.close()
            sys.exit(7)
        sys.exit("it was not refused")
    assert os.waitpid(pid, 0)[1] == 7 << 8
    go_on.set()
    thread.join()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
