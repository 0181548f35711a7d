"""Keyword arguments of the calls of the short road, and their checks.

Not here: what the values of single options mean (`options.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict

from .cancellation import CancellationLatch, CancellationSource
from .checks import index_value, instance_of
from .option_values import finite
from .options import LogitsProcessor, StoppingPredicate, TextGenerationOptions

if TYPE_CHECKING:
    from .answer_form import AnswerForm


class OptionFields(TypedDict, total=False):
    """The fields of `TextGenerationOptions` as keyword arguments."""

    max_new_tokens: int
    stop_token_ids: Iterable[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_penalty_window: int
    presence_penalty: float
    frequency_penalty: float
    seed: int
    stop: Iterable[str]
    min_new_tokens: int
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    ignore_eos: bool
    no_repeat_ngram_size: int
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Iterable[str | int] | int
    logits_processors: Iterable[LogitsProcessor] | LogitsProcessor
    top_logprobs: int | None
    include_stop: bool
    stopping: StoppingPredicate | None


class FormFields(TypedDict, total=False):
    """Keyword arguments that say what an answer must look like; one of them at most."""

    json_schema: Any
    """A schema as a mapping or as JSON text, or a Pydantic model class."""
    regex: str | None
    choices: Iterable[str] | None
    grammar: str | None
    """A grammar in Lark notation or llama.cpp's GBNF."""


class CallFields(OptionFields, FormFields, total=False):
    """Keyword arguments of one call: generation options, or one `options` record instead, what the answer must look
    like, and how to stop or wait.
    """

    options: TextGenerationOptions | None
    cancellation: CancellationSource | None
    timeout: float | None


_NAMES_ELSEWHERE = {
    "max_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "repeat_penalty": "repetition_penalty",
    "logprobs": "top_logprobs",
    "stopping_criteria": "stopping",
    "response_format": "json_schema",
}  # what other libraries call them

_OTHER_FIELDS = frozenset({"options", "cancellation", "timeout", *FormFields.__annotations__})


def checked_prompt(prompt: str | Iterable[int]) -> str | list[int]:
    """Check a prompt: text, or token ids. Bytes would pass as ids, and messages are for `chat`."""
    if isinstance(prompt, str):
        return prompt
    kind = type(prompt).__name__
    if isinstance(prompt, bytes | bytearray | memoryview):
        raise TypeError(f"prompt must be str or token ids, not {kind}")
    if isinstance(prompt, Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"prompt must be str or token ids, not {kind}; for a conversation use model.chat()")
    ids = list(prompt)
    if any(isinstance(item, Mapping | tuple) for item in ids):
        raise TypeError("prompt must be str or token ids, not messages; use model.chat(messages=...)")
    return [index_value(token_id, "token id") for token_id in ids]


def answer_form_of(fields: CallFields) -> AnswerForm | None:
    """Check what the answer must look like."""
    if fields.keys().isdisjoint(FormFields.__annotations__):
        return None
    from .answer_form import answer_form  # free answers need no grammars

    return answer_form(fields)


def call_cancellation(fields: Mapping[str, object]) -> CancellationLatch | None:
    """Check what else cancels the call."""
    source = fields.get("cancellation")
    return None if source is None else instance_of(source, CancellationSource, "cancellation").latch


def call_timeout(fields: Mapping[str, object]) -> float | None:
    """Check the seconds to wait for another call."""
    timeout = fields.get("timeout")
    if timeout is None:
        return None
    seconds = finite(timeout, "timeout")
    if seconds < 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
    return seconds


def call_options(fields: CallFields) -> TextGenerationOptions:
    """Make the options record of a call."""
    known = {name: value for name, value in fields.items() if name not in _OTHER_FIELDS}
    if not known.keys() <= OptionFields.__annotations__.keys():
        raise _unknown_option(next(name for name in known if name not in OptionFields.__annotations__))
    options = fields.get("options")
    if options is None:
        return TextGenerationOptions(**known)  # type: ignore[arg-type]
    if known:
        raise TypeError(f"give either options= or {', '.join(known)}, not both")
    if not isinstance(options, TextGenerationOptions):
        raise TypeError(f"options must be TextGenerationOptions, not {type(options).__name__}")
    return options


def _unknown_option(name: str) -> TypeError:
    """Say which option may have been meant."""
    names = {**OptionFields.__annotations__, **FormFields.__annotations__}
    close = [_NAMES_ELSEWHERE[name]] if name in _NAMES_ELSEWHERE else get_close_matches(name, names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return TypeError(f"generation has no option {name!r}{hint}")
