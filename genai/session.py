"""The public session of the long road (genai §6): one sequence, one operation at a time, on one thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from winml_lite import Runtime, WinMLError

from .affinity import ThreadAffinity
from .cancellation import CancellationSource
from .checks import index_value, instance_of
from .closing import Closing
from .codes import E_INVALIDARG
from .configuration import TextGenerationConfiguration
from .options import TextGenerationOptions
from .results import (
    TextGenerationCapabilities,
    TextGenerationExecutionProfile,
    TextGenerationOutputKind,
    TextGenerationResult,
    TextGenerationSequenceState,
    TextGenerationSessionState,
)
from .sequence import SequenceCore
from .stream import TextGenerationStream

if TYPE_CHECKING:
    from .constraint import TokenConstraint
    from .constraint_state import ConstraintCore


class TextGenerationSession(Closing):
    """Generates and continues one sequence of tokens. Make it with `TextGenerationTask.create_session`.

    Only the creating thread may use it. Starting an operation runs no model: reading its stream does. After `close()`
    only `state`, `runtime` and `configuration` can be read.
    """

    def __init__(self, core: SequenceCore, configuration: TextGenerationConfiguration) -> None:
        self._core = core
        self._configuration = configuration
        self._affinity = ThreadAffinity()

    def _open(self) -> SequenceCore:
        self._affinity.check("TextGenerationSession")
        if self._core.state is TextGenerationSessionState.CLOSED:
            raise RuntimeError("TextGenerationSession is closed")
        return self._core

    @property
    def state(self) -> TextGenerationSessionState:
        """What the session can do next."""
        self._affinity.check("TextGenerationSession")
        return self._core.state

    @property
    def runtime(self) -> Runtime:
        """The Runtime of the configuration; readable after `close()`."""
        self._affinity.check("TextGenerationSession")
        return self._configuration.runtime

    @property
    def configuration(self) -> TextGenerationConfiguration:
        """The configuration that was consumed; readable after `close()`."""
        self._affinity.check("TextGenerationSession")
        return self._configuration

    @property
    def sequence_state(self) -> TextGenerationSequenceState:
        """Whether a sequence is kept and how far it is evaluated."""
        return self._open().sequence_state

    @property
    def retained_token_ids(self) -> tuple[int, ...]:
        """Prompt and emitted tokens, a pending last one included."""
        return self._open().retained_token_ids

    @property
    def capabilities(self) -> TextGenerationCapabilities:
        """What the composition can do."""
        core = self._open()
        return TextGenerationCapabilities(
            execution_profile=TextGenerationExecutionProfile.SINGLE_PIPELINE,
            output_kind=TextGenerationOutputKind.LOGITS,
            supports_continuation=True,
            supports_constraints=True,
            supports_segmented_prompts=False,
            supports_embedding_segments=False,
            supports_constrained_continuation=True,
            supports_constrained_embedding_segments=False,
            sequence_state=core.sequence_state,
        )

    # --- operations ---------------------------------------------------------------------------------------------------

    def generate_text(
        self,
        prompt: str,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Start a generation from text with the model's special tokens; it replaces the present sequence."""
        core = self._open()
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a str, not {type(prompt).__name__}")
        options, cancellation = _operation(options, cancellation)
        return TextGenerationStream(core.start(core.tokenizer.encode(prompt), options, cancellation))

    stream = generate_text

    def generate(
        self,
        prompt: str,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationResult:
        """Generate to the end and return the result."""
        return _run_to_end(self.generate_text(prompt, options, cancellation=cancellation))

    def generate_tokens(
        self,
        token_ids: Iterable[int],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Start a generation from token ids; it replaces the present sequence. ValueError for no ids."""
        core = self._open()
        ids = _token_ids(token_ids)
        if not ids:
            raise ValueError("token_ids must not be empty")
        options, cancellation = _operation(options, cancellation)
        return TextGenerationStream(core.start(ids, options, cancellation))

    def continue_tokens(
        self,
        token_ids: Iterable[int] = (),
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Append `token_ids` to the sequence and go on. They may be empty while the last emitted token is pending."""
        core = self._open()
        ids = _token_ids(token_ids)
        options, cancellation = _operation(options, cancellation)
        return TextGenerationStream(core.resume(ids, options, cancellation))

    def generate_tokens_with_constraint(
        self,
        token_ids: Iterable[int],
        constraint: TokenConstraint,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """`generate_tokens` with an output that `constraint` allows; the constraint starts over.

        WinMLError 0x80070057 for a constraint of another vocabulary, 0x8007139F while another stream uses it.
        """
        core = self._open()
        ids = _token_ids(token_ids)
        if not ids:
            raise ValueError("token_ids must not be empty")
        state = _constraint_state(core, constraint)
        options, cancellation = _operation(options, cancellation)
        return TextGenerationStream(core.start(ids, options, cancellation, state))

    def continue_tokens_with_constraint(
        self,
        token_ids: Iterable[int],
        constraint: TokenConstraint,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """`continue_tokens` with an output that `constraint` allows; the constraint starts over."""
        core = self._open()
        ids = _token_ids(token_ids)
        state = _constraint_state(core, constraint)
        options, cancellation = _operation(options, cancellation)
        return TextGenerationStream(core.resume(ids, options, cancellation, state))

    def reset(self) -> None:
        """Forget the sequence, also after an error. 0x8007139F while a stream is open."""
        self._open().reset()

    def close(self) -> None:
        """End the session. 0x8007139F while a stream is open; again is fine."""
        self._affinity.check("TextGenerationSession")
        if self._core.state is not TextGenerationSessionState.CLOSED:
            self._core.close()

    def _check_open(self) -> SequenceCore:
        return self._open()


def _token_ids(token_ids: Iterable[int]) -> list[int]:
    if isinstance(token_ids, bytes | bytearray | memoryview):  # their bytes would pass as ids
        raise TypeError(f"token_ids must be token ids, not {type(token_ids).__name__}")
    return [index_value(token_id, "token id") for token_id in token_ids]


def _constraint_state(core: SequenceCore, constraint: TokenConstraint) -> ConstraintCore:
    """Return what stands behind a constraint that is free and fits the session's tokenizer."""
    from .constraint import TokenConstraint

    state = instance_of(constraint, TokenConstraint, "constraint")._open()
    if state.table is not core.tokenizer.underlying_object.token_table:
        raise WinMLError(E_INVALIDARG, "generate", "the constraint was made by another tokenizer")
    state.check_free()
    return state


def _operation(
    options: TextGenerationOptions | None, cancellation: CancellationSource | None
) -> tuple[TextGenerationOptions, CancellationSource]:
    """Fill in what an operation was not given: all-default options, a private cancellation source."""
    if options is None:
        options = TextGenerationOptions()
    if cancellation is None:
        cancellation = CancellationSource()
    return (
        instance_of(options, TextGenerationOptions, "options"),
        instance_of(cancellation, CancellationSource, "cancellation"),
    )


def _run_to_end(stream: TextGenerationStream) -> TextGenerationResult:
    with stream:
        for _ in stream:
            pass
        return stream.result
