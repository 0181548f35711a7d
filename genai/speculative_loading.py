"""What `genai.load` is told about speculative decoding, and what comes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from winml_lite import NotSupportedError, Stage, WinMLError

from .checks import index_value
from .codes import E_INVALIDARG, NOT_SUPPORTED
from .composition import SinglePipeline
from .draft_composing import check_target, make_speculation
from .draft_settings import DraftSettings
from .language_model import LanguageModel
from .speculation import MOST_DRAFTED
from .speculative_statistics import TextGenerationSpeculativeMethod
from .tokenizer import Tokenizer

Drafter = Literal["lookup", "predictor"]
Method = TextGenerationSpeculativeMethod

_METHODS = {"lookup": Method.PROMPT_LOOKUP, "predictor": Method.MODEL}
_PREPARED = 4
"""Drafted tokens that a stage is prepared for where nothing is said: recurrent state is kept so many times."""


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """The method, a model that drafts, and the most tokens of a draft (None: as many as pay)."""

    method: TextGenerationSpeculativeMethod
    draft: str | os.PathLike[str] | LanguageModel | None
    token_count: int | None
    load: Callable[[str | os.PathLike[str]], LanguageModel]
    """Loads that model from a path or a name."""

    def prepare(self, stage: Stage) -> None:
        """Set what a stage must know before it is built."""
        stage.draft_token_limit_hint = self.token_count or _PREPARED
        stage.model_draft_predictor_enabled = self.method is Method.MODEL


def speculation_options(
    speculation: Drafter | None,
    draft: str | os.PathLike[str] | LanguageModel | None,
    draft_tokens: int | None,
    load: Callable[[str | os.PathLike[str]], LanguageModel],
) -> SpeculationOptions | None:
    """Check what was said; None where nothing is to be drafted. `load` loads a model that drafts."""
    if speculation is not None and speculation not in get_args(Drafter):
        raise ValueError(f"speculation must be 'lookup', 'predictor' or None, not {speculation!r}")
    if speculation is not None and draft is not None:
        raise ValueError("give either speculation= or draft=, not both")
    if draft is not None and not isinstance(draft, str | os.PathLike | LanguageModel):
        raise TypeError(f"draft must be a path, a name or a LanguageModel, not {type(draft).__name__}")
    count = None if draft_tokens is None else index_value(draft_tokens, "draft_tokens", MOST_DRAFTED, 1)
    if draft is not None:
        return SpeculationOptions(Method.DRAFT_MODEL, draft, count, load)
    if speculation is None:
        if count is not None:
            raise ValueError("draft_tokens says how much is drafted; say how with speculation= or draft=")
        return None
    return SpeculationOptions(_METHODS[speculation], None, count, load)


def speculate(composition: SinglePipeline, tokenizer: Tokenizer, options: SpeculationOptions) -> None:
    """Have the composition of a loaded model draft tokens.

    NotSupportedError 0x80070032 for a model that cannot verify drafts, WinMLError 0x80070057 for a drafting model of
    another vocabulary.
    """
    check_target(composition.endpoints, composition.state_owner)
    draft = None if options.draft is None else _draft(options, options.draft, tokenizer)
    settings = DraftSettings(options.method, options.token_count or MOST_DRAFTED)
    size = composition.feed.vocabulary_size or tokenizer.token_count
    composition.speculate(make_speculation(settings, composition, draft, size))


def _draft(
    options: SpeculationOptions, given: str | os.PathLike[str] | LanguageModel, tokenizer: Tokenizer
) -> SinglePipeline:
    """Return the composition of the model that drafts, with wrappers of its own."""
    model = given if isinstance(given, LanguageModel) else options.load(given)
    try:
        composition = model._open().composition
        if not isinstance(composition, SinglePipeline):
            raise NotSupportedError(NOT_SUPPORTED, "genai.load", f"{model.name} cannot draft: it has two pipelines")
        if model.tokenizer.vocabulary_identity != tokenizer.vocabulary_identity:
            raise WinMLError(
                E_INVALIDARG, "genai.load", f"{model.name} cannot draft for {tokenizer.path}: the vocabularies differ"
            )
        return composition.twin()
    finally:
        if model is not given:
            model.close()
