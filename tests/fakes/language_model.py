"""A language model that says what a test has written down: stands in for `genai.load` below the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from genai.options import TextGenerationOptions
from genai.results import TextGenerationFinishReason, TextGenerationResult, TextGenerationTimings, TokenLogprob
from genai.speculative_statistics import TextGenerationSpeculativeStatistics
from winml_lite import ExecutionTargetKind

TIMINGS = TextGenerationTimings(0.5, 2.0, 10, 5)


@dataclass
class Answer:
    """One answer: pieces (an exception instead of a piece is raised there), and why it ends."""

    pieces: tuple[str | BaseException, ...]
    reason: TextGenerationFinishReason = TextGenerationFinishReason.EOS_TOKEN
    logprobs: tuple[TokenLogprob, ...] | None = None
    drafts: TextGenerationSpeculativeStatistics | None = None


class FakeStream:
    """Yields the pieces of an answer."""

    def __init__(self, answer: Answer, on_end: Callable[[str], None]) -> None:
        self._answer = answer
        self._pieces = iter(answer.pieces)
        self._on_end = on_end
        self._said: list[str] = []
        self._is_open = True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        if isinstance(piece, BaseException):
            raise piece
        self._said.append(piece)
        return piece

    @property
    def result(self) -> TextGenerationResult:
        text = "".join(self._said)
        token_ids = tuple(range(len(self._said)))
        answer = self._answer
        return TextGenerationResult(
            text, token_ids, answer.reason, 0, 10, answer.drafts, seed=7, timings=TIMINGS, logprobs=answer.logprobs
        )

    def read(self) -> TextGenerationResult:
        with self:
            for _ in self:
                pass
        return self.result

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._on_end("".join(self._said))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass
class FakeChat:
    """Keeps its history like the real one."""

    model: FakeModel
    system: str | None
    messages: tuple[tuple[str, str], ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def stream(self, text: str, *, options: TextGenerationOptions, **form: Any) -> FakeStream:
        def remember(said: str) -> None:
            if said:
                self.messages = (*self.messages, ("user", text), ("assistant", said))

        self.model.asked.append((self.system, text, options))
        self.model.forms.append(form)
        return FakeStream(self.model.answers.pop(0), remember)

    def reset(self) -> None:
        self.messages = ()


@dataclass
class FakeTokenizer:
    """One token for each character."""

    token_count = 0x110000

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(character) for character in text]


@dataclass
class FakeModel:
    """Answers in the order of `answers`; `asked` holds (system message or "raw", text, options) of each call."""

    answers: list[Answer] = field(default_factory=list)
    can_chat: bool = True
    takes_images: bool = False
    takes_audio: bool = False
    name: str = "fake"
    engine: str = "llama.cpp"
    target: ExecutionTargetKind = ExecutionTargetKind.CPU
    provider: str | None = None
    file: str = "/models/fake.gguf"
    context_length: int = 4096
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    asked: list[tuple[str | None, Any, TextGenerationOptions]] = field(default_factory=list)
    forms: list[dict[str, Any]] = field(default_factory=list)
    """What each answer had to look like."""
    loads: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    chats: list[FakeChat] = field(default_factory=list)
    is_closed: bool = False

    def load(self, source: str, **options: Any) -> Self:
        """Stands in for `genai.load`."""
        self.loads.append((source, options))
        return self

    def chat(self, system: str | None = None, **fields: Any) -> FakeChat:
        self.chats.append(FakeChat(self, system, fields=fields))
        return self.chats[-1]

    def stream(self, prompt: str, *, options: TextGenerationOptions, **form: Any) -> FakeStream:
        self.asked.append(("raw", prompt, options))
        self.forms.append(form)
        return FakeStream(self.answers.pop(0), lambda said: None)

    def generate(self, prompt: Iterable[int], **fields: Any) -> TextGenerationResult:
        self.asked.append(("raw", list(prompt), TextGenerationOptions(**fields)))
        return FakeStream(self.answers.pop(0), lambda said: None).read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.is_closed = True


def saying(*pieces: str | BaseException) -> Answer:
    """An answer that ends by itself."""
    return Answer(pieces)
