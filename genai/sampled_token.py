"""Taking the token that a pipeline has chosen itself (genai §5.4, last paragraph).

Options about choosing have nothing to work on there and are refused; limits and stops still count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from winml_lite import NotSupportedError, WinMLError

from .codes import INVALID_DATA, NOT_SUPPORTED
from .endpoints import Row
from .options import TextGenerationOptions
from .sampling import TokenSelector

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore
    from .results import TokenLogprob

_WITHOUT_LOGITS = frozenset({"max_new_tokens", "stop_token_ids", "stop", "include_stop", "stopping"})
_PARAMETERS = frozenset(
    {
        "repetition_penalty_window",
        "xtc_threshold",
        "dry_base",
        "dry_allowed_length",
        "dry_sequence_breakers",
    }
)
"""Options that only say more about one that is refused."""
_DEFAULTS = TextGenerationOptions()


def check_sampled_options(options: TextGenerationOptions) -> None:
    """Raise NotSupportedError 0x80070032 for options that need logits."""
    free = _WITHOUT_LOGITS | _PARAMETERS
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in free and value != getattr(_DEFAULTS, field.name):
            raise NotSupportedError(
                NOT_SUPPORTED,
                "generate",
                f"{field.name}={value!r} needs logits, but the pipeline chooses its tokens itself",
            )


class SampledTokenSelector:
    """Has the methods of a `TokenSelector` where the row is the chosen token itself.

    Of a pipeline that gives logits beside one that chooses, the likeliest token is taken.
    """

    seed = 0
    logprob: TokenLogprob | None = None

    def __init__(self, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size
        self._greedy: TokenSelector | None = None

    def select(self, row: Row, constraint: ConstraintCore | None = None) -> int:
        """Return the token. WinMLError 0x8007000D for one outside the vocabulary."""
        if row.dtype.kind == "f":
            if self._greedy is None:
                self._greedy = TokenSelector(_DEFAULTS, row.size, ())
            return self._greedy.select(row)
        token_id = int(row[0])
        if not 0 <= token_id < self._vocabulary_size:
            raise WinMLError(
                INVALID_DATA,
                "sampled token output",
                f"the pipeline has chosen token {token_id} of a vocabulary of {self._vocabulary_size}",
            )
        return token_id

    def accept(self, token_id: int) -> None:
        """Nothing to remember."""

    def again(self, prompt_ids: Iterable[int], token_ids: Iterable[int]) -> SampledTokenSelector:
        """Return a selector as this one was after `token_ids`: itself, which remembers nothing."""
        return self
