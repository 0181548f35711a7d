"""The sequence that a session keeps, and the state machine around it (genai §6.1, 6.3, 6.4).

One `SequenceCore` stands behind a `TextGenerationSession` and behind the short road. It starts operations and keeps the
tokens; running one operation is `loop.py`. It has no thread rule of its own: its users see to it that one thread at a
time drives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from winml_lite import WinMLError

from .cancellation import CancellationSource
from .codes import E_INVALIDARG, E_NOT_VALID_STATE
from .composition import Composition
from .evaluated_sequence import EvaluatedSequence
from .loop import GenerationLoop
from .options import TextGenerationOptions
from .results import (
    TextGenerationSequenceDisclosure,
    TextGenerationSequenceState,
    TextGenerationSessionState,
)
from .segmented_prompt import SegmentedPrompt, Start
from .segments import TextGenerationSegment
from .start_checks import check_capacity, check_ids, check_means, check_segments, check_startable
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore

State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure


@dataclass(frozen=True, slots=True)
class _Beginning:
    """How an operation begins."""

    token_ids: list[int]
    """The sequence that it goes on from."""
    start: Start
    """What of it stays consumed."""
    restore: list[int] | None = None
    """The sequence before a continue."""
    segmented: SegmentedPrompt | None = None


class SequenceCore(EvaluatedSequence):
    """A sequence and what may happen to it next.

    The core must be the only user of its pipelines, and closes the wrappers it is given. WinMLError 0x80070057 for a
    decoder whose mask or position input is of an unknown type.
    """

    def __init__(self, composition: Composition, tokenizer: Tokenizer, eos_token_ids: tuple[int, ...]) -> None:
        super().__init__(composition)
        self.tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self.state = State.EMPTY
        self._operation: GenerationLoop | None = None
        self.feed.prepare()

    @property
    def is_closed(self) -> bool:
        """Whether the pipelines were given back."""
        return self.state is State.CLOSED

    @property
    def is_unusable(self) -> bool:
        """Whether there is a sequence that can be neither told nor continued: after an error, with embedding rows in
        it, or where its state is the caller's.
        """
        if self.state is State.RESET_REQUIRED:
            return True
        return bool(self.retained) and (self.segmented is not None or not self.composition.keeps_sequence)

    @property
    def sequence_state(self) -> TextGenerationSequenceState:
        if self.is_unusable:
            return TextGenerationSequenceState(Disclosure.UNUSABLE, self.state, 0, 0)
        disclosure = Disclosure.RETAINED if self.retained else Disclosure.NONE
        return TextGenerationSequenceState(disclosure, self.state, self.evaluated, len(self.retained))

    @property
    def retained_token_ids(self) -> tuple[int, ...]:
        return () if self.is_unusable else tuple(self.retained)

    # --- starting -----------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Make the core ready for `start`, whatever came before: an operation that an interrupt left open is ended,
        and a sequence that failed, or does not fit the stage any more, is dropped.
        """
        if self._operation is not None:
            self._operation.close()
        if self.state is State.RESET_REQUIRED or self.consumed() != self.evaluated:
            self._drop()

    def start(
        self,
        token_ids: Sequence[int],
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        constraint: ConstraintCore | None = None,
    ) -> GenerationLoop:
        """Begin a generation that replaces the present sequence; the common prefix with it is not evaluated again.

        No model runs before the first read. Errors (nothing is changed): 0x8007139F while another operation is open or
        a reset is due, 0x80070057 for an empty prompt or an id outside the vocabulary, 0x8007007A for a prompt longer
        than the capacity, 0x80070032 for options or a constraint that the composition has no use for.
        """
        check_startable(self.state, "generate")
        prompt = list(token_ids)
        if not prompt:
            raise WinMLError(E_INVALIDARG, "generate", "the prompt has no tokens, and the model adds none of its own")
        check_ids(prompt, self._vocabulary_size)
        check_means(self.composition, options, constraint)
        check_capacity(len(prompt), self.capacity, options)
        self.composition.check_prompt(len(prompt))
        self._check_position()
        return self._begin(_Beginning(prompt, self.shared_start(prompt)), options, cancellation, constraint)

    def start_segments(
        self,
        segments: Sequence[TextGenerationSegment],
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        constraint: ConstraintCore | None = None,
    ) -> GenerationLoop:
        """`start` with a prompt of token ids and embedding rows; tokens come last.

        The common beginning is not evaluated again where the core `knows_rows`; else nothing of it is used again.
        Beside the errors of `start`, 0x80070032 where the composition takes no rows, and 0x80070057 for a tensor and a
        layout that are not a pair, or not for this stage.
        """
        check_startable(self.state, "generate_segments")
        prompt = SegmentedPrompt(segments)
        check_segments(self.composition, prompt)
        if not prompt.rows:
            return self.start(prompt.token_ids, options, cancellation, constraint)
        check_ids(prompt.token_ids, self._vocabulary_size)
        check_means(self.composition, options, constraint)
        check_capacity(len(prompt.token_ids) + prompt.cell_count, self.capacity, options)
        self._check_position()
        beginning = _Beginning(prompt.token_ids, self.shared_start(prompt.token_ids, prompt), segmented=prompt)
        return self._begin(beginning, options, cancellation, constraint)

    def resume(
        self,
        token_ids: Sequence[int],
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        constraint: ConstraintCore | None = None,
    ) -> GenerationLoop:
        """Begin a generation that appends `token_ids` to the present sequence and goes on from there."""
        if self.state is not State.READY:
            raise WinMLError(
                E_NOT_VALID_STATE, "continue", f"the session is {self.state.name}; only a READY one continues"
            )
        if self.is_unusable:
            raise WinMLError(
                E_NOT_VALID_STATE, "continue", "this sequence cannot be continued (see sequence_state): generate anew"
            )
        suffix = list(token_ids)
        check_ids(suffix, self._vocabulary_size)
        if not suffix and self.evaluated == len(self.retained):
            raise WinMLError(E_INVALIDARG, "continue", "nothing to evaluate: give tokens to continue with")
        check_means(self.composition, options, constraint)
        check_capacity(len(self.retained) + len(suffix), self.capacity, options)
        self._check_position()
        start = Start(self.evaluated, self.composition.position)
        beginning = _Beginning([*self.retained, *suffix], start, self.retained)
        return self._begin(beginning, options, cancellation, constraint)

    def _begin(
        self,
        beginning: _Beginning,
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        constraint: ConstraintCore | None,
    ) -> GenerationLoop:
        """Open an operation. The model forgets what it has consumed beyond the beginning once nothing else can fail."""
        retained, evaluated, segmented = self.retained, self.evaluated, self.segmented
        operation = None
        try:
            self.retained, self.evaluated = beginning.token_ids, beginning.start.tokens
            self.segmented = beginning.segmented
            operation = GenerationLoop(self, options, cancellation, beginning.restore, constraint)
            operation.start = self.keep(beginning.start)
            self.feed.begin()
            self._operation, self.state = operation, State.ACTIVE
            return operation
        except BaseException:
            self._operation = None
            self.retained, self.evaluated, self.segmented = retained, evaluated, segmented
            if operation is not None:
                operation.close()
            self.evaluated = min(self.evaluated, self.consumed())
            raise

    @property
    def _vocabulary_size(self) -> int:
        return self.feed.vocabulary_size or self.tokenizer.token_count

    def _check_position(self) -> None:
        count = self.consumed()
        if count == self.evaluated:
            return
        if self.state is State.EMPTY:  # a session before this one has left its sequence in the pipeline
            self.composition.reset()
        else:
            self.state = State.RESET_REQUIRED
            raise WinMLError(
                E_NOT_VALID_STATE,
                "generate",
                f"the stage has consumed {count} tokens instead of {self.evaluated}: "
                "somebody else moved it; call reset()",
            )

    # --- ending -------------------------------------------------------------------------------------------------------

    def finished(self, operation: GenerationLoop, ran: bool, failed: bool, restore: list[int] | None) -> None:
        """Leave ACTIVE, unless `operation` has left it before.

        `ran` False means that nothing was evaluated; `restore` is the sequence before a continue.
        """
        if self._operation is not operation:
            return
        if failed:
            self.state = State.RESET_REQUIRED
        elif ran:
            self.state = State.READY
        elif restore is not None:
            self.retained = restore
            self.state = State.READY
        else:
            self._drop()
        self._operation = None
        self.composition.release_threads()  # the next generation may be another thread's

    def reset(self) -> None:
        """Forget the sequence. 0x8007139F while an operation is open."""
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, "reset", "a generation is open: read it to its end or close it")
        if self.state is not State.CLOSED:
            self._drop()

    def _drop(self) -> None:
        self.state = State.RESET_REQUIRED  # should the pipeline refuse
        self._operation = None
        self.retained = []
        self.forget()
        self.segmented = None
        self.state = State.EMPTY

    def close(self) -> None:
        """End for good. 0x8007139F while an operation is open; again is fine."""
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, "close", "a generation is open: read it to its end or close it")
        self.state = State.CLOSED
        self.composition.close()
