"""The chat completion task over real engines: the tiny scripted models, and SmolLM2 on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles, require_engine
from fakes.real_chats import real_chat
from genai.runtime import Runtime
from genai.tasks import (
    ChatCompletionFinishReason,
    ChatCompletionMessage,
    ChatCompletionPromptCacheMode,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionSession,
    TextGenerationOptions,
)
from models import recipes

pytestmark = pytest.mark.real

SENTENCE = "Paris is the capital of France, a city with good café and museums."
Reason = ChatCompletionFinishReason
Mode = ChatCompletionPromptCacheMode


def asked(*texts: str, **fields: object) -> ChatCompletionRequest:
    """A request of turns by the user and the assistant in alternation."""
    roles = ("user", "assistant")
    messages = tuple(ChatCompletionMessage(roles[place % 2], text) for place, text in enumerate(texts))
    return ChatCompletionRequest(messages, **fields)  # type: ignore[arg-type]


@contextmanager
def scripted(form: str, files: ModelFiles, runtime: Runtime) -> Iterator[ChatCompletionSession]:
    require_engine("llama" if form == "gguf" else "ort")
    path = recipes.scripted_gguf(files.folder) if form == "gguf" else recipes.scripted_onnx(files.folder, form)
    with real_chat(runtime, path) as session:
        yield session


@contextmanager
def smollm2(form: str, request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[ChatCompletionSession]:
    require_engine("llama" if form == "gguf" else "ort")
    path: Path = request.getfixturevalue("smollm2_gguf" if form == "gguf" else "smollm2_q8")
    with real_chat(runtime, path) as session:
        yield session


@pytest.mark.parametrize("form", ["gguf", "plain", "gqa"])
def test_g117_turns_reuse_what_came_before(form: str, files: ModelFiles, runtime: Runtime) -> None:
    with scripted(form, files, runtime) as session:
        first = session.generate(asked("What?"))
        second = session.generate(asked("What?", SENTENCE, "Where?"))
    assert first.content == second.content == SENTENCE
    assert first.prompt_cache_use.mode is Mode.FULL_PREFILL
    assert second.prompt_cache_use.mode is Mode.REUSED_PREFIX
    assert second.prompt_cache_use.cached_prompt_token_count == first.prompt_token_count + 17


@pytest.mark.parametrize("form", ["gguf", "gqa"])
def test_g120_bytes_of_a_character_are_one_event(form: str, files: ModelFiles, runtime: Runtime) -> None:
    with scripted(form, files, runtime) as session, session.stream(asked("What?")) as stream:
        events = list(stream)
        ids = stream.result.text_generation_result.token_ids
    accent = next(event for event in events if event.text == "é")
    assert accent.source_token_count == 2
    assert tuple(token for event in events for token in event.source_token_ids) == ids


@pytest.mark.parametrize("form", ["gguf", "q8"])
def test_g117_smollm2_keeps_a_conversation(form: str, request: pytest.FixtureRequest, runtime: Runtime) -> None:
    question = "What is the capital of France? Answer in one short sentence."
    with smollm2(form, request, runtime) as session:
        first = session.generate(asked(question))
        assert (first.content, first.finish_reason) == ("The capital of France is Paris.", Reason.EOS_TOKEN)
        assert first.prompt_cache_use.cached_prompt_token_count == 0
        request_2 = asked(question, first.content, "And of Italy?")
        second = session.generate(request_2, TextGenerationOptions(max_new_tokens=12))
        used = second.prompt_cache_use
        assert used.cached_prompt_token_count == first.prompt_token_count + first.completion_token_count
        assert used.prefilled_prompt_token_count == second.prompt_token_count - used.cached_prompt_token_count
        assert "Rome" in second.content


@pytest.mark.parametrize("form", ["gguf", "q8"])
def test_g122_smollm2_answers_in_json(form: str, request: pytest.FixtureRequest, runtime: Runtime) -> None:
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "population": {"type": "integer"}},
        "required": ["city", "population"],
        "additionalProperties": False,
    }
    wish = asked(
        "Name a big city as JSON.",
        response_format=ChatCompletionResponseFormat.JSON_SCHEMA,
        response_schema_json=json.dumps(schema),
    )
    with smollm2(form, request, runtime) as session:
        result = session.generate(wish, TextGenerationOptions(max_new_tokens=80))
    assert result.finish_reason is Reason.EOS_TOKEN
    value = json.loads(result.content)
    assert (sorted(value), type(value["city"]), type(value["population"])) == (["city", "population"], str, int)
