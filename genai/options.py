"""What a caller asks of one generation (genai §5.3 and 8) and the checks of its values (genai §0.3).

Wrong types are TypeError, values out of range ValueError, both before any model runs. Nothing is repaired or clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from .checks import index_value
from .logit_bias import logit_biases
from .option_values import callables, finite, flag, optional_callable, sequence_breakers, stop_texts

UINT64_MAX = 0xFFFFFFFFFFFFFFFF

LogitsProcessor: TypeAlias = Callable[[tuple[int, ...], Any], Any]
"""(ids of prompt and output, row of logits) to the row that counts instead."""
StoppingPredicate: TypeAlias = Callable[[tuple[int, ...], str], object]
"""(ids of the output, text of the output) to whether it ends here."""


@dataclass(frozen=True)
class TextGenerationOptions:
    """Limits, stops and sampling of one operation; the defaults are greedy decoding of up to 256 tokens.

    max_new_tokens: most emitted tokens, 1 to 2**32-1.
    stop_token_ids: ids that end the text beside the end-of-sequence ids; any iterable, stored as a tuple.
    temperature: divides the logits; 0 takes the highest logit and leaves the filters and the seed without effect.
    top_k: keep the k likeliest tokens; 0 is off.
    top_p: keep the shortest list of likeliest tokens with at least this probability, above 0 up to 1; 1 is off.
    min_p: keep tokens with at least this fraction of the highest probability, 0 to 1; 0 is off.
    repetition_penalty: divides positive and multiplies other logits of earlier tokens (prompt too); above 0, 1 is off.
    repetition_penalty_window: how many last tokens count as earlier; 0 means all of them.
    presence_penalty: subtracted once from the logit of each token emitted by this operation; negative values reward.
    frequency_penalty: subtracted once for each time such a token was emitted.
    seed: start of the random numbers, up to 2**64-1; 0 takes a fresh one, which the result reports.

    By keyword only:

    stop: texts that end the generation; the text before the earliest match is kept. One str is one stop.
    min_new_tokens: no end-of-sequence token is chosen before so many tokens are emitted; your own stops still count.
    logit_bias: token id (an int or a str of digits) to what is added to its logit; minus infinity bans the token.
    ignore_eos: never choose an end-of-sequence token.
    no_repeat_ngram_size: no sequence of so many tokens comes twice, counting the prompt; 0 is off.
    typical_p: keep the tokens whose surprise is nearest to the expected one (Meister et al., Locally typical sampling,
        2022), with at least this probability, above 0 up to 1; 1 is off.
    top_n_sigma: keep tokens with logits at most n standard deviations below the highest (Tang et al., Top-n-sigma,
        2024); 0 is off.
    xtc_probability: how often "exclude top choices" applies, 0 to 1: of the tokens with at least the probability
        `xtc_threshold` only the least likely stays; 0 is off.
    xtc_threshold: 0 to 1; above 0.5 it never finds two tokens.
    dry_multiplier: penalty for the token that would prolong a repetition of `dry_allowed_length` tokens; 0 is off.
    dry_base: each further repeated token multiplies that penalty by it; at least 1.
    dry_allowed_length: longest repetition that costs nothing, at least 1.
    dry_sequence_breakers: texts and token ids (or one of either) over which no repetition is counted.
    logits_processors: functions (ids, row) -> row (or one), called in order for every token. `ids` are prompt and
        output so far, `row` is a float64 array of shape (vocabulary,), theirs to change and return.
    top_logprobs: report the log probability of every emitted token and of the so many likeliest; 0 for the emitted one
        alone, None is off.
    include_stop: the stop text that ended the generation stays at the end of the text.
    stopping: function (token_ids, text) -> bool over the output so far, called after every token; true ends the
        generation with STOP_TOKEN. All that it has seen is kept.

    Raises TypeError for wrong types (bool included) and ValueError for values out of range, NaN or infinite.
    """

    max_new_tokens: int = 256
    stop_token_ids: Iterable[int] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_penalty_window: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    _: KW_ONLY
    stop: Iterable[str] = ()
    min_new_tokens: int = 0
    logit_bias: Mapping[int, float] | Mapping[str, float] | None = None
    ignore_eos: bool = False
    no_repeat_ngram_size: int = 0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_sequence_breakers: Iterable[str | int] | int = ("\n", ":", '"', "*")
    logits_processors: Iterable[LogitsProcessor] | LogitsProcessor = ()
    top_logprobs: int | None = None
    include_stop: bool = False
    stopping: StoppingPredicate | None = None

    def __post_init__(self) -> None:
        for name, value in self._checked().items():
            object.__setattr__(self, name, value)
        for name in ("temperature", "top_n_sigma", "dry_multiplier"):
            value = getattr(self, name)
            _require(value >= 0, f"{name} must not be negative", value)
        for name in ("min_p", "xtc_probability", "xtc_threshold"):
            value = getattr(self, name)
            _require(0 <= value <= 1, f"{name} must be in 0..1", value)
        for name in ("top_p", "typical_p"):
            value = getattr(self, name)
            _require(0 < value <= 1, f"{name} must be above 0 and at most 1", value)
        _require(self.repetition_penalty > 0, "repetition_penalty must be above 0", self.repetition_penalty)
        _require(self.dry_base >= 1, "dry_base must be at least 1", self.dry_base)
        rule = f"min_new_tokens must not be above max_new_tokens ({self.max_new_tokens})"
        _require(self.min_new_tokens <= self.max_new_tokens, rule, self.min_new_tokens)

    def _checked(self) -> dict[str, Any]:
        """Check every value alone; return it as it is kept."""
        return {
            "max_new_tokens": index_value(self.max_new_tokens, "max_new_tokens", minimum=1),
            "stop_token_ids": tuple(index_value(token_id, "stop_token_ids") for token_id in self.stop_token_ids),
            "temperature": finite(self.temperature, "temperature"),
            "top_k": index_value(self.top_k, "top_k"),
            "top_p": finite(self.top_p, "top_p"),
            "min_p": finite(self.min_p, "min_p"),
            "repetition_penalty": finite(self.repetition_penalty, "repetition_penalty"),
            "repetition_penalty_window": index_value(self.repetition_penalty_window, "repetition_penalty_window"),
            "presence_penalty": finite(self.presence_penalty, "presence_penalty"),
            "frequency_penalty": finite(self.frequency_penalty, "frequency_penalty"),
            "seed": index_value(self.seed, "seed", UINT64_MAX),
            "stop": stop_texts(self.stop),
            "min_new_tokens": index_value(self.min_new_tokens, "min_new_tokens"),
            "logit_bias": logit_biases(self.logit_bias),
            "ignore_eos": flag(self.ignore_eos, "ignore_eos"),
            "no_repeat_ngram_size": index_value(self.no_repeat_ngram_size, "no_repeat_ngram_size"),
            "typical_p": finite(self.typical_p, "typical_p"),
            "top_n_sigma": finite(self.top_n_sigma, "top_n_sigma"),
            "xtc_probability": finite(self.xtc_probability, "xtc_probability"),
            "xtc_threshold": finite(self.xtc_threshold, "xtc_threshold"),
            "dry_multiplier": finite(self.dry_multiplier, "dry_multiplier"),
            "dry_base": finite(self.dry_base, "dry_base"),
            "dry_allowed_length": index_value(self.dry_allowed_length, "dry_allowed_length", minimum=1),
            "dry_sequence_breakers": sequence_breakers(self.dry_sequence_breakers),
            "logits_processors": callables(self.logits_processors, "logits_processors"),
            "top_logprobs": None if self.top_logprobs is None else index_value(self.top_logprobs, "top_logprobs"),
            "include_stop": flag(self.include_stop, "include_stop"),
            "stopping": optional_callable(self.stopping, "stopping"),
        }


def _require(holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise ValueError(f"{rule}, not {value}")
