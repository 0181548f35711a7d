"""Random turns of a chat give what a session without any memory gives, and count their prompts right (genai 9.3):
statements 117-119 at length, on the fake, on ONNX Runtime and on llama.cpp.

Turns go on, are asked again, edited or cut; a request begins anew; answers are read to the end, cancelled or closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from fakes.chats import Chatting, chatting
from fakes.constraints import IM_END, SIZE
from fakes.scripted import Compose
from genai.tasks import (
    ChatCompletionContinuation,
    ChatCompletionEventType,
    ChatCompletionFinishReason,
    ChatCompletionMessage,
    ChatCompletionPromptCacheMode,
    ChatCompletionPromptCacheUse,
    ChatCompletionRequest,
    TextGenerationOptions,
)
from models.table_decoders import TableDecoder

LETTERS = b"abcdefgh .<"
Mode = ChatCompletionPromptCacheMode
Role = ("user", "assistant")


def babble() -> TableDecoder:
    """Answers of a few letters that depend on the whole conversation."""
    chance = np.random.default_rng(3)
    spoken = [*LETTERS, IM_END]
    following, mixed = np.full((SIZE, SIZE), -40, np.float32), np.zeros((SIZE, SIZE), np.float32)
    following[:, spoken] = chance.standard_normal((SIZE, len(spoken)))
    mixed[:, spoken] = 15 * chance.standard_normal((SIZE, len(spoken)))
    following[:, IM_END] += 0.5
    return TableDecoder(SIZE, following=following, mixed=mixed)


@pytest.fixture
def pair(compose: Compose, tmp_path: Path) -> Iterator[tuple[Chatting, Chatting]]:
    """Two chats with the same model."""
    with (
        chatting(compose, tmp_path / "one", babble(), capacity=400) as chat,
        chatting(compose, tmp_path / "two", babble(), capacity=400) as fresh,
    ):
        yield chat, fresh


class Conversation:
    """Messages that change at random."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.messages: list[tuple[str, str]] = []

    def change(self) -> ChatCompletionRequest:
        """Say something more, or something else; return the whole as a request."""
        chance, messages = self._chance, self.messages
        kind = chance.choice(["more", "more", "more", "again", "edit", "cut", "anew", "go on"])
        if kind == "anew" or len(messages) > 8:
            messages.clear()
        elif kind == "edit" and messages:
            place = chance.randrange(len(messages))
            messages[place] = messages[place][0], self._text()
        elif kind == "cut" and messages:
            del messages[chance.randrange(len(messages)) :]
        fields: dict[str, Any] = {}
        if messages and messages[-1][0] == "assistant" and messages[-1][1]:
            if kind == "go on":
                fields["continuation"] = ChatCompletionContinuation.CONTENT
            elif kind == "again":
                messages.pop()
        if not fields and (not messages or messages[-1][0] == "assistant"):
            messages.append(("user", self._text()))
        return ChatCompletionRequest(tuple(ChatCompletionMessage(*message) for message in messages), **fields)

    def answered(self, request: ChatCompletionRequest, content: str) -> None:
        """Take an answer in, most of the time."""
        if request.continuation:
            self.messages[-1] = "assistant", self.messages[-1][1] + content
        elif self._chance.random() < 0.8:
            self.messages.append(("assistant", content))

    def _text(self) -> str:
        return "".join(self._chance.choices("abcdefgh ", k=self._chance.randint(1, 6))).strip() or "a"


def cached(chat: Chatting, prompt: Sequence[int]) -> int:
    """Tokens of a prompt that are evaluated already."""
    session = chat.text_session
    known = session.retained_token_ids[: session.sequence_state.evaluated_token_count]
    same = [a == b for a, b in zip(known, prompt[:-1], strict=False)]
    return [*same, False].index(False)


def play(pair: tuple[Chatting, Chatting], chance: Random) -> None:
    chat, fresh = pair
    conversation = Conversation(chance)
    for _ in range(8):
        request = conversation.change()
        options = TextGenerationOptions(
            chance.choice([1, 5, 60]), temperature=chance.choice([0.0, 1.0]), seed=chance.randint(1, 9)
        )
        prompt = chat.prompt(request)
        known = cached(chat, prompt)
        fresh.text_session.reset()
        expected = fresh.session.generate(request, options)
        with chat.session.stream(request, options) as stream:
            if chance.random() < 0.2:
                stream.read_next()
                stream.cancel()
            events = list(stream)
            if stream.result.finish_reason is ChatCompletionFinishReason.CANCELED:
                assert expected.content.startswith(stream.result.content)
                continue
            result = stream.result
        assert (result.content, result.finish_reason) == (expected.content, expected.finish_reason)
        assert result.completion_token_count == expected.completion_token_count
        assert events[-1].type is ChatCompletionEventType.COMPLETED
        assert result.prompt_cache_use == ChatCompletionPromptCacheUse(
            Mode.REUSED_PREFIX if known else Mode.FULL_PREFILL, len(prompt), known, len(prompt) - known
        )
        conversation.answered(request, result.content)


def test_g117_g118_g119_turns_answer_as_a_fresh_session_does(pair: tuple[Chatting, Chatting]) -> None:
    for seed in range(2):
        play(pair, Random(seed))
