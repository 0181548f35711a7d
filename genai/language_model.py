"""The short road: a loaded model that generates, streams and chats (design: short road on the long road).

Any thread may call; a second call waits until the first is done. Each call drives the same sequence, so a prompt that
begins like the one before costs only its new tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from winml_lite import ExecutionTargetKind, NotSupportedError

from .call_fields import CallFields, answer_form_of, call_cancellation, call_options, call_timeout, checked_prompt
from .cancellation import CancellationLatch, CancellationSource
from .codes import E_NOINTERFACE, NOT_SUPPORTED
from .embedding_calls import EmbeddingCalls
from .model_calls import ModelCalls
from .prompt import MakePrompt, Prompt
from .results import TextGenerationResult
from .sequence import SequenceCore
from .text_stream import OnEnd, Operation, TextStream
from .tokenizer import Tokenizer
from .turnstile import Turn, Turnstile

if TYPE_CHECKING:
    from .async_stream import AsyncTextStream, BlockingStream
    from .chat import Chat
    from .chat_message import Message
    from .embedding import EmbeddingModel
    from .media_rows import MediaRows
    from .tool_calls import ChatFields
    from .vocabulary import TokenizerCore


class LanguageModel(ModelCalls, EmbeddingCalls):
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
        self._embedder_turnstile = Turnstile()
        self._rows: MediaRows | None = None

    def _see(self, rows: MediaRows) -> None:
        """Take pictures and sound in chats from now on."""
        self._rows = rows
        self._open().knows_rows = True
        self._closes.append(rows.close)

    def _media_rows(self) -> MediaRows:
        """Return what encodes pictures and sound."""
        self._open()
        if self._rows is None:
            text = f"{self.name} was loaded without an encoder for pictures and sound; give its projector file "
            text += "(mmproj, a .gguf file), if there is one: genai.load(..., projector=...)"
            if self.engine != "llama.cpp":
                text = f"{self.name} runs on {self.engine}; chats with pictures and sound need a GGUF model"
            raise NotSupportedError(NOT_SUPPORTED, "chat", text)
        return self._rows

    @property
    def takes_images(self) -> bool:
        """Whether chats take pictures: it was loaded with a projector for them."""
        return self._rows is not None and self._rows.takes_images

    @property
    def takes_audio(self) -> bool:
        """Whether chats take sound: it was loaded with a projector for it."""
        return self._rows is not None and self._rows.takes_audio

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
    def target(self) -> ExecutionTargetKind:
        """Class of the hardware that it runs on."""
        return self._open().composition.state_owner.execution_target.kind

    @property
    def provider(self) -> str | None:
        """Execution provider that ONNX Runtime uses; None on llama.cpp, which has none."""
        if self.engine != "ONNX Runtime":
            return None
        return self._open().composition.state_owner.ort_diagnostics().selected_provider

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
        options = call_options(fields)
        form = answer_form_of(fields)
        timeout = call_timeout(fields)
        source = call_cancellation(fields)
        given, turn = turn, turn or Turn()
        try:
            if given is None:
                self._turnstile.enter(turn, timeout)
            core = self._open()
            core.recover()
            prompt = self._prompt(make_prompt, core, turn, source)
            if prompt.stops:
                options = replace(options, stop=(*options.stop, *prompt.stops))
            constraint = prompt.constraint
            if form is not None:
                constraint = form.constraint(core.tokenizer.underlying_object, prompt.formatted)
            if prompt.segments is None:
                loop = core.start(prompt.token_ids, options, CancellationSource(), constraint)
            else:
                loop = core.start_segments(prompt.segments, options, CancellationSource(), constraint)
            operation = Operation(loop, self._turnstile, turn, on_end, source)
            if given is None:
                turn.stop = operation.stop
            self._open()  # close() in another thread has seen the operation by now, or is seen here
            return TextStream(operation, loop)
        except BaseException:
            self._turnstile.leave(turn)
            raise

    def _prompt(
        self, make_prompt: MakePrompt, core: SequenceCore, turn: Turn, source: CancellationLatch | None
    ) -> Prompt:
        """Make a prompt. Closing the model, ending the turn and the caller's source stop what takes long in it."""
        stop = turn.latch
        turn.stop = turn.stop or stop.cancel
        if source is not None:
            source.on_cancel(stop.cancel)
            if source.is_canceled:
                stop.cancel()
        try:
            self._open()  # close() in another thread has seen how to stop this by now, or is seen here
            return make_prompt(core, stop)
        finally:
            if source is not None:
                source.off_cancel(stop.cancel)

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

    def _astream(
        self, start: Callable[[Turn], BlockingStream[str, TextGenerationResult]], fields: CallFields
    ) -> AsyncTextStream:
        """Make a stream for asyncio: `start` opens the blocking one when its turn has come."""
        from .async_stream import AsyncTextStream  # brings asyncio

        self._open()
        call_options(fields)
        answer_form_of(fields)
        call_cancellation(fields)
        return AsyncTextStream(self._turnstile, call_timeout(fields), start, self._open)

    def chat(
        self, system: str | None = None, *, messages: Iterable[Message] = (), **fields: Unpack[ChatFields]
    ) -> Chat:
        """Begin a conversation, with an optional system message and an optional history.

        A message is a pair `(role, content)` or a mapping `{"role": ..., "content": ...}`. A system message at the
        front of `messages` is the chat's system message: ValueError beside `system`. NotSupportedError when the model
        has no chat template, or one that shows no tools when there are `tools=`.

        `tools=` are Python functions that the model may call; this and the other options of `ChatFields` (`approve=`,
        `max_tool_rounds=`, `enable_thinking=` ...) are those of every turn, and each turn may have its own.
        """
        if not self.can_chat:
            raise NotSupportedError(
                E_NOINTERFACE,
                "chat",
                f"{self.name} has no chat template: it continues text, use generate() or stream(), "
                "or load it with chat_template=...",
            )
        from .chat import Chat  # plain text needs no messages

        chat = Chat(self, system, messages, fields)
        if chat.tools:
            from .conversation import check_tools_shown  # loads the template engine

            core: TokenizerCore = self.tokenizer.underlying_object
            check_tools_shown(core.template(core.template_name(has_tools=True)))
        return chat

    def close(self) -> None:
        """Give the model's memory back. A stream that is still open ends as CANCELED. Again is fine.

        It waits for the step that another thread computes. Inside a running event loop it does not wait: the memory
        then goes a moment later, and `aclose` waits for that.
        """
        self._core = None
        self._turnstile.close(self._free)

    def _free(self) -> None:
        while self._closes:
            self._closes.pop()()

    def _check_open(self) -> SequenceCore:
        return self._open()


def _text_prompt(prompt: str | Iterable[int]) -> MakePrompt:
    given = checked_prompt(prompt)

    def make_prompt(core: SequenceCore, _: CancellationLatch) -> Prompt:
        return Prompt(core.tokenizer.encode(given) if isinstance(given, str) else given)

    return make_prompt
