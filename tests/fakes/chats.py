"""A chat over a scripted stage of any engine: a vocabulary of bytes with a ChatML template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fakes.constraints import IM_END, SIZE
from fakes.scripted import Compose, Composed, one_hot
from fakes.vocabularies import BYTE_LEVEL_CHAT, CHATML, byte_level, chat_folder
from genai.tasks import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionSession,
    ChatCompletionTask,
    Tasks,
    TextGenerationSession,
)
from genai.tokenizer import Tokenizer
from models.table_decoders import TableDecoder

MARKED = CHATML.replace("<|im_end|>", "<end>")
"""A template whose turns end with a text that is no token."""
TOOLS = CHATML.replace("{% for m", "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m", 1)
"""A template that shows tools, in the notation of Hermes."""


def _greeting() -> TableDecoder:
    following = np.zeros((SIZE, SIZE), np.float32)
    for text in ("Salut.", "Bye."):
        for character, next_id in zip(text, (*text[1:].encode(), IM_END), strict=True):
            following[ord(character)] = one_hot(next_id, SIZE)
    following[ord("\n")] = 5.1 * one_hot(ord("S"), SIZE) + 5 * one_hot(ord("B"), SIZE)
    mixed = np.zeros((SIZE, SIZE), np.float32)
    mixed[ord("?")] = 10 * one_hot(ord("B"), SIZE)
    return TableDecoder(SIZE, following=following, mixed=mixed)


greeting = _greeting()
"""Scripts "Salut." after each prompt, and "Bye." once there is a question mark in the conversation."""


def preferring(text: str) -> TableDecoder:
    """Score the bytes of `text` highest, from the first on; then the lower id."""
    row = np.linspace(0, -4, SIZE, dtype=np.float32)
    for place, byte in enumerate(dict.fromkeys(text.encode())):
        row[byte] = 10.0 - place
    return TableDecoder(SIZE, constant=row)


def asked(*texts: str, **fields: Any) -> ChatCompletionRequest:
    """A request of turns by the user and the assistant in alternation."""
    roles = ("user", "assistant")
    messages = tuple(ChatCompletionMessage(roles[place % 2], text) for place, text in enumerate(texts))
    return ChatCompletionRequest(messages, **fields)


@dataclass
class Chatting:
    """A chat task and session, and what they are made of."""

    stage: Composed
    text_session: TextGenerationSession
    task: ChatCompletionTask
    session: ChatCompletionSession

    def prompt(self, request: ChatCompletionRequest) -> tuple[int, ...]:
        """The tokens of a request."""
        return self.stage.tokenizer.format_conversation(request).token_ids


@contextmanager
def chatting(
    compose: Compose,
    folder: Path,
    script: TableDecoder | Iterable[tuple[ChatCompletionRequest, str]],
    *,
    template: str | None = None,
    capacity: int = 512,
) -> Iterator[Chatting]:
    """Compose a chat whose stage follows a script, or gives the answer that belongs to each request."""
    path = byte_level(folder, BYTE_LEVEL_CHAT) if template is None else chat_folder(folder, template)
    logits = script if isinstance(script, TableDecoder) else _answering(path, script, capacity)
    with compose(folder, logits, capacity=capacity, vocabulary=(path, SIZE)) as stage:
        text_session = stage.session()
        task = Tasks(stage.runtime).create_chat_completion_task(stage.tokenizer)
        yield Chatting(stage, text_session, task, task.create_session(text_session))


def _answering(path: Path, answers: Iterable[tuple[ChatCompletionRequest, str]], capacity: int) -> TableDecoder:
    """Script each answer behind the length of its prompt, byte by byte."""
    rows = np.zeros((capacity + 1, SIZE), np.float32)
    with Tokenizer.from_file(path) as tokenizer:
        for request, answer in answers:
            start = len(tokenizer.format_conversation(request).token_ids)
            for place, token_id in enumerate((*answer.encode(), IM_END), start):
                rows[place] = one_hot(token_id, SIZE)
    return TableDecoder(SIZE, by_length=rows)
