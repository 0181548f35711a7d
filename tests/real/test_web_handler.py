"""`examples/web_handler.py` as a server of its own, asked by HTTP clients at the same time."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from models.recipes import random_gguf, random_onnx

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "web_handler.py"
QUESTIONS = ("Why?", "Where is it now?")
MAX_NEW_TOKENS = 400
ENDLESSLY = """
import time
import genai
from examples import web_handler

def slow_stream(chat, question, **fields):
    web_handler.logger.info("begun")
    return astream(chat, question, stopping=lambda ids, text: time.sleep(0.1), **fields)

astream, genai.Chat.astream = genai.Chat.astream, slow_stream
web_handler.main()
"""
"""The example with answers that nobody would wait for, and a line for each in its log."""
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None,
        reason="starlette or uvicorn is not installed",
    ),
]


@pytest.fixture(params=["gguf", "gqa"])
def path(request: pytest.FixtureRequest, files: ModelFiles) -> Path:
    """A model with random weights that talks until it is cut."""
    require_engine("llama" if request.param == "gguf" else "ort")
    return random_gguf(files.folder) if request.param == "gguf" else random_onnx(files.folder, request.param)


@contextmanager
def serving(path: Path, log: list[str] | None = None, program: str | None = None) -> Iterator[int]:
    """Run the example and yield its port; it must end well. In the end `log` holds what it has said."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), str(path), "0"]
    if program is not None:
        command[3:4] = ["-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, encoding="utf-8"
    ) as process:
        assert process.stderr is not None
        said = log if log is not None else []
        try:
            for line in process.stderr:
                said.append(line)
                found = re.search(r"running on http://127\.0\.0\.1:(\d+)", line)
                if found:
                    break
            else:
                raise AssertionError("".join(said))
            yield int(found[1])
        finally:
            process.terminate()
            said += process.stderr
    text = "".join(said)
    assert "Traceback" not in text, text
    if os.name != "nt":  # there a process is ended without being asked
        assert "Application shutdown complete" in text, text


@contextmanager
def asking(port: int, question: str) -> Iterator[HTTPResponse]:
    """Send a question, and yield the answer when it has begun."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=500)) as connection:
        connection.request("POST", "/", question.encode())
        with connection.getresponse() as response:
            assert response.status == 200
            yield response


def refused(port: int, question: str) -> tuple[int, str]:
    """Ask, and return the status and the text of the refusal."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=500)) as connection:
        connection.request("POST", "/", question.encode())
        with connection.getresponse() as response:
            return response.status, response.read().decode()


def read_all(port: int, question: str) -> str:
    """Ask, and read the answer to its end."""
    with asking(port, question) as response:
        return response.read().decode()


def test_two_clients_get_their_answers_at_once(path: Path) -> None:
    with genai.load(path, threads=1) as model:
        alone = [model.chat().send(question, max_new_tokens=MAX_NEW_TOKENS).text for question in QUESTIONS]
    texts: dict[str, str] = {}
    with serving(path) as port:
        threads = [
            threading.Thread(target=lambda q=question: texts.update({q: read_all(port, q)})) for question in QUESTIONS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [texts[question] for question in QUESTIONS] == alone


def test_two_answers_come_at_the_same_time(path: Path) -> None:
    log: list[str] = []
    with serving(path, log, ENDLESSLY) as port, asking(port, QUESTIONS[0]) as one, asking(port, QUESTIONS[1]) as other:
        for response in (one, other, one, other):
            assert response.read1()
    assert [line for line in log if "tokens" in line] == []  # neither answer has come to its end


def test_clients_that_go_away_end_their_generations(path: Path) -> None:
    log: list[str] = []
    with serving(path, log, ENDLESSLY) as port:
        for _ in range(5):  # more than there are models
            for question in QUESTIONS:
                with asking(port, question) as response:
                    assert response.read1()
    assert [line for line in log if "tokens" in line] == []  # no answer has come to its end


def test_clients_that_go_away_while_they_wait_give_their_places_up(path: Path) -> None:
    log: list[str] = []
    with serving(path, log, ENDLESSLY) as port, asking(port, QUESTIONS[0]):
        with asking(port, QUESTIONS[1]):
            for _ in range(5):
                with closing(HTTPConnection("127.0.0.1", port)) as connection:
                    connection.request("POST", "/", b"Who?")
                    time.sleep(0.1)
        with asking(port, QUESTIONS[0]) as response:
            assert response.read1()
    assert len([line for line in log if "begun" in line]) < 2 + 5 + 1


def test_more_clients_than_models_all_get_their_answers(path: Path) -> None:
    texts: list[str] = []
    with serving(path) as port:
        threads = [threading.Thread(target=lambda: texts.append(read_all(port, QUESTIONS[0]))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(texts) == 6
    assert len(set(texts)) == 1


def test_a_question_that_is_too_long_is_refused_before_anything_is_sent(path: Path) -> None:
    with serving(path) as port:
        for _ in range(3):  # more than there are models
            status, text = refused(port, "Why? " * 20_000)
            assert status == 413
            assert "tokens" in text
        assert read_all(port, QUESTIONS[0])
