"""A language model that answers as a function of its prompt: for chats with tools, where each round has another prompt.

Its vocabulary is `byte_level`, its template that of Hermes and Qwen: reasoning in `<think>`, calls in `<tool_call>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.scripted import Row, ScriptedDecoder, one_hot
from fakes.vocabularies import BYTE_LEVEL_CHAT, byte_level
from genai import LanguageModel, Tokenizer
from genai.loop import GenerationLoop
from genai.sequence import SequenceCore

SIZE = 267
END = 264  # <|im_end|>
TEMPLATE = r"""{%- if tools %}<|im_start|>system
{{ 'Think. ' if enable_thinking else '' }}Call:{% for t in tools %} {{ t | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}
{%- if m.reasoning_content and loop.index > messages | length - 2 %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first else '' }}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{%- else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

Answers = Callable[[str], str]


@dataclass
class ToolModel:
    """A loaded model, the decoder behind it, and the prompts that it was given, as text."""

    model: LanguageModel
    decoder: ScriptedDecoder
    prompts: list[str] = field(default_factory=list)


class _Answering:
    """Scripts what `answers` says to the text of each prompt."""

    def __init__(self, answers: Answers, tokenizer: Tokenizer, prompts: list[str]) -> None:
        self._answers = answers
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._length = 0
        self._answer: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """Take the prompt of a round."""
        self._length = len(prompt)
        self._answer = []
        self._prompts.append(self._tokenizer.decode(prompt))

    def __call__(self, history: Sequence[int]) -> Row:
        if not self._answer:
            self._answer = [*self._tokenizer.encode(self._answers(self._prompts[-1]), False), END]
        return one_hot(self._answer[len(history) - self._length], SIZE)


class _Core(SequenceCore):
    """Tells what a round begins with."""

    answering: _Answering

    def start(self, token_ids: Sequence[int], *others: Any) -> GenerationLoop:
        self.answering.begin(token_ids)
        return super().start(token_ids, *others)


@contextmanager
def tool_model(
    folder: Path, answers: Answers | Sequence[str], *, template: str = TEMPLATE, capacity: int = 8192
) -> Iterator[ToolModel]:
    """Load a model that answers so; a sequence has one answer for each round in turn."""
    config = {**BYTE_LEVEL_CHAT["tokenizer_config.json"], "chat_template": template}
    path = byte_level(folder / "tool-model", {**BYTE_LEVEL_CHAT, "tokenizer_config.json": config})
    rounds = iter(()) if callable(answers) else iter(answers)

    def script(prompt: str) -> str:
        return answers(prompt) if callable(answers) else next(rounds)

    with Tokenizer.from_file(path) as tokenizer:
        decoder = ScriptedDecoder(capacity=capacity, vocabulary_size=SIZE)
        stage: Any = decoder
        core = _Core(stage, tokenizer, (END, 262))
        with LanguageModel("tools", "fake", "nowhere", core, ()) as model:
            made = ToolModel(model, decoder)
            core.answering = decoder.logits = _Answering(script, tokenizer, made.prompts)
            yield made


def call(name: str, arguments: str) -> str:
    """A call as the model writes it; `arguments` is JSON."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
