"""The short road: a loaded model that generates, streams and chats (design: short road on the long road).

Any thread may call; a second call waits until the first is done. Each call drives the same sequence, so a prompt that
begins like the one before costs only its new tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from winml_lite import NotSupportedError

from .cancellation import CancellationLatch, CancellationSource
from .checks import index_value, instance_of
from .codes import E_NOINTERFACE
from .model_calls import ModelCalls
from .option_values import finite
from .options import LogitsProcessor, StoppingPredicate, TextGenerationOptions
from .results import TextGenerationResult
from .sequence import SequenceCore
from .text_stream import OnEnd, Operation, TextStream
from .tokenizer import Tokenizer
from .turnstile import Turn, Turnstile

if TYPE_CHECKING:
    from .answer_form import AnswerForm
    from .async_stream import AsyncTextStream, BlockingStream
    from .chat import Chat
    from .chat_message import Message
    from .constraint_state import ConstraintCore
    from .conversation_result import ConversationFormatResult
    from .embedding import EmbeddingModel
    from .tool_calls import ChatFields


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
    min_new_tokens: int
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    ignore_eos: bool
    no_repeat_ngram_size: int
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Iterable[str | int] | int
    logits_processors: Iterable[LogitsProcessor] | LogitsProcessor
    top_logprobs: int | None
    include_stop: bool
    stopping: StoppingPredicate | None


class FormFields(TypedDict, total=False):
    """Keyword arguments that say what an answer must look like; one of them at most."""

    json_schema: Any
    """A schema as a mapping or as JSON text, or a Pydantic model class."""
    regex: str | None
    choices: Iterable[str] | None
    grammar: str | None
    """A grammar in Lark notation or llama.cpp's GBNF."""


class CallFields(OptionFields, FormFields, total=False):
    """Keyword arguments of one call: generation options, or one `options` record instead, what the answer must look
    like, and how to stop or wait.
    """

    options: TextGenerationOptions | None
    cancellation: CancellationSource | None
    timeout: float | None


_OTHER_FIELDS = frozenset({"options", "cancellation", "timeout", *FormFields.__annotations__})


@dataclass(frozen=True, slots=True)
class Prompt:
    """Where a generation starts."""

    token_ids: list[int]
    stops: tuple[str, ...] = ()
    """Texts that end the answer beside those of the options."""
    formatted: ConversationFormatResult | None = None
    """The conversation behind it, if there is one."""
    constraint: ConstraintCore | None = None
    """What it asks of the answer, if nothing else does."""


MakePrompt = Callable[[SequenceCore], Prompt]


class LanguageModel(ModelCalls):
    """A loaded model. Make it with `genai.load`; close it, or use it in `with`, to give its memory back.

    `name` is what it was loaded as, `engine` `"llama.cpp"` or `"ONNX Runtime"`, `file` the model file, `context_length`
    the most tokens that prompt and answer may have together (0 = unbounded), `can_chat` whether it has a chat template.
    """

    def __init__(
        self,
        name: str,
        engine: str,
        file: str,
        core: SequenceCore,
        keep: Sequence[Any],
        make_embedder: Callable[[], EmbeddingModel] | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.file = file
        self._core: SequenceCore | None = core
        self._closes: list[Callable[[], object]] = [*(part.close for part in keep), core.close, core.recover]
        """What `close` calls, from the last to the first."""
        self._tokenizer = core.tokenizer
        self._turnstile = Turnstile()
        self._make_embedder = make_embedder
        self._embedder: EmbeddingModel | None = None

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
        """Continue the raw text `prompt` (or token ids) and yield what follows piece by piece.

        This answers no question: the model goes on writing where the text ends. `chat()` asks it.

        Keyword arguments are the fields of `TextGenerationOptions` (or `options=` with a whole record),
        `cancellation=`, and `timeout=` in seconds to wait for another call (None waits as long as it takes,
        TimeoutError after it).

        One of these makes the output keep to a form, and `result.parsed` its value (package llguidance):
        `json_schema=` a JSON schema or a Pydantic model class, `regex=` a regular expression for the whole text,
        `choices=` texts to choose from, `grammar=` a grammar in Lark notation or llama.cpp's GBNF.
        """
        return self._start(_text_prompt(prompt), fields)

    def _start(
        self, make_prompt: MakePrompt, fields: CallFields, on_end: OnEnd | None = None, turn: Turn | None = None
    ) -> TextStream:
        """Start a generation once it is this call's turn; only then the prompt, and the stops it brings, are made.

        `turn`: one that is on already, as `_astream` has it.
        """
        self._open()
        options = _options(fields)
        form = _form(fields)
        timeout = call_timeout(fields)
        source = _cancellation(fields)
        given, turn = turn, turn or Turn()
        try:
            if given is None:
                self._turnstile.enter(turn, timeout)
            core = self._open()
            core.recover()
            prompt = make_prompt(core)
            if prompt.stops:
                options = replace(options, stop=(*options.stop, *prompt.stops))
            constraint = prompt.constraint
            if form is not None:
                constraint = form.constraint(core.tokenizer.underlying_object, prompt.formatted)
            loop = core.start(prompt.token_ids, options, CancellationSource(), constraint)
            operation = Operation(loop, self._turnstile, turn, on_end, source)
            turn.stop = turn.stop or operation.stop
            self._open()  # close() in another thread has seen the operation by now, or is seen here
            return TextStream(operation)
        except BaseException:
            self._turnstile.leave(turn)
            raise

    def generate(self, prompt: str | Iterable[int], **fields: Unpack[CallFields]) -> TextGenerationResult:
        """Continue the raw text `prompt` (or token ids) and return the result; takes what `stream` takes.

        This answers no question: the model goes on writing where the text ends. `chat().send(...)` asks it. A failing
        model raises WinMLError.
        """
        return self.stream(prompt, **fields).read()

    def astream(self, prompt: str | Iterable[int], **fields: Unpack[CallFields]) -> AsyncTextStream:
        """Stream for asyncio: `async for piece in model.astream(...)`; takes what `stream` takes."""
        make_prompt = _text_prompt(prompt)
        return self._astream(lambda turn: self._start(make_prompt, fields, turn=turn), fields)

    async def agenerate(self, prompt: str | Iterable[int], **fields: Unpack[CallFields]) -> TextGenerationResult:
        """Do as `generate` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model."""
        return await self.astream(prompt, **fields).read()

    def _astream(self, start: Callable[[Turn], BlockingStream], fields: CallFields) -> AsyncTextStream:
        """Make a stream for asyncio: `start` opens the blocking one when its turn has come."""
        from .async_stream import AsyncTextStream  # brings asyncio

        self._open()
        _options(fields)
        _form(fields)
        _cancellation(fields)
        return AsyncTextStream(self._turnstile, call_timeout(fields), start, self._open)

    def chat(
        self, system: str | None = None, *, messages: Iterable[Message] = (), **fields: Unpack[ChatFields]
    ) -> Chat:
        """Begin a conversation, with an optional system message and an optional history.

        A message is a pair `(role, content)` or a mapping `{"role": ..., "content": ...}`. A system message at the
        front of `messages` is the chat's system message: ValueError beside `system`. NotSupportedError when the model
        has no chat template.

        `tools=` are Python functions that the model may call; this and the other options of `ChatFields` (`approve=`,
        `max_tool_rounds=`, `enable_thinking=` ...) are those of every turn, and each turn may have its own.
        """
        if not self.can_chat:
            raise NotSupportedError(
                E_NOINTERFACE,
                "chat",
                f"{self.name} has no chat template: it continues text, use generate() or stream()",
            )
        from .chat import Chat  # plain text needs no messages

        return Chat(self, system, messages, fields)

    def close(self) -> None:
        """Give the model's memory back. A stream that is still open ends as CANCELED. Again is fine.

        It waits for the step that another thread computes. Inside a running event loop it does not wait: the memory
        then goes a moment later, and `aclose` waits for that.
        """
        self._core = None
        self._turnstile.close(self._free)

    async def aclose(self) -> None:
        """Close the model, and wait for that without blocking the event loop."""
        from .async_stream import in_thread  # brings asyncio

        await in_thread(self.close)

    def _free(self) -> None:
        while self._closes:
            self._closes.pop()()

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:  # a coroutine that is thrown away cannot wait
            self.close()
        else:
            await self.aclose()

    def _check_open(self) -> SequenceCore:
        return self._open()


def _text_prompt(prompt: str | Iterable[int]) -> MakePrompt:
    given = _prompt(prompt)

    def make_prompt(core: SequenceCore) -> Prompt:
        return Prompt(core.tokenizer.encode(given) if isinstance(given, str) else given)

    return make_prompt


def _prompt(prompt: str | Iterable[int]) -> str | list[int]:
    """Check a prompt: text, or token ids. Bytes would pass as ids, and messages are for `chat`."""
    if isinstance(prompt, str):
        return prompt
    kind = type(prompt).__name__
    if isinstance(prompt, bytes | bytearray | memoryview):
        raise TypeError(f"prompt must be str or token ids, not {kind}")
    if isinstance(prompt, Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"prompt must be str or token ids, not {kind}; for a conversation use model.chat()")
    ids = list(prompt)
    if any(isinstance(item, Mapping | tuple) for item in ids):
        raise TypeError("prompt must be str or token ids, not messages; use model.chat(messages=...)")
    return [index_value(token_id, "token id") for token_id in ids]


def _form(fields: CallFields) -> AnswerForm | None:
    """Check what the answer must look like."""
    if fields.keys().isdisjoint(FormFields.__annotations__):
        return None
    from .answer_form import answer_form  # free answers need no grammars

    return answer_form(fields)


def _cancellation(fields: CallFields) -> CancellationLatch | None:
    """Check what else cancels the call."""
    source = fields.get("cancellation")
    return None if source is None else instance_of(source, CancellationSource, "cancellation").latch


def call_timeout(fields: CallFields) -> float | None:
    """Check the seconds to wait for another call."""
    timeout = fields.get("timeout")
    if timeout is None:
        return None
    seconds = finite(timeout, "timeout")
    if seconds < 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
    return seconds


def _options(fields: CallFields) -> TextGenerationOptions:
    """Make the options record of a call."""
    known = {name: value for name, value in fields.items() if name not in _OTHER_FIELDS}
    options = fields.get("options")
    if options is None:
        return TextGenerationOptions(**known)  # type: ignore[arg-type]
    if known:
        raise TypeError(f"give either options= or {', '.join(known)}, not both")
    if not isinstance(options, TextGenerationOptions):
        raise TypeError(f"options must be TextGenerationOptions, not {type(options).__name__}")
    return options
