"""Checks of what the methods of a session are given (genai §0.3 and 6.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from winml_lite import WinMLError

from .cancellation import CancellationSource
from .checks import index_value, instance_of
from .codes import E_INVALIDARG
from .options import TextGenerationOptions
from .segments import TextGenerationSegment, TextGenerationSegmentKind

if TYPE_CHECKING:
    from .constraint import TokenConstraint
    from .constraint_state import ConstraintCore
    from .sequence import SequenceCore


def token_id_list(token_ids: Iterable[int]) -> list[int]:
    """Check token ids: integers of 32 bits without sign."""
    if isinstance(token_ids, bytes | bytearray | memoryview):  # their bytes would pass as ids
        raise TypeError(f"token_ids must be token ids, not {type(token_ids).__name__}")
    return [index_value(token_id, "token id") for token_id in token_ids]


def segment_list(segments: Iterable[TextGenerationSegment]) -> list[TextGenerationSegment]:
    """Check the segments of a prompt: there are some, and tokens come last."""
    parts = [instance_of(segment, TextGenerationSegment, "segment") for segment in segments]
    if not parts:
        raise ValueError("segments must not be empty")
    if parts[-1].kind is not TextGenerationSegmentKind.TOKENS:
        raise ValueError("the last segment must be tokens: embedding rows give no logits")
    return parts


def constraint_core(core: SequenceCore, constraint: TokenConstraint) -> ConstraintCore:
    """Return what stands behind a constraint that is free and fits the session's tokenizer."""
    from .constraint import TokenConstraint

    state = instance_of(constraint, TokenConstraint, "constraint")._open()
    if state.table is not core.tokenizer.underlying_object.token_table:
        raise WinMLError(E_INVALIDARG, "generate", "the constraint was made by another tokenizer")
    state.check_free()
    return state


def operation(
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
