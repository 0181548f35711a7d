"""Checking what a configuration says about speculative decoding, and putting it together (genai §7)."""

from __future__ import annotations

from typing import NoReturn

from winml_lite import NotSupportedError, Stage, WinMLError

from .codes import E_INVALIDARG, NOT_SUPPORTED
from .composition import SinglePipeline
from .draft_models import DraftPipeline, ModelPredictor
from .draft_settings import DraftSettings
from .endpoints import Endpoints
from .prompt_lookup import PromptLookup
from .results import TextGenerationOutputKind
from .speculation import DraftSource, Speculation, draft_limit
from .speculative_statistics import TextGenerationSpeculativeMethod

Method = TextGenerationSpeculativeMethod

_WHAT = "speculative decoding"


def check_target(endpoints: Endpoints, owner: Stage) -> None:
    """Refuse with NotSupportedError 0x80070032 a composition in which no step could be made: one stage must take the
    ids as its input 0, keep the state, and give logits.
    """
    if endpoints.output_kind is not TextGenerationOutputKind.LOGITS:
        _unsupported("the pipeline chooses its tokens itself, and drafts are verified with logits")
    key = owner.underlying_object
    if endpoints.output_stage.underlying_object is not key:
        _unsupported("the stage of the output is not the state owner")
    if endpoints.token_stage.underlying_object is not key or endpoints.token_index != 0:
        _unsupported("the token input is not input 0 of the state owner")


def make_speculation(
    settings: DraftSettings, composition: SinglePipeline, draft: SinglePipeline | None, vocabulary_size: int
) -> Speculation:
    """Return how a composition that passed `check_target` drafts tokens; `draft` is the second pipeline, and
    `vocabulary_size` what its tokens must be below.

    NotSupportedError 0x80070032 where its stage cannot verify drafts, or has no predictor for MODEL; WinMLError
    0x80070057 for DRAFT_MODEL without a second pipeline.
    """
    owner, method = composition.state_owner, settings.method
    limit = draft_limit(owner, settings.token_count)
    source: DraftSource
    if method is Method.MODEL:
        predicted = owner.speculative_capabilities.max_draft_tokens
        if not predicted:
            _unsupported(
                "the stage has no predictor: the model needs one, and the stage draft_token_limit_hint and "
                "model_draft_predictor_enabled before build"
            )
        limit = min(limit, predicted)
        source = ModelPredictor(owner)
    elif method is Method.DRAFT_MODEL:
        if draft is None:
            raise WinMLError(E_INVALIDARG, _WHAT, "DRAFT_MODEL needs a second pipeline: set_draft_pipeline")
        source = DraftPipeline(draft, vocabulary_size)
    else:
        source = PromptLookup()
    return Speculation(method, limit, source)


def _unsupported(text: str) -> NoReturn:
    raise NotSupportedError(NOT_SUPPORTED, _WHAT, text)
