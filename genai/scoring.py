"""How likely a model finds given text (genai §8): log probabilities of continuations.

The row of logits that a token is judged by is the one after the tokens before it. A model that gives a row for every
position of a step is run over many tokens at once, any other token by token. Not here: whole texts (`perplexity.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from .cancellation import CancellationLatch
from .codes import CANCELLED, E_INVALIDARG, INSUFFICIENT_BUFFER, NOT_SUPPORTED
from .composition import SinglePipeline
from .log_probabilities import token_logprob
from .results import TextGenerationSessionState
from .sequence import SequenceCore

Row = npt.NDArray[Any]
Text = str | list[int]

_WIDEST = 32
"""Most tokens of one step: rows are long, and cancellation is looked at between steps."""


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    """How likely a continuation is after its prompt."""

    log_probability: float
    """Natural logarithm of the probability of all its tokens, one after the other: the sum of those below."""
    token_log_probabilities: tuple[float, ...]
    token_ids: tuple[int, ...]
    """The tokens that were scored."""
    is_greedy: bool
    """Whether each of them is the likeliest at its place: greedy decoding would write this continuation."""

    @property
    def token_count(self) -> int:
        """Number of tokens; `log_probability / token_count` compares continuations of unlike length."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class TokenScore:
    """How likely one token is after those before it."""

    log_probability: float
    is_greedy: bool


class TokenScorer:
    """Judges the tokens of sequences, one sequence after the other. What two of them begin with is evaluated once."""

    def __init__(self, core: SequenceCore, latch: CancellationLatch) -> None:
        self._core = core
        self._latch = latch
        self._width = _step_width(core)
        self._prompt: list[int] = []
        self._prompt_row: Row | None = None
        """The row after `_prompt`, which continuations of one prompt share."""
        core.feed.begin()

    def score(self, token_ids: Sequence[int], first: int) -> list[TokenScore]:
        """Judge `token_ids[first:]`; at least one token comes before them.

        0x8007007A for a sequence that is longer than the context, 0x800704C7 after a cancel.
        """
        tokens = list(token_ids)
        self._check(tokens)
        try:
            return self._scores(tokens, first)
        except WinMLError:
            if self._core.consumed() >= self._core.evaluated:
                raise
        self._core.recover()  # what an interrupt had left could not be taken back: evaluate all again
        return self._scores(tokens, first)

    def _scores(self, tokens: list[int], first: int) -> list[TokenScore]:
        scores = []
        is_known = self._prompt_row is not None and self._prompt == tokens[:first]
        if is_known and self._prompt_row is not None:
            scores.append(_judge(self._prompt_row, tokens[first]))
        start = first if is_known else first - 1
        if len(tokens) - 1 > start:
            self._go_to(tokens, start)
            for row in self._rows(tokens[start:-1]):
                if not scores:
                    self._prompt, self._prompt_row = tokens[:first], row.copy()
                scores.append(_judge(row, tokens[first + len(scores)]))
        return scores

    def _check(self, tokens: list[int]) -> None:
        core = self._core
        if core.capacity and len(tokens) - 1 > core.capacity:
            text = f"{len(tokens)} tokens do not fit into the context of {core.capacity}"
            raise WinMLError(INSUFFICIENT_BUFFER, "score", f"{text}; shorten the text or load with more context_length")
        size = core.feed.vocabulary_size or core.tokenizer.token_count
        if not 0 <= min(tokens) <= max(tokens) < size:
            raise WinMLError(E_INVALIDARG, "score", f"token ids are in 0..{size - 1}")

    def _go_to(self, tokens: list[int], position: int) -> None:
        """Have the model consume exactly `tokens[:position]`."""
        core, composition = self._core, self._core.composition
        known = _shared(core.retained[: core.evaluated], tokens[:position])
        if known < core.evaluated:
            try:
                if not known:
                    composition.reset()
                else:
                    composition.rewind(known)
            except WinMLError:
                composition.reset()
                known = 0
        core.segmented = None
        core.retained, core.evaluated = tokens[:known], known
        core.state = TextGenerationSessionState.READY if known else TextGenerationSessionState.EMPTY
        while core.evaluated < position:
            self._check_canceled()
            piece = tokens[core.evaluated : min(core.evaluated + core.feed.chunk, position)]
            core.feed.skip(piece, core.evaluated)
            self._consumed(piece)

    def _rows(self, tokens: list[int]) -> Iterator[Row]:
        """Consume tokens and give the row after each, which is valid until the next."""
        core = self._core
        for start in range(0, len(tokens), self._width):
            self._check_canceled()
            piece = tokens[start : start + self._width]
            if self._width == 1:
                rows: Iterable[Row] = [core.feed.step(piece[0], core.evaluated)]
            else:
                rows = core.step_rows(piece, core.evaluated)
            self._consumed(piece)
            yield from rows

    def _consumed(self, piece: list[int]) -> None:
        core = self._core
        core.retained += piece
        core.evaluated += len(piece)
        core.state = TextGenerationSessionState.READY

    def _check_canceled(self) -> None:
        if self._latch.is_canceled:
            raise WinMLError(CANCELLED, "score", "the call was canceled")


def _step_width(core: SequenceCore) -> int:
    """How many tokens one step takes with a row for each; 1 where the model gives the last row only."""
    composition = core.composition
    if composition.chooses:
        raise NotSupportedError(NOT_SUPPORTED, "score", "the pipeline chooses its tokens itself and gives no logits")
    if not isinstance(composition, SinglePipeline) or not composition.steps_alone:
        return 1
    try:
        capabilities = composition.state_owner.speculative_capabilities
    except NotSupportedError:
        return 1
    rows = min(capabilities.max_proposed_step_width, capabilities.max_logit_rows_per_step)
    return max(min(rows, _WIDEST), 1)


def _judge(row: Row, token_id: int) -> TokenScore:
    best = int(np.nan_to_num(row, nan=-np.inf).argmax())
    return TokenScore(token_logprob(row, token_id, 0).logprob, best == token_id)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Leading tokens that two sequences have in common."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def score_continuations(
    core: SequenceCore, prompt: Text, continuations: Sequence[Text], latch: CancellationLatch
) -> list[ContinuationScore]:
    """Score continuations of one prompt.

    Text is encoded together with its prompt, as the model would read it, and what the two do not share with the prompt
    alone is scored: that is the continuation, and where a token spans both, that token.
    """
    scorer = TokenScorer(core, latch)
    return [_score(core, scorer, prompt, continuation) for continuation in continuations]


def _score(core: SequenceCore, scorer: TokenScorer, prompt: Text, continuation: Text) -> ContinuationScore:
    encode = core.tokenizer.encode
    before = encode(prompt) if isinstance(prompt, str) else prompt
    if isinstance(prompt, str) and isinstance(continuation, str):
        tokens = encode(prompt + continuation)
        first = _shared(before, tokens)
    else:
        added = encode(continuation, False) if isinstance(continuation, str) else continuation
        tokens, first = [*before, *added], len(before)
    if first == len(tokens):
        raise WinMLError(E_INVALIDARG, "score", f"the continuation {continuation!r} adds no tokens to the prompt")
    if not first:
        text = "no token comes before the continuation: give a prompt, this model puts no token in front of a text"
        raise WinMLError(E_INVALIDARG, "score", text)
    scores = scorer.score(tokens, first)
    values = tuple(score.log_probability for score in scores)
    return ContinuationScore(sum(values), values, tuple(tokens[first:]), all(score.is_greedy for score in scores))
