"""The short road: a loaded model that generates, streams and chats (design: short road on the long road).

Any thread may call; a second call waits until the first is done. Each call drives the same sequence, so a prompt that
begins like the one before costs only its new tokens.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from winml_lite import NotSupportedError, WinMLError

from .cancellation import CancellationSource
from .chat import Chat
from .codes import E_NOINTERFACE, E_NOT_VALID_STATE
from .loop import GenerationLoop
from .options import TextGenerationOptions
from .results import TextGenerationResult
from .sequence import SequenceCore
from .tokenizer import Tokenizer


class OptionFields(TypedDict, total=False):
    """The fields of `TextGenerationOptions` as keyword arguments."""

    max_new_tokens: int
    stop_token_ids: Iterable[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_penalty_window: int
    presence_penalty: float
    frequency_penalty: float
    seed: int
    stop: Iterable[str]


class CallFields(OptionFields, total=False):
    """Keyword arguments of one call: generation options, or one `options` record instead, and how to stop or wait."""

    options: TextGenerationOptions | None
    cancellation: CancellationSource | None
    timeout: float | None


class _Turnstile:
    """Lets one generation at a time through, in any thread; may be released by another thread than took it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: threading.Thread | None = None

    def enter(self, timeout: float | None) -> None:
        here = threading.current_thread()
        if not self._lock.acquire(blocking=False):
            if self._holder is here:
                raise WinMLError(
                    E_NOT_VALID_STATE,
                    "generate",
                    "this thread has an unfinished stream of the model: read it to its end or close it",
                )
            if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)):
                raise TimeoutError(f"the model was busy for {timeout} seconds with another call")
        self._holder = here

    def leave(self) -> None:
        self._holder = None
        self._lock.release()


OnEnd = Callable[[TextGenerationResult], None]
MakePrompt = Callable[[SequenceCore], tuple[list[int], tuple[str, ...]]]


def _end(loop: GenerationLoop, turnstile: _Turnstile, on_end: OnEnd | None) -> None:
    """Finish a generation, also from garbage collection in another thread."""
    try:
        loop.close()
        if on_end is not None and loop.result is not None:
            on_end(loop.result)
    finally:
        turnstile.leave()


class TextStream:
    """An iterator of text pieces; afterwards `result` holds the whole.

    Leaving the loop early and dropping the stream, or `close()`, ends the generation as CANCELED. A failing model
    raises its WinMLError from the iteration; `result` then holds the text so far.
    """

    def __init__(self, loop: GenerationLoop, turnstile: _Turnstile, on_end: OnEnd | None = None) -> None:
        self._loop = loop
        self._finalizer = weakref.finalize(self, _end, loop, turnstile, on_end)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            while (update := self._loop.read_next()) is not None:
                if update.fragment:
                    return update.fragment
        except BaseException:  # KeyboardInterrupt: the model stays usable
            self.close()
            raise
        self.close()
        self.result.raise_for_error()
        raise StopIteration

    @property
    def result(self) -> TextGenerationResult:
        """The result of the finished stream; 0x8007139F before its end."""
        result = self._loop.result
        if result is None:
            raise WinMLError(
                E_NOT_VALID_STATE, "TextStream.result", "the stream is not at its end: read it or close it"
            )
        return result

    @property
    def reused_token_count(self) -> int:
        """Prompt tokens that the model still knew from the call before."""
        return self._loop.reused_token_count

    def read(self) -> TextGenerationResult:
        """Generate to the end and return the result."""
        with self:
            for _ in self:
                pass
        return self.result

    def cancel(self) -> None:
        """Ask the generation to stop; any thread may."""
        self._loop.latch.cancel()

    def close(self) -> None:
        """End the generation now; what was not read is never generated."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LanguageModel:
    """A loaded model. Make it with `genai.load`; close it, or use it in `with`, to give its memory back.

    `name` is what it was loaded as, `engine` `"llama.cpp"` or `"ONNX Runtime"`, `file` the model file, `context_length`
    the most tokens that prompt and answer may have together (0 = unbounded), `can_chat` whether it has a chat template.
    """

    def __init__(self, name: str, engine: str, file: str, core: SequenceCore, keep: Sequence[Any]) -> None:
        self.name = name
        self.engine = engine
        self.file = file
        self._core: SequenceCore | None = core
        self._keep = tuple(keep)
        self._tokenizer = core.tokenizer
        self._turnstile = _Turnstile()

    def _open(self) -> SequenceCore:
        if self._core is None:
            raise RuntimeError("LanguageModel is closed")
        return self._core

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        self._open()
        return self._tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and answer may have together; 0 = unbounded."""
        return self._open().capacity

    @property
    def can_chat(self) -> bool:
        """Whether the model has a chat template."""
        return self.tokenizer.has_chat_template

    def __repr__(self) -> str:
        if self._core is None:
            return f"<LanguageModel {self.name!r} (closed)>"
        chat = "can chat" if self.can_chat else "no chat template"
        return f"<LanguageModel {self.name!r} on {self.engine}, {self.context_length} tokens, {chat}, {self.file}>"

    def stream(self, prompt: str | Iterable[int], **fields: Unpack[CallFields]) -> TextStream:
        """Continue `prompt` (text, or token ids) and yield the text piece by piece.

        Keyword arguments are the fields of `TextGenerationOptions` (or `options=` with a whole record),
        `cancellation=`, and `timeout=` in seconds to wait for another call (None waits as long as it takes,
        TimeoutError after it).
        """

        def make_prompt(core: SequenceCore) -> tuple[list[int], tuple[str, ...]]:
            return (core.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)), ()

        return self._start(make_prompt, fields)

    def _start(self, make_prompt: MakePrompt, fields: CallFields, on_end: OnEnd | None = None) -> TextStream:
        """Start a generation once it is this call's turn; only then the prompt, and the stops it brings, are made."""
        self._open()
        options = _options(fields)
        cancellation = fields.get("cancellation") or CancellationSource()
        self._turnstile.enter(fields.get("timeout"))
        try:
            core = self._open()
            prompt, stops = make_prompt(core)
            if stops:
                options = replace(options, stop=(*options.stop, *stops))
            return TextStream(core.start(prompt, options, cancellation), self._turnstile, on_end)
        except BaseException:
            self._turnstile.leave()
            raise

    def generate(self, prompt: str | Iterable[int], **fields: Unpack[CallFields]) -> TextGenerationResult:
        """Continue `prompt` to the end and return the result; takes what `stream` takes. A failing model raises
        WinMLError.
        """
        return self.stream(prompt, **fields).read()

    def chat(self, system: str | None = None, *, messages: Iterable[tuple[str, str]] = ()) -> Chat:
        """Begin a conversation, with an optional system message and an optional history of (role, content) pairs.

        NotSupportedError when the model has no chat template.
        """
        if not self.can_chat:
            raise NotSupportedError(
                E_NOINTERFACE,
                "chat",
                f"{self.name} has no chat template: it continues text, use generate() or stream()",
            )
        return Chat(self, system, messages)

    def close(self) -> None:
        """Give the model's memory back; waits for a call that is running in another thread. Again is fine."""
        if self._core is None:
            return
        self._turnstile.enter(None)
        try:
            core, self._core = self._core, None
            if core is not None:
                core.close()
            for part in reversed(self._keep):
                part.close()
            self._keep = ()
        finally:
            self._turnstile.leave()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _options(fields: CallFields) -> TextGenerationOptions:
    """Make the options record of a call."""
    known = {name: value for name, value in fields.items() if name not in ("options", "cancellation", "timeout")}
    options = fields.get("options")
    if options is None:
        return TextGenerationOptions(**known)  # type: ignore[arg-type]
    if known:
        raise TypeError(f"give either options= or {', '.join(known)}, not both")
    if not isinstance(options, TextGenerationOptions):
        raise TypeError(f"options must be TextGenerationOptions, not {type(options).__name__}")
    return options
