"""The sequence that a session keeps, and the state machine around it (genai §6.1, 6.3, 6.4).

One `SequenceCore` stands behind a `TextGenerationSession` and behind the short road. It starts operations and keeps the
tokens; running one operation is `loop.py`. It has no thread rule of its own: its users see to it that one thread at a
time drives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from winml_lite import Pipeline, Stage, WinMLError

from .cancellation import CancellationSource
from .codes import E_INVALIDARG, E_NOT_VALID_STATE, INSUFFICIENT_BUFFER
from .feed import TokenFeed
from .loop import GenerationLoop
from .options import TextGenerationOptions
from .results import (
    TextGenerationSequenceDisclosure,
    TextGenerationSequenceState,
    TextGenerationSessionState,
)
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore

State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure


class SequenceCore:
    """Prompt and emitted tokens of one pipeline, how far the model has consumed them, and what may happen next.

    `retained` is prompt plus emitted tokens, `evaluated` how many of them the model has consumed. The core must be the
    only user of its pipeline, and closes the wrappers it is given. WinMLError 0x80070057 for a decoder whose mask or
    position input is of an unknown type.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        state_owner: Stage,
        feed: TokenFeed,
        tokenizer: Tokenizer,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self.pipeline = pipeline
        self.state_owner = state_owner
        self.feed = feed
        self.tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self.state = State.EMPTY
        self.retained: list[int] = []
        self.evaluated = 0
        self._operation: GenerationLoop | None = None
        feed.prepare()

    @property
    def capacity(self) -> int:
        """Most tokens that prompt and output may have together; 0 = unbounded."""
        return self.state_owner.sequence_capacity

    @property
    def sequence_state(self) -> TextGenerationSequenceState:
        if self.state is State.RESET_REQUIRED:
            return TextGenerationSequenceState(Disclosure.UNUSABLE, self.state, 0, 0)
        disclosure = Disclosure.RETAINED if self.retained else Disclosure.NONE
        return TextGenerationSequenceState(disclosure, self.state, self.evaluated, len(self.retained))

    @property
    def retained_token_ids(self) -> tuple[int, ...]:
        return () if self.state is State.RESET_REQUIRED else tuple(self.retained)

    # --- starting -----------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Make the core ready for `start`, whatever came before: an operation that an interrupt left open is ended,
        and a sequence that failed, or does not fit the stage any more, is dropped.
        """
        if self._operation is not None:
            self._operation.close()
        if self.state is State.RESET_REQUIRED or self.state_owner.sequence_position != self.evaluated:
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
        a reset is due,
        0x80070057 for an empty prompt or an id outside the vocabulary, 0x8007007A for a prompt longer than the
        capacity.
        """
        self._check_startable("generate")
        prompt = list(token_ids)
        if not prompt:
            raise WinMLError(E_INVALIDARG, "generate", "the prompt has no tokens, and the model adds none of its own")
        self._check_ids(prompt)
        self._check_capacity(len(prompt), options)
        self._check_position()
        self._keep_prefix(self._shared_prefix(prompt))
        self.retained = prompt
        return self._begin(options, cancellation, None, constraint)

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
        suffix = list(token_ids)
        self._check_ids(suffix)
        if not suffix and self.evaluated == len(self.retained):
            raise WinMLError(E_INVALIDARG, "continue", "nothing to evaluate: give tokens to continue with")
        self._check_capacity(len(self.retained) + len(suffix), options)
        self._check_position()
        before = list(self.retained)
        self.retained = before + suffix
        return self._begin(options, cancellation, before, constraint)

    def _begin(
        self,
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        restore: list[int] | None,
        constraint: ConstraintCore | None,
    ) -> GenerationLoop:
        """Open an operation on `retained`; `restore` is the sequence before a continue."""
        try:
            self.feed.begin()
            self._operation = GenerationLoop(self, options, cancellation, restore, constraint)
            self.state = State.ACTIVE
            return self._operation
        except BaseException:
            self._operation = None
            self.retained = self.retained[: self.evaluated] if restore is None else restore
            self.state = State.READY if self.retained else State.EMPTY
            raise

    def _check_startable(self, what: str) -> None:
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, what, "another generation is open: read it to its end or close it")
        if self.state is State.RESET_REQUIRED:
            raise WinMLError(E_NOT_VALID_STATE, what, "the last generation failed: call reset() first")

    def _check_ids(self, token_ids: list[int]) -> None:
        size = self.feed.vocabulary_size or self.tokenizer.token_count
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < size:
            wrong = next(token_id for token_id in token_ids if not 0 <= token_id < size)
            raise WinMLError(E_INVALIDARG, "generate", f"token id {wrong} is outside the vocabulary of {size}")

    def _check_capacity(self, length: int, options: TextGenerationOptions) -> None:
        capacity = self.capacity
        if capacity and length > capacity:
            raise WinMLError(
                INSUFFICIENT_BUFFER,
                "generate",
                f"{length} prompt tokens do not fit into the context of {capacity} "
                f"(max_new_tokens={options.max_new_tokens}); shorten the prompt or load with a larger context_length",
            )

    def _check_position(self) -> None:
        position = self.state_owner.sequence_position
        if position == self.evaluated:
            return
        if self.state is State.EMPTY:  # a session before this one has left its sequence in the pipeline
            self.pipeline.reset()
        else:
            self.state = State.RESET_REQUIRED
            raise WinMLError(
                E_NOT_VALID_STATE,
                "generate",
                f"the stage is at position {position} instead of {self.evaluated}: "
                "somebody else moved it; call reset()",
            )

    def _shared_prefix(self, prompt: list[int]) -> int:
        """Leading tokens of `prompt` that the model has consumed; at least one token is left to evaluate."""
        limit = min(self.evaluated, len(prompt) - 1)
        for index, (old, new) in enumerate(zip(self.retained[:limit], prompt, strict=False)):
            if old != new:
                return index
        return limit

    def _keep_prefix(self, length: int) -> None:
        """Have the model forget everything after `length` consumed tokens, or everything when it cannot rewind."""
        if length < self.evaluated:
            if length == 0 or not self._rewind(length):
                self.pipeline.reset()
                length = 0
        self.evaluated = length

    def _rewind(self, length: int) -> bool:
        try:
            self.state_owner.rewind(length)
        except WinMLError:
            return False
        return True

    # --- ending -------------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Take the position from the stage: an interrupt may fall between a run and its book-keeping, and a state that
        cannot take back a broken run starts again at 0.
        """
        position = self.state_owner.sequence_position
        if position <= len(self.retained):
            self.evaluated = position

    def step_back(self) -> None:
        """Un-consume the last token, to get its logits once more."""
        self._keep_prefix(self.evaluated - 1)

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
        self.evaluated = 0
        self.pipeline.reset()
        self.state = State.EMPTY

    def close(self) -> None:
        """End for good. 0x8007139F while an operation is open; again is fine."""
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, "close", "a generation is open: read it to its end or close it")
        self.state = State.CLOSED
        self.feed.close()
        self.state_owner.close()
        self.pipeline.close()
