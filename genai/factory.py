"""Where sessions come from (genai §1 and 5.2): `Tasks` and `TextGenerationTask`. Chats are in `chat_task.py`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from winml_lite import ExecutionTarget, MediaEncoder, Runtime, WinMLError

from .cancellation import CancellationSource
from .checks import index_value, instance_of
from .closing import Closing
from .codes import E_INVALIDARG
from .configuration import TextGenerationConfiguration
from .drivers import check_undriven, drive
from .operation_stream import run_to_end
from .options import TextGenerationOptions
from .results import TextGenerationResult
from .segments import TextGenerationSegment
from .sequence import SequenceCore
from .session import TextGenerationSession
from .stream import TextGenerationStream
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .chat_task import ChatCompletionTask
    from .speech_task import AutomaticSpeechRecognitionTask


class Factory(Closing):
    """An object that only holds references."""

    _is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self._is_closed else ''}>"

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{type(self).__name__} is closed")

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        self._check_open()
        return self

    def close(self) -> None:
        """Drop the references; again is fine."""
        self._is_closed = True


SessionT = TypeVar("SessionT", bound=Closing)


class SessionFactory(Factory, Generic[SessionT]):
    """A task: makes sessions for one tokenizer, and one of its own at the first use."""

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer) -> None:
        self._runtime = runtime
        self._tokenizer = instance_of(tokenizer, Tokenizer, "tokenizer")
        self._default_session: SessionT | None = None

    def __repr__(self) -> str:
        return super().__repr__() if self._is_closed else f"<{type(self).__name__} of {self._tokenizer!r}>"

    @property
    def runtime(self) -> Runtime:
        """The Runtime that everything given to it must come from."""
        self._check_open()
        return self._runtime

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of every session."""
        self._check_open()
        return self._tokenizer

    @property
    def default_session(self) -> SessionT:
        """The session of the task's defaults, made at the first use. RuntimeError when the task has none."""
        self._check_open()
        if self._default_session is None:
            self._default_session = self._make_default_session()
        return self._default_session

    @abstractmethod
    def _make_default_session(self) -> SessionT:
        """Make the session of the defaults, or raise RuntimeError."""

    def close(self) -> None:
        """Close the default session, then the task. 0x8007139F while a stream of that session is open."""
        if self._default_session is not None:
            self._default_session.close()
        super().close()


class Tasks(Factory):
    """Makes tasks over one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = instance_of(runtime, Runtime, "runtime")

    @property
    def runtime(self) -> Runtime:
        """The Runtime that everything given to it must come from."""
        self._check_open()
        return self._runtime

    def create_cancellation_source(self) -> CancellationSource:
        """A source that can cancel the operations it is given to."""
        self._check_open()
        return CancellationSource()

    def create_text_generation_configuration(self) -> TextGenerationConfiguration:
        """An empty configuration."""
        self._check_open()
        return TextGenerationConfiguration(self._runtime)

    def create_text_generation_task(
        self,
        tokenizer: Tokenizer,
        eos_token_ids: Iterable[int] | int | None = None,
        *,
        default_configuration: TextGenerationConfiguration | None = None,
    ) -> TextGenerationTask:
        """A task for one tokenizer. `eos_token_ids` None takes the tokenizer's own; `()` means that EOS never stops.

        ValueError for an id outside the tokenizer's vocabulary.
        """
        self._check_open()
        return TextGenerationTask(self._runtime, tokenizer, eos_token_ids, default_configuration)

    def create_chat_completion_task(
        self, tokenizer: Tokenizer, *, default_text_generation_session: TextGenerationSession | None = None
    ) -> ChatCompletionTask:
        """A task for conversations; NotSupportedError 0x80004002 for a tokenizer without a chat template."""
        from .chat_task import ChatCompletionTask  # plain text needs no messages

        self._check_open()
        return ChatCompletionTask(self._runtime, tokenizer, default_text_generation_session)

    def create_automatic_speech_recognition_task(self, tokenizer: Tokenizer) -> AutomaticSpeechRecognitionTask:
        """A task that writes down speech, with the tokenizer of a speech model."""
        from .speech_task import AutomaticSpeechRecognitionTask  # texts need no sound

        self._check_open()
        return AutomaticSpeechRecognitionTask(self._runtime, tokenizer)

    @property
    def automatic_speech_recognition_factory_interface(self) -> object:
        """Opaque, only good for comparing."""
        self._check_open()
        return self

    @property
    def text_generation_factory_interface(self) -> object:
        """Opaque, only good for comparing."""
        self._check_open()
        return self

    @property
    def chat_factory_interface(self) -> object:
        """Opaque, only good for comparing."""
        self._check_open()
        return self


class TextGenerationTask(SessionFactory[TextGenerationSession]):
    """Makes text generation sessions that share a tokenizer and an EOS policy."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        eos_token_ids: Iterable[int] | int | None,
        default_configuration: TextGenerationConfiguration | None,
    ) -> None:
        super().__init__(runtime, tokenizer)
        if default_configuration is not None:
            instance_of(default_configuration, TextGenerationConfiguration, "default_configuration")
        self._default_configuration = default_configuration
        self._eos_token_ids = _eos_token_ids(tokenizer, eos_token_ids)

    @property
    def default_eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a generation with EOS_TOKEN."""
        self._check_open()
        return self._eos_token_ids

    def create_session(self, configuration: TextGenerationConfiguration) -> TextGenerationSession:
        """Make a session and consume the configuration; a failing call leaves it unconsumed.

        0x80070057 for a configuration of another runtime or tokenizer, 0x800700AA while another session drives the
        pipeline.
        """
        self._check_open()
        instance_of(configuration, TextGenerationConfiguration, "configuration")
        if configuration.runtime is not self._runtime:
            raise WinMLError(E_INVALIDARG, "create_session", "the configuration belongs to another Runtime")
        if configuration.tokenizer is not None and configuration.tokenizer is not self._tokenizer:
            raise WinMLError(E_INVALIDARG, "create_session", "the configuration names another tokenizer than the task")
        composition = configuration._compose(self._tokenizer)
        check_undriven(composition.pipelines)
        core = SequenceCore(composition, copy(self._tokenizer), self._eos_token_ids)
        drive(composition.pipelines, core)
        configuration._mark_consumed()
        return TextGenerationSession(core, configuration)

    def _make_default_session(self) -> TextGenerationSession:
        if self._default_configuration is None:
            raise RuntimeError("the task was made without a default_configuration")
        return self.create_session(self._default_configuration)

    def stream(
        self,
        prompt: str,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """`generate_text` of the default session."""
        return self.default_session.generate_text(prompt, options, cancellation=cancellation)

    def generate(
        self,
        prompt: str,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationResult:
        """`generate` of the default session."""
        return self.default_session.generate(prompt, options, cancellation=cancellation)

    def stream_segments(
        self,
        segments: Iterable[TextGenerationSegment],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """`generate_segments` of the default session."""
        return self.default_session.generate_segments(segments, options, cancellation=cancellation)

    def generate_segments(
        self,
        segments: Iterable[TextGenerationSegment],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationResult:
        """`stream_segments` to the end; returns the result."""
        return run_to_end(self.stream_segments(segments, options, cancellation=cancellation))

    def create_media_encoder_from_file(
        self, path: str | os.PathLike[str], target: ExecutionTarget | None = None
    ) -> MediaEncoder:
        """`create_media_encoder_from_file` of the default session."""
        return self.default_session.create_media_encoder_from_file(path, target)


def _eos_token_ids(tokenizer: Tokenizer, given: Iterable[int] | int | None) -> tuple[int, ...]:
    """Check the ids that end a text; one id is a list of one."""
    if given is None:
        return tuple(tokenizer.eos_token_ids)
    last = tokenizer.token_count - 1
    ids = given if isinstance(given, Iterable) else (given,)
    return tuple(index_value(token_id, "eos token id", last) for token_id in ids)
