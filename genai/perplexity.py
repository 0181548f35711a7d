"""How well a model predicts a text: perplexity over windows of it.

Two definitions, both the exponential of the mean negative log probability of the tokens that are scored:

- `"sliding"`: windows of `window` tokens, each `stride` after the one before. A window scores the tokens that no window
  before it has scored, so every token but the first is scored once, with `window - stride` tokens or more before it
  (fewer in the first window). The text gets its special tokens once.
- `"llama.cpp"`: what the perplexity tool of llama.cpp computes. Windows follow one another without overlap, the first
  token of each gives way to the begin token where the model adds one, only the tokens behind the middle of a window are
  scored, and a last window that is not full is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import E_INVALIDARG
from .scoring import TokenScorer
from .sequence import SequenceCore

Definition = Literal["sliding", "llama.cpp"]
Progress = Callable[[int, int], object]
"""Called with the number of windows done and of all windows."""

DEFINITIONS: tuple[Definition, ...] = ("sliding", "llama.cpp")
DEFAULT_WINDOW = 512


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The perplexity of a text and what it was computed from."""

    perplexity: float
    """exp(mean_negative_log_likelihood): 1 is certainty, the size of the vocabulary is a blind guess."""
    mean_negative_log_likelihood: float
    """Nats per scored token."""
    standard_error: float
    """Of the perplexity, from the spread over the scored tokens; NaN for a single one."""
    scored_token_count: int
    token_count: int
    """Tokens of the text, special ones included."""
    window: int
    stride: int
    definition: Definition


@dataclass(frozen=True, slots=True)
class Windows:
    """How a text is cut."""

    window: int
    stride: int
    definition: Definition


def windows_of(window: int | None, stride: int | None, definition: Definition, capacity: int) -> Windows:
    """Fill in defaults and check them: a window of 512 tokens or the whole context, a stride of half a window."""
    if definition not in DEFINITIONS:
        raise ValueError(f"definition must be 'sliding' or 'llama.cpp', not {definition!r}")
    if window is None:
        window = min(DEFAULT_WINDOW, capacity) if capacity else DEFAULT_WINDOW
    least = 4 if definition == "llama.cpp" else 2
    if window < least or (capacity and window > capacity):
        raise ValueError(f"window must be in {least}..{capacity or 'any'}, the context of the model, not {window}")
    if definition == "llama.cpp":
        if stride is not None:
            raise ValueError("the definition of llama.cpp has no stride: its windows do not overlap")
        return Windows(window, window, definition)
    if stride is None:
        stride = max(window // 2, 1)
    if not 1 <= stride < window:
        raise ValueError(f"stride must be in 1..{window - 1}, less than the window, not {stride}")
    return Windows(window, stride, definition)


def perplexity_of(
    core: SequenceCore, token_ids: list[int], windows: Windows, latch: CancellationLatch, progress: Progress | None
) -> Perplexity:
    """Compute the perplexity of a text that is given as tokens, special ones included.

    0x80070057 for a text of too few tokens, 0x800704C7 after a cancel.
    """
    scorer = TokenScorer(core, latch)
    parts = list(_cut(core, token_ids, windows))
    values: list[float] = []
    for done, (tokens, first) in enumerate(parts, 1):
        values += [-score.log_probability for score in scorer.score(tokens, first)]
        if progress is not None:
            progress(done, len(parts))
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / count if math.isfinite(mean) else math.nan
    result = math.exp(mean) if mean < 700 else math.inf
    error = result * math.sqrt(variance / (count - 1)) if count > 1 else math.nan
    return Perplexity(result, mean, error, count, len(token_ids), windows.window, windows.stride, windows.definition)


def _cut(core: SequenceCore, token_ids: list[int], windows: Windows) -> Iterator[tuple[list[int], int]]:
    """Yield the tokens of each window, and the index in it of the first token that is scored."""
    size, count = windows.window, len(token_ids)
    if windows.definition == "llama.cpp":
        begin = token_ids[:1] if core.tokenizer.encode("")[:1] == token_ids[:1] else []
        if count < size:
            raise WinMLError(E_INVALIDARG, "perplexity", f"the text has {count} tokens, a window {size}: use a shorter")
        for start in range(0, count - size + 1, size):
            tokens = token_ids[start : start + size]
            yield [*begin, *tokens[len(begin) :]], size // 2 + 1
        return
    if count < 2:
        raise WinMLError(E_INVALIDARG, "perplexity", f"the text has {count} tokens; it takes two to score one")
    scored = 1
    for start in range(0, count, windows.stride):
        stop = min(start + size, count)
        yield token_ids[start:stop], scored - start
        scored = stop
        if stop == count:
            return
