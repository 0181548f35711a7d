"""What is refused before an operation changes anything (genai §6.2, 6.4 and 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from winml_lite import NotSupportedError, WinMLError

from .codes import E_INVALIDARG, E_NOT_VALID_STATE, INSUFFICIENT_BUFFER, NOT_SUPPORTED
from .composition import Composition
from .options import TextGenerationOptions
from .results import TextGenerationSessionState
from .sampled_token import check_sampled_options
from .segmented_prompt import SegmentedPrompt

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore

State = TextGenerationSessionState


def check_startable(state: TextGenerationSessionState, what: str) -> None:
    """Raise 0x8007139F in a state that no new sequence can be started from."""
    if state is State.ACTIVE:
        raise WinMLError(E_NOT_VALID_STATE, what, "another generation is open: read it to its end or close it")
    if state is State.RESET_REQUIRED:
        raise WinMLError(E_NOT_VALID_STATE, what, "the last generation failed: call reset() first")


def check_ids(token_ids: Sequence[int], vocabulary_size: int) -> None:
    """Raise 0x80070057 for an id outside the vocabulary."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocabulary_size:
        wrong = next(token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size)
        raise WinMLError(E_INVALIDARG, "generate", f"token id {wrong} is outside the vocabulary of {vocabulary_size}")


def check_means(composition: Composition, options: TextGenerationOptions, constraint: ConstraintCore | None) -> None:
    """Raise NotSupportedError 0x80070032 for what needs logits where a pipeline chooses the tokens itself."""
    if not composition.chooses:
        return
    check_sampled_options(options)
    if constraint is not None:
        raise NotSupportedError(
            NOT_SUPPORTED, "generate", "a constraint needs logits, but the pipeline chooses its tokens itself"
        )


def check_capacity(length: int, capacity: int, options: TextGenerationOptions) -> None:
    """Raise 0x8007007A for a prompt that is longer than the capacity (0 = unbounded)."""
    if capacity and length > capacity:
        raise WinMLError(
            INSUFFICIENT_BUFFER,
            "generate",
            f"{length} prompt tokens do not fit into the context of {capacity} "
            f"(max_new_tokens={options.max_new_tokens}); shorten the prompt or load with a larger context_length",
        )


def check_segments(composition: Composition, prompt: SegmentedPrompt) -> None:
    """Raise NotSupportedError 0x80070032 where the composition takes no such prompt, 0x80070057 for rows and a layout
    that are not one pair, or not for its stage.
    """
    if not composition.keeps_sequence:
        raise NotSupportedError(
            NOT_SUPPORTED, "generate_segments", "prompts of segments need a composition of one pipeline"
        )
    entry = composition.segments
    if prompt.rows and (entry is None or not entry.takes_rows):
        raise NotSupportedError(
            NOT_SUPPORTED, "generate_segments", "the stage of the token input takes no embedding rows"
        )
    for rows in prompt.rows:
        assert entry is not None
        entry.check(rows.tensor, rows.layout)
