"""Where chat sessions come from (genai §9.1)."""

from __future__ import annotations

from collections.abc import Iterable

from winml_lite import NotSupportedError, Runtime, WinMLError

from .cancellation import CancellationSource
from .chat_results import ChatCompletionResult, ChatMediaBinding
from .chat_session import ChatCompletionSession
from .chat_stream import ChatCompletionStream
from .checks import instance_of
from .codes import E_INVALIDARG, E_NOINTERFACE
from .factory import SessionFactory
from .messages import ChatCompletionRequest
from .options import TextGenerationOptions
from .session import TextGenerationSession
from .tokenizer import Tokenizer


class ChatCompletionTask(SessionFactory[ChatCompletionSession]):
    """Makes chat sessions for one tokenizer. Make it with `Tasks.create_chat_completion_task`.

    Its `stream` and `generate` are those of a session over the default text session, which stays open when the task is
    closed. The tokenizer has a chat template, which formats the conversations.
    """

    def __init__(
        self, runtime: Runtime, tokenizer: Tokenizer, default_text_generation_session: TextGenerationSession | None
    ) -> None:
        super().__init__(runtime, tokenizer)
        if default_text_generation_session is not None:
            instance_of(default_text_generation_session, TextGenerationSession, "default_text_generation_session")
        if not tokenizer.has_chat_template:
            mend = "give one to Tokenizer.from_file(chat_template=...)"
            raise NotSupportedError(E_NOINTERFACE, tokenizer.path, f"the model has no chat template; {mend}")
        self._default_text_session = default_text_generation_session

    def create_session(self, text_generation_session: TextGenerationSession) -> ChatCompletionSession:
        """Make a session that answers on a text session, on the thread of that session (0x8001010E on another).

        0x80070057 for a text session of another Runtime or tokenizer.
        """
        self._check_open()
        instance_of(text_generation_session, TextGenerationSession, "text_generation_session")
        core = text_generation_session._open()
        if text_generation_session.runtime is not self._runtime:
            raise WinMLError(E_INVALIDARG, "create_session", "the text generation session belongs to another Runtime")
        if core.tokenizer.underlying_object is not self._tokenizer.underlying_object:
            raise WinMLError(E_INVALIDARG, "create_session", "the text generation session has another tokenizer")
        return ChatCompletionSession(text_generation_session)

    def _make_default_session(self) -> ChatCompletionSession:
        if self._default_text_session is None:
            raise RuntimeError("the task was made without a default_text_generation_session")
        return self.create_session(self._default_text_session)

    def stream(
        self,
        request: ChatCompletionRequest,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionStream:
        """`stream` of the default session."""
        return self.default_session.stream(request, options, cancellation=cancellation)

    def generate(
        self,
        request: ChatCompletionRequest,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionResult:
        """`generate` of the default session."""
        return self.default_session.generate(request, options, cancellation=cancellation)

    def stream_with_media(
        self,
        request: ChatCompletionRequest,
        bindings: Iterable[ChatMediaBinding],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionStream:
        """`stream_with_media` of the default session."""
        return self.default_session.stream_with_media(request, bindings, options, cancellation=cancellation)

    def generate_with_media(
        self,
        request: ChatCompletionRequest,
        bindings: Iterable[ChatMediaBinding],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> ChatCompletionResult:
        """`generate_with_media` of the default session."""
        return self.default_session.generate_with_media(request, bindings, options, cancellation=cancellation)
