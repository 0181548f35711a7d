"""The public session of the long road (genai §6): one sequence, one operation at a time, on one thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from winml_lite import ExecutionTarget, MediaEncoder, NotSupportedError, Runtime

from .affinity import ThreadAffinity
from .cancellation import CancellationSource
from .closing import Closing
from .codes import NOT_SUPPORTED
from .configuration import TextGenerationConfiguration
from .operation_arguments import constraint_core, operation, segment_list, token_id_list
from .operation_stream import run_to_end
from .options import TextGenerationOptions
from .results import (
    TextGenerationCapabilities,
    TextGenerationResult,
    TextGenerationSequenceState,
    TextGenerationSessionState,
)
from .saved_state import load_sequence, save_sequence
from .segments import TextGenerationSegment
from .sequence import SequenceCore
from .stream import TextGenerationStream

if TYPE_CHECKING:
    from .constraint import TokenConstraint


class TextGenerationSession(Closing):
    """Generates and continues one sequence of tokens. Make it with `TextGenerationTask.create_session`.

    Only the creating thread may use it. Starting an operation runs no model: reading its stream does. After `close()`
    only `state`, `runtime` and `configuration` can be read.
    """

    def __init__(self, core: SequenceCore, configuration: TextGenerationConfiguration) -> None:
        self._core = core
        self._configuration = configuration
        self._affinity = ThreadAffinity()

    def __repr__(self) -> str:
        core = self._core
        if core.state is TextGenerationSessionState.CLOSED:
            return "<TextGenerationSession (closed)>"
        return f"<TextGenerationSession {core.state.name}, {core.sequence_state.retained_token_count} tokens>"

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
        composition = core.composition
        continues, constrains = composition.keeps_sequence, not composition.chooses
        takes_rows = composition.segments is not None and composition.segments.takes_rows
        return TextGenerationCapabilities(
            execution_profile=composition.profile,
            output_kind=composition.output_kind,
            supports_continuation=continues,
            supports_constraints=constrains,
            supports_segmented_prompts=composition.keeps_sequence,
            supports_embedding_segments=takes_rows,
            supports_constrained_continuation=continues and constrains,
            supports_constrained_embedding_segments=takes_rows and constrains,
            sequence_state=core.sequence_state,
        )

    def create_media_encoder_from_file(
        self, path: str | os.PathLike[str], target: ExecutionTarget | None = None
    ) -> MediaEncoder:
        """Load the projector file of a GGUF model as an encoder for the stage of the token input.

        `target`: None, or what that stage runs on. NotSupportedError 0x80070032 where the composition takes no
        embedding rows; other errors as for `Stage.create_media_encoder_from_file`.
        """
        segments = self._open().composition.segments
        if segments is None:
            raise NotSupportedError(
                NOT_SUPPORTED, "create_media_encoder_from_file", "this composition takes no embedding rows"
            )
        return segments.create_encoder(path, target)

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
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.start(core.tokenizer.encode(prompt), options, cancellation))

    stream = generate_text

    def generate(
        self,
        prompt: str,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationResult:
        """Generate to the end and return the result."""
        return run_to_end(self.generate_text(prompt, options, cancellation=cancellation))

    def generate_tokens(
        self,
        token_ids: Iterable[int],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Start a generation from token ids; it replaces the present sequence. ValueError for no ids."""
        core = self._open()
        ids = token_id_list(token_ids)
        if not ids:
            raise ValueError("token_ids must not be empty")
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.start(ids, options, cancellation))

    def generate_segments(
        self,
        segments: Iterable[TextGenerationSegment],
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Start a generation from token ids and embedding rows, in this order; it replaces the present sequence.

        The rows and their layout come from an encoder of the same stage. `prompt_token_count` of the result and the
        capacity count tokens and the cells of the layouts. After rows the sequence cannot be continued; with tokens
        alone it is `generate_tokens` of them all.

        ValueError for no segments and for rows at the end, NotSupportedError 0x80070032 where the composition does not
        take them (see `capabilities`), WinMLError 0x80070057 for a tensor and a layout that are not one pair.
        """
        core = self._open()
        parts = segment_list(segments)
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.start_segments(parts, options, cancellation))

    stream_segments = generate_segments

    def generate_segments_with_constraint(
        self,
        segments: Iterable[TextGenerationSegment],
        constraint: TokenConstraint,
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """`generate_segments` with an output that `constraint` allows; the constraint starts over."""
        core = self._open()
        parts = segment_list(segments)
        state = constraint_core(core, constraint)
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.start_segments(parts, options, cancellation, state))

    def continue_tokens(
        self,
        token_ids: Iterable[int] = (),
        options: TextGenerationOptions | None = None,
        *,
        cancellation: CancellationSource | None = None,
    ) -> TextGenerationStream:
        """Append `token_ids` to the sequence and go on. They may be empty while the last emitted token is pending."""
        core = self._open()
        ids = token_id_list(token_ids)
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.resume(ids, options, cancellation))

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
        ids = token_id_list(token_ids)
        if not ids:
            raise ValueError("token_ids must not be empty")
        state = constraint_core(core, constraint)
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.start(ids, options, cancellation, state))

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
        ids = token_id_list(token_ids)
        state = constraint_core(core, constraint)
        options, cancellation = operation(options, cancellation)
        return TextGenerationStream.opened(lambda: core.resume(ids, options, cancellation, state))

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write the retained sequence, with what the model keeps of it, into a file: `load_state` goes on from there.

        The size follows the tokens in use. 0x8007139F while a stream is open, and where no sequence is retained.
        """
        save_sequence(self._open(), path)

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Replace the sequence by one that `save_state` wrote, here or in another process; the session is then READY.

        Load only files you trust. A refusal changes nothing: 0x8007139F while a stream is open or a reset is due,
        0x8007000D for the file of another model, 0x80070570 for a damaged one, 0x8007007A for too many tokens.
        """
        load_sequence(self._open(), path)

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
