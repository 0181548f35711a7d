"""The session of chat turns (genai §9.1 to 9.3): formats a whole conversation and starts its generation.

It keeps no history, only the text session, whose sequence is reused as far as a request begins like it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from winml_lite import MediaEncoder, Runtime, WinMLError

from .affinity import ThreadAffinity
from .cancellation import CancellationSource
from .chat_media import bound_media, format_with_images, media_segments
from .chat_results import ChatCompletionResult, ChatMediaBinding
from .chat_stream import ChatCompletionStream
from .checks import instance_of
from .closing import Closing
from .codes import E_INVALIDARG, E_NOT_VALID_STATE
from .constraint import TokenConstraint
from .conversation_result import ConversationFormatResult
from .messages import ChatCompletionRequest
from .operation_stream import run_to_end
from .options import TextGenerationOptions
from .results import TextGenerationSequenceDisclosure, TextGenerationSessionState
from .session import TextGenerationSession
from .stream import TextGenerationStream


class ChatCompletionSession(Closing):
    """Answers conversations on one text session. Make it with `ChatCompletionTask.create_session`.

    Only the creating thread may use it. Every request carries the whole conversation. The text session stays the
    caller's: it can be used between turns, and closing the chat session does not close it.
    """

    def __init__(self, text_session: TextGenerationSession) -> None:
        self._text_session = text_session
        self._runtime = copy(text_session.runtime)  # the caller may close his
        self._media_encoder: MediaEncoder | None = None
        self._affinity = ThreadAffinity()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ChatCompletionSession {'(closed)' if self._is_closed else f'on {self._text_session!r}'}>"

    def _check_open(self) -> None:
        self._affinity.check("ChatCompletionSession")
        if self._is_closed:
            raise RuntimeError("ChatCompletionSession is closed")

    @property
    def text_generation_session(self) -> TextGenerationSession:
        """The session that generates."""
        self._check_open()
        return self._text_session

    @property
    def runtime(self) -> Runtime:
        """The Runtime of the text session."""
        self._check_open()
        return self._text_session.runtime

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        self._check_open()
        return self

    @property
    def media_encoder(self) -> MediaEncoder | None:
        """What encodes the media of `stream_with_media`: an encoder for the text session's stage, None for none."""
        self._check_open()
        return self._media_encoder

    @media_encoder.setter
    def media_encoder(self, encoder: MediaEncoder | None) -> None:
        self._check_open()
        self._media_encoder = None if encoder is None else instance_of(encoder, MediaEncoder, "media_encoder")

    def stream(
        self,
        request: ChatCompletionRequest,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionStream:
        """Format `request` and start its answer; the model runs when the stream is read.

        The formatter's errors are raised here (see `Tokenizer.format_conversation`), as those of constraints
        (`Tokenizer.create_constraint`) and of starting: 0x8007139F while the text session is in use or needs a reset,
        0x8007007A for a conversation that does not fit.
        """
        self._check_open()
        instance_of(request, ChatCompletionRequest, "request")
        self._check_free()
        formatted = self._text_session._open().tokenizer.format_conversation(request)
        constraint = _constraint(formatted)
        text_stream = self._start(formatted, constraint, options, cancellation)
        return ChatCompletionStream(text_stream, formatted, constraint, text_stream._open().reused_token_count)

    def generate(
        self,
        request: ChatCompletionRequest,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionResult:
        """Answer `request` to the end and return the result; a failing model is its `error_code`, not an exception."""
        return run_to_end(self.stream(request, options, cancellation=cancellation))

    def stream_with_media(
        self,
        request: ChatCompletionRequest,
        bindings: Iterable[ChatMediaBinding],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionStream:
        """`stream` for a request with images: each content part of type "image" has a binding, and the encoder makes
        rows of its tensor, here and now.

        ValueError for bindings that do not match the parts, 0x8007139F without a `media_encoder`, 0x80070057 for a
        tensor it does not take, one of another Runtime, or an encoder of another stage. Without bindings it is
        `stream`. The encoder brings the tokens that frame an image; the template only says where it stands.
        """
        self._check_open()
        media = bound_media(instance_of(request, ChatCompletionRequest, "request"), bindings)
        if not media:
            return self.stream(request, options, cancellation=cancellation)
        if not all(map(self._runtime.owns, media.values())):
            raise WinMLError(E_INVALIDARG, "chat completion", "a tensor of the bindings is of another Runtime")
        self._check_free()
        encoder = self._media_encoder
        if encoder is None:
            raise WinMLError(E_NOT_VALID_STATE, "chat completion", "there are images: set media_encoder first")
        formatted = format_with_images(self._text_session._open().tokenizer, request)
        constraint = _constraint(formatted)
        segments = media_segments(formatted, lambda place: encoder.encode(media[place]))
        session = self._text_session
        if constraint is None:
            text_stream = session.generate_segments(segments, options, cancellation=cancellation)
        else:
            text_stream = session.generate_segments_with_constraint(
                segments, constraint, options, cancellation=cancellation
            )
        return ChatCompletionStream(text_stream, formatted, constraint, None)

    def generate_with_media(
        self,
        request: ChatCompletionRequest,
        bindings: Iterable[ChatMediaBinding],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionResult:
        """`stream_with_media` to the end; returns the result."""
        return run_to_end(self.stream_with_media(request, bindings, options, cancellation=cancellation))

    def _check_free(self) -> None:
        if self._text_session.state is TextGenerationSessionState.ACTIVE:
            raise WinMLError(
                E_NOT_VALID_STATE,
                "chat completion",
                "another generation is open: read its stream to the end or close it",
            )

    def _start(
        self,
        formatted: ConversationFormatResult,
        constraint: TokenConstraint | None,
        options: TextGenerationOptions | None,
        cancellation: CancellationSource | None,
    ) -> TextGenerationStream:
        """Continue the text session's sequence when the prompt begins with all of it, else replace it."""
        session, prompt = self._text_session, formatted.token_ids
        suffix = prompt[self._continued_length(prompt) :]
        if len(suffix) < len(prompt):
            if constraint is None:
                return session.continue_tokens(suffix, options, cancellation=cancellation)
            return session.continue_tokens_with_constraint(suffix, constraint, options, cancellation=cancellation)
        if constraint is None:
            return session.generate_tokens(prompt, options, cancellation=cancellation)
        return session.generate_tokens_with_constraint(prompt, constraint, options, cancellation=cancellation)

    def _continued_length(self, prompt: tuple[int, ...]) -> int:
        """How many tokens of `prompt` are the whole of the sequence there is; 0 when that cannot be continued."""
        session = self._text_session
        is_retained = session.sequence_state.disclosure is TextGenerationSequenceDisclosure.RETAINED
        if not is_retained or not session.capabilities.supports_continuation:
            return 0
        retained = session.retained_token_ids
        return len(retained) if len(retained) < len(prompt) and prompt[: len(retained)] == retained else 0

    def close(self) -> None:
        """End the session; streams that are open and the text session go on. Again is fine."""
        self._affinity.check("ChatCompletionSession")
        self._is_closed = True


def _constraint(formatted: ConversationFormatResult) -> TokenConstraint | None:
    """What the answer must keep to, if the request asks for something."""
    return None if formatted.constraint is None else formatted.tokenizer.create_constraint(formatted)
