"""Chats with tools on the tiny model that calls two of them, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from fakes.real_models import smollm2_gguf
from models import recipes
from models.tool_models import ANSWER, CALLS, TEMPLATE

pytestmark = pytest.mark.real

QUESTION = "What is 127 times 31, and how many people live in Łódź?"


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def population(city: Literal["Łódź", "Kraków"]) -> int:
    """Look up how many people live in a city."""
    return {"Łódź": 645_693, "Kraków": 807_644}[city]


async def fetched_population(city: str) -> int:
    """Look up how many people live in a city."""
    await asyncio.sleep(0)
    return 645_693


fetched_population.__name__ = "population"
TOOLS: list[Callable[..., Any]] = [multiply, population]


@pytest.fixture(params=["gguf", "plain", "std", "gqa"])
def model(request: pytest.FixtureRequest, files: ModelFiles) -> Iterator[genai.LanguageModel]:
    require_engine("llama" if request.param == "gguf" else "ort")
    gguf = request.param == "gguf"
    path = recipes.tool_gguf(files.folder) if gguf else recipes.tool_onnx(files.folder, request.param)
    with genai.load(path, threads=1) as model:
        yield model


def test_both_tools_are_called_and_the_answer_follows(model: genai.LanguageModel) -> None:
    chat = model.chat(tools=TOOLS)
    reply = chat.send(QUESTION)
    assert reply.text == ANSWER
    assert [(str(call), call.result) for call in reply.tool_calls] == [
        ("multiply(a=127, b=31)", "3937"),
        ("population(city='Łódź')", "645693"),
    ]
    assert chat.messages == (
        ("user", QUESTION),
        ("assistant", ""),
        ("tool", "3937"),
        ("tool", "645693"),
        ("assistant", ANSWER),
    )


def test_without_tools_the_calls_are_text(model: genai.LanguageModel) -> None:
    assert model.chat().send(QUESTION).text == CALLS


def test_calls_are_read_without_a_grammar_too(model: genai.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise genai.NotSupportedError(0x8007007E, "llguidance", "not installed")

    monkeypatch.setattr("genai.constraint_engine._engine", missing)
    assert model.chat(tools=TOOLS).send(QUESTION).text == ANSWER
    with pytest.raises(genai.NotSupportedError, match="not installed"):
        model.chat(tools=TOOLS).send(QUESTION, tool_choice="required")


def test_the_second_round_knows_the_prompt_of_the_first(model: genai.LanguageModel) -> None:
    reply = model.chat(tools=TOOLS).send(QUESTION)
    first, second = reply.rounds
    known = second.prompt_token_count - second.timings.evaluated_prompt_token_count
    assert known >= first.prompt_token_count


def test_a_second_turn_equals_that_of_a_fresh_conversation(model: genai.LanguageModel) -> None:
    chat = model.chat(tools=TOOLS)
    chat.send(QUESTION)
    saved = [message.as_dict() for message in chat.messages]
    known = chat.send("And?")
    model.generate("x", max_new_tokens=1)
    fresh = model.chat(tools=TOOLS, messages=saved).send("And?")
    assert (fresh.token_ids, fresh.prompt_token_count) == (known.token_ids, known.prompt_token_count)


def test_a_tool_may_be_named(model: genai.LanguageModel) -> None:
    pytest.importorskip("llguidance")
    reply = model.chat(tools=TOOLS).send(QUESTION, tool_choice="population", max_new_tokens=100)
    assert [call.name for call in reply.tool_calls] == ["population"]
    assert reply.tool_calls[0].value in (645_693, 807_644)
    assert reply.text == ANSWER


def test_refused_calls_are_told(model: genai.LanguageModel) -> None:
    chat = model.chat(tools=TOOLS, approve=lambda call: call.name == "multiply")
    statuses = [call.status.value for call in chat.send(QUESTION).tool_calls]
    assert statuses == ["done", "refused"]


def test_coroutines_are_awaited(model: genai.LanguageModel) -> None:
    async def program() -> str:
        chat = model.chat(tools=[multiply, fetched_population])
        return "".join([piece async for piece in chat.astream(QUESTION)])

    assert asyncio.run(program()) == ANSWER


def test_s_tpl_06_a_template_may_be_given(files: ModelFiles) -> None:
    path = recipes.tool_onnx(files.folder)
    with genai.load(path, threads=1, chat_template="{{ messages[0].content + '\\n' }}") as model:
        assert model.chat().send(QUESTION).text == CALLS
        with pytest.raises(genai.NotSupportedError, match="the chat template shows none"):
            model.chat(tools=TOOLS)
        with pytest.raises(genai.NotSupportedError, match="the chat template shows none"):
            model.chat().send(QUESTION, tools=TOOLS)
    with pytest.raises(genai.WinMLError, match="line 1: "):
        genai.load(path, threads=1, chat_template="{% for")


def test_a_real_model_is_made_to_call(files: ModelFiles) -> None:
    require_engine("llama")
    pytest.importorskip("llguidance")
    with genai.load(smollm2_gguf(), threads=1, context_length=512, chat_template=TEMPLATE) as model:
        chat = model.chat(tools=[population])
        reply = chat.send("How many people live in Kraków?", tool_choice="required", max_new_tokens=40)
    assert reply.tool_calls[0].name == "population"
    assert reply.tool_calls[0].value in (645_693, 807_644)
    assert reply.text != ""
