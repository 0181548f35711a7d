"""From sound features to tokens by a Whisper model (genai §10): greedy, or drawn where the temperature says so.

`WhisperDecoder` hears a window of 30 seconds, tells its language, and decodes it as often as asked. Not here: what may
be said next (`whisper_rules.py`), how the stages are wired (`whisper_stages.py`), texts, longer recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from winml_lite import Pipeline, WinMLError

from .codes import INVALID_DATA
from .log_mel import log_mel
from .options import TextGenerationOptions
from .sampling import TokenSelector
from .whisper_folder import WhisperTokens
from .whisper_rules import RowMask, WhisperRules, log_probability
from .whisper_stages import Features, WhisperStages

POSITIONS = 448
"""Most tokens of a sequence, prompt included, in every published Whisper model."""
DecodingEnd = Literal["end", "capacity", "limit"]
"""Why a decoding ended: the model said so, its last position was used up, `max_new_tokens` was reached."""


class WhisperDecoder:
    """A Whisper model at work on one window of sound at a time. It closes the stages it is given.

    `mel_count` is the number of rows of the features. What fails raises WinMLError and leaves the decoder usable, as a
    KeyboardInterrupt does. For one user at a time, but any thread may call `abort`.
    """

    def __init__(self, stages: WhisperStages, tokens: WhisperTokens, positions: int = POSITIONS) -> None:
        self._stages = stages
        self._start: tuple[list[int], npt.NDArray[np.float32]] | None = None
        self.tokens = tokens
        self.mel_count = stages.mel_count
        self.positions = min(positions, stages.decoder.capacity or positions)

    def encode(self, features: Features) -> None:
        """Hear a window: features of shape (1, mel_count, 3000), as `log_mel` makes them."""
        self._start = None
        self._stages.encode(features)

    def encode_samples(self, samples: npt.NDArray[np.float32]) -> None:
        """Hear a window of at most 480,000 samples, mono at 16 kHz; their features come from the stage that the model
        has for them, else from `log_mel`.
        """
        if not self._stages.preprocesses:
            self.encode(log_mel(samples, self.mel_count))
            return
        self._start = None
        self._stages.encode_samples(samples)

    def detect_language(self) -> str:
        """Return the code of the likeliest language of the window; "en" for an English-only model."""
        if not self.tokens.is_multilingual:
            return "en"
        probabilities = self.language_probabilities()
        return max(probabilities, key=probabilities.__getitem__)

    def language_probabilities(self) -> dict[str, float]:
        """Return how likely each language of a multilingual model is for the window; they add up to 1."""
        row = self._after_start([self.tokens.start])
        codes = list(self.tokens.languages)
        logits = row[[self.tokens.languages[code] for code in codes]].astype(np.float64)
        highest = logits.max()
        if not np.isfinite(highest):
            raise WinMLError(INVALID_DATA, "language_probabilities", "the logits of the languages are no numbers")
        weights = np.exp(logits - highest)
        return dict(zip(codes, (weights / weights.sum()).tolist(), strict=True))

    def no_speech_probability(self, prompt_ids: Sequence[int] = ()) -> float:
        """Return how likely the model finds that nothing is said in the window.

        prompt_ids: the prompt that will be decoded; what stands before its start token makes a difference.
        """
        start = self.tokens.start
        begin = [*prompt_ids[: list(prompt_ids).index(start)], start] if prompt_ids else [start]
        return float(np.exp(log_probability(self._after_start(begin), self.tokens.no_speech)))

    def decode(self, prompt_ids: Sequence[int], *, rules: WhisperRules | None = None) -> WhisperDecoding:
        """Return an iterator over the tokens that follow `prompt_ids` (see `WhisperTokens.prompt`) up to the end token.

        The decoder runs once for each token. Read one decoding at a time.
        """
        return WhisperDecoding(self, prompt_ids, rules or WhisperRules())

    def row(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the logits behind `token_ids`, of shape (vocabulary,); valid until the next call."""
        row: npt.NDArray[np.float32] = self._stages.decoder.row(token_ids)
        return row

    def _after_start(self, begin: list[int]) -> npt.NDArray[np.float32]:
        """The logits behind the start token, float32; asked for once a window."""
        if self._start is None or self._start[0] != begin:
            self._start = begin, self.row(begin).astype(np.float32)
        return self._start[1]

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, which have no other user."""
        return self._stages.pipelines

    def reset(self) -> None:
        """Forget what was heard and said."""
        self._start = None
        self._stages.reset()

    def abort(self) -> None:
        """Have a call on another thread end early; it then fails with 0x800704C7."""
        self._stages.abort()

    def release_threads(self) -> None:
        """Let the next call come from another thread at no cost."""
        self._stages.release_threads()

    def close(self) -> None:
        """Give up the stages."""
        self._stages.close()


class WhisperDecoding(Iterator[int]):
    """The tokens of one decoding, one at a time.

    An error or an interrupt loses nothing: the next step goes on where it was. `token_ids` are those so far.
    """

    def __init__(self, decoder: WhisperDecoder, prompt_ids: Sequence[int], rules: WhisperRules) -> None:
        if not prompt_ids:
            raise ValueError("prompt_ids must not be empty")
        self._decoder = decoder
        self._rules = rules
        self._ids = list(prompt_ids)
        self._prompt_length = len(self._ids)
        self._mask: RowMask | None = None
        self._selector = TokenSelector(_selection(rules), 0)
        self._log_probabilities: list[float] = []
        self._end: DecodingEnd | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far, timestamps among them, without the prompt."""
        return tuple(self._ids[self._prompt_length :])

    @property
    def end(self) -> DecodingEnd | None:
        """Why it ended; None before."""
        return self._end

    @property
    def average_log_probability(self) -> float:
        """Mean of the natural logarithms of the tokens' probabilities, the end token counted; 0.0 before the first."""
        count = len(self._ids) - self._prompt_length + (self._end == "end")
        return float(np.mean(self._log_probabilities[:count])) if count else 0.0

    @property
    def seed(self) -> int:
        """The seed really used."""
        return self._selector.seed

    def __next__(self) -> int:
        if self._end is None:
            self._end = self._limit()
        if self._end is not None:
            raise StopIteration
        row = self._decoder.row(self._ids)
        said = self._ids[self._prompt_length :]
        if self._mask is None:
            self._mask = RowMask(self._decoder.tokens, self._rules, row.size)
        masked = self._mask.apply(row, said)
        token_id = self._selector.select(masked)
        self._log_probabilities[len(said) :] = [log_probability(masked, token_id)]
        if token_id == self._decoder.tokens.end:
            self._end = "end"
            raise StopIteration
        self._selector.accept(token_id)
        self._ids.append(token_id)
        return token_id

    def _limit(self) -> DecodingEnd | None:
        if len(self._ids) - self._prompt_length == self._rules.max_new_tokens:
            return "limit"
        return "capacity" if len(self._ids) >= self._decoder.positions else None


def _selection(rules: WhisperRules) -> TextGenerationOptions:
    return TextGenerationOptions(temperature=rules.temperature, seed=rules.seed)
