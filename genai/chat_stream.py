"""The public stream of a chat turn (genai §9.4): an iterator of events, bound to the thread that made it."""

from __future__ import annotations

from collections.abc import Iterator

from winml_lite import WinMLError

from .affinity import ThreadAffinity
from .chat_results import (
    ChatCompletionEvent,
    ChatCompletionPromptCacheMode,
    ChatCompletionPromptCacheUse,
    ChatCompletionResult,
)
from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .constraint import TokenConstraint
from .conversation_result import ConversationFormatResult
from .messages import ChatCompletionFinishReason
from .reply_reader import ReplyReader
from .results import TextGenerationFinishReason, TextGenerationResult
from .stream import TextGenerationStream


class ChatCompletionStream(Closing):
    """A running turn. Iterate it, or call `read_next` until it returns None, then read `result`.

    Only the creating thread may use it, apart from `cancel()`. Closing an unfinished stream ends it as CANCELED and
    leaves the sessions usable; a stream that is dropped is closed by garbage collection. The text session is free again
    once the generation is at its end, even before all events are read.
    """

    def __init__(
        self,
        text_stream: TextGenerationStream,
        formatted: ConversationFormatResult,
        constraint: TokenConstraint | None,
        cached_token_count: int | None,
    ) -> None:
        """`cached_token_count`: tokens of the prompt that were evaluated before, None where that cannot be told."""
        self._text_stream = text_stream
        self._formatted = formatted
        self._constraint = constraint
        self._cached = cached_token_count
        self._parser = formatted.create_output_parser()
        self._reader = ReplyReader(self._parser)
        self._affinity = ThreadAffinity()
        self._result: ChatCompletionResult | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        if self._is_closed:
            return "<ChatCompletionStream (closed)>"
        if self._result is not None:
            return f"<ChatCompletionStream {self._result.finish_reason.name}>"
        return f"<ChatCompletionStream {'finished' if self._reader.is_finished else 'unfinished'}>"

    def _check_open(self) -> None:
        self._affinity.check("ChatCompletionStream")
        if self._is_closed:
            raise RuntimeError("ChatCompletionStream is closed")

    def read_next(self) -> ChatCompletionEvent | None:
        """Return the next event, which may take several tokens; None after the last one.

        Failures of the model are no exceptions: they end the stream with an ERROR event.
        """
        self._check_open()
        reader = self._reader
        while (event := reader.read_event()) is None and not reader.is_finished:
            self._advance()
        return event

    def __iter__(self) -> Iterator[ChatCompletionEvent]:
        return self

    def __next__(self) -> ChatCompletionEvent:
        event = self.read_next()
        if event is None:
            raise StopIteration
        return event

    def _advance(self) -> None:
        """Read one token, or find that there are no more. A stop of the formatter ends the generation at once."""
        reader, update = self._reader, None
        if reader.stop_match is None:
            update = self._text_stream.read_next()
            if update is not None:
                reader.push(update)
        if reader.stop_match is not None:
            self._text_stream._open().close()  # not by the source, which is the caller's
        elif update is not None:
            return
        result = self._text_stream.result
        reader.finish(result.error_code, result.error_message)

    def cancel(self) -> None:
        """Ask the generation to stop; any thread may."""
        self._text_stream.cancel()

    @property
    def result(self) -> ChatCompletionResult:
        """The whole turn. Before the end 0x8007139F; once read it stays readable after `close()`."""
        self._affinity.check("ChatCompletionStream")
        if self._result is None:
            self._check_open()
            if not self._reader.is_finished:
                raise WinMLError(E_NOT_VALID_STATE, "ChatCompletionStream.result", "the stream is not at its end")
            self._result = self._make_result(self._text_stream.result)
        return self._result

    def _make_result(self, text_result: TextGenerationResult) -> ChatCompletionResult:
        reader = self._reader
        reason = ChatCompletionFinishReason(int(text_result.finish_reason))
        if reader.stop_match is not None and text_result.finish_reason is not TextGenerationFinishReason.ERROR:
            reason = ChatCompletionFinishReason.ADDITIONAL_STOP
        return ChatCompletionResult(
            content=reader.content,
            reasoning_content=reader.reasoning_content,
            tool_calls=reader.tool_calls,
            prompt_token_count=text_result.prompt_token_count,
            completion_token_count=text_result.generated_token_count,
            finish_reason=reason,
            error_code=text_result.error_code,
            prompt_cache_use=_cache_use(text_result, self._cached),
            text_generation_result=text_result,
        )

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        self._check_open()
        return self

    @property
    def constraint(self) -> TokenConstraint | None:
        """What the answer had to keep to, None without such a wish; it outlives the stream."""
        self._affinity.check("ChatCompletionStream")
        return self._constraint

    @property
    def constraint_interface(self) -> object | None:
        """`constraint` as an opaque object, only good for comparing."""
        return self.constraint

    @property
    def format_result_interface(self) -> object:
        """The formatted conversation; opaque, only good for comparing."""
        self._check_open()
        return self._formatted

    @property
    def output_parser_interface(self) -> object:
        """The parser of the answer; opaque, only good for comparing."""
        self._check_open()
        return self._parser

    @property
    def text_generation_stream_interface(self) -> object:
        """The text generation behind the turn; opaque, only good for comparing."""
        self._check_open()
        return self._text_stream

    def close(self) -> None:
        """End the turn; unfinished it counts as CANCELED, and the model is not run again. Again is fine."""
        self._affinity.check("ChatCompletionStream")
        self._is_closed = True
        self._text_stream.close()


def _cache_use(result: TextGenerationResult, cached: int | None) -> ChatCompletionPromptCacheUse:
    """What was known of a prompt, of which `cached` tokens were evaluated before."""
    modes, count = ChatCompletionPromptCacheMode, result.prompt_token_count
    if not result.timings.evaluated_prompt_token_count:  # at least one token of a prompt always is to be evaluated
        return ChatCompletionPromptCacheUse(modes.NOT_EVALUATED, count, 0, 0)
    if cached is None:
        return ChatCompletionPromptCacheUse(modes.UNKNOWN, count, 0, 0)
    mode = modes.REUSED_PREFIX if cached else modes.FULL_PREFILL
    return ChatCompletionPromptCacheUse(mode, count, cached, count - cached)
