"""From the parts of a configuration to a composition that a session drives (genai §5.1): every check of them.

Nothing is bound or run here, and the parts stay as they are. What comes out holds wrappers of its own, so that a
session goes on working when the caller closes his.
"""

from __future__ import annotations

from copy import copy
from typing import NoReturn, TypeVar

from winml_lite import ExecutionTarget, NotSupportedError, Pipeline, Stage, WinMLError

from .codes import E_INVALIDARG, E_NOT_VALID_STATE, NOT_SUPPORTED
from .composition import Composition, SinglePipeline
from .composition_parts import NOTHING, CompositionParts, TextGenerationPhaseBinding
from .draft_composing import check_target, make_speculation
from .draft_settings import NO_DRAFTS
from .endpoints import Endpoints
from .prefill_decode import PrefillDecode, PrefillDecodeFeed
from .results import TextGenerationDecodeInputMode, TextGenerationOutputKind, TextGenerationPipelinePhase
from .speculative_statistics import TextGenerationSpeculativeMethod
from .tokenizer import Tokenizer

T = TypeVar("T")
Phase = TextGenerationPipelinePhase


def compose(parts: CompositionParts, tokenizer: Tokenizer | None) -> Composition:
    """Check that the parts are complete and fit, with `tokenizer` in mind, and put them together.

    WinMLError 0x8007139F for a missing part or one of the other mode, 0x80070057 for one that does not fit,
    NotSupportedError 0x80070032 for a state owner without sequence state.
    """
    if parts.has_two_pipelines:
        if parts.drafts is not NO_DRAFTS:
            raise NotSupportedError(
                NOT_SUPPORTED, "speculative decoding", "not with two pipelines: their state is the caller's"
            )
        return _two_pipelines(parts, tokenizer)
    if parts.output_bindings:
        _misplaced("output bindings belong to two pipelines, and only one is configured")
    return _one_pipeline(parts, tokenizer)


def _one_pipeline(parts: CompositionParts, tokenizer: Tokenizer | None) -> SinglePipeline:
    endpoints = _endpoints(parts, parts.unified, "")
    owner, target = _required(parts.state_owner, "a state owner stage"), _target(parts)
    _check_member(endpoints.pipeline, owner, "state owner")
    if endpoints.pipeline.is_connected(endpoints.token_stage, endpoints.token_index, next_iteration=True):
        _wrong("the token input gets its value from the iteration before: configure it as PIPELINE_FEEDBACK")
    owner.sequence_capacity  # noqa: B018  (NotSupportedError on a stage without sequence state)
    composition = SinglePipeline(copy(parts.runtime), endpoints.copy(), copy(owner), copy(target))
    _check_vocabulary(composition.feed.vocabulary_size, tokenizer)
    if parts.drafts is not NO_DRAFTS:
        check_target(endpoints, owner)
        draft = _draft(parts, endpoints, target, tokenizer)
        size = composition.feed.vocabulary_size or (tokenizer.token_count if tokenizer is not None else 0)
        composition.speculate(make_speculation(parts.drafts, composition, draft, size))
    return composition


def _draft(
    parts: CompositionParts, endpoints: Endpoints, target: ExecutionTarget, tokenizer: Tokenizer | None
) -> SinglePipeline | None:
    """Check the second pipeline, and put it together where the method needs it."""
    if parts.draft is NOTHING or parts.drafts.method is not TextGenerationSpeculativeMethod.DRAFT_MODEL:
        return None
    draft, owner = _endpoints(parts, parts.draft, "draft: "), _required(parts.draft_state_owner, "draft: a state owner")
    if draft.pipeline.underlying_object is endpoints.pipeline.underlying_object:
        _wrong("draft: the pipeline is the one whose tokens are to be drafted")
    _check_member(draft.pipeline, owner, "draft: state owner")
    owner.sequence_capacity  # noqa: B018  (NotSupportedError on a stage without sequence state)
    composition = SinglePipeline(copy(parts.runtime), draft.copy(), copy(owner), copy(target))
    _check_vocabulary(composition.feed.vocabulary_size, tokenizer)
    return composition


def _two_pipelines(parts: CompositionParts, tokenizer: Tokenizer | None) -> PrefillDecode:
    if parts.unified is not NOTHING:
        _misplaced("a configuration of two pipelines has no UNIFIED phase")
    prefill, decode = _endpoints(parts, parts.prefill, "PREFILL: "), _endpoints(parts, parts.decode, "DECODE: ")
    owner, target = _required(parts.state_owner, "a state owner stage"), _target(parts)
    capacity = _required(parts.logical_capacity, "a logical capacity")
    mode = _required(parts.decode_input_mode, "a decode input mode")
    if not prefill.pipeline.owns(owner) and not decode.pipeline.owns(owner):
        _wrong("the state owner stage is in neither pipeline")
    if capacity == 0:
        _wrong("the logical capacity must not be 0")
    is_fed_back = mode is TextGenerationDecodeInputMode.PIPELINE_FEEDBACK
    if is_fed_back:
        _check_feedback(decode)
    _check_output_bindings(parts, prefill.pipeline, decode.pipeline)
    bindings = [(copy(stage), index, tensor) for _, stage, index, tensor in parts.output_bindings]
    phases = prefill.copy(), decode.copy()
    feed = PrefillDecodeFeed(copy(parts.runtime), phases, copy(target), bindings, is_fed_back)
    for vocabulary_size in feed.vocabulary_sizes:
        _check_vocabulary(vocabulary_size, tokenizer)
    return PrefillDecode(feed, copy(owner), capacity)


def _endpoints(parts: CompositionParts, binding: TextGenerationPhaseBinding, phase: str) -> Endpoints:
    """Check the endpoints of one phase."""
    pipeline = _required(binding.pipeline, f"{phase}a pipeline")
    token_stage = _required(binding.token_input_stage, f"{phase}a token input")
    token_index = _required(binding.token_input_index, f"{phase}a token input")
    output_stage = _required(binding.output_stage, f"{phase}an output")
    output_index = _required(binding.output_index, f"{phase}an output")
    kind = _required(binding.output_kind, f"{phase}an output")
    if not parts.runtime.owns(pipeline):
        _wrong(f"{phase}the pipeline is of another Runtime")
    _check_member(pipeline, token_stage, f"{phase}token input")
    _check_member(pipeline, output_stage, f"{phase}output")
    return Endpoints(pipeline, token_stage, token_index, output_stage, output_index, kind)


def _target(parts: CompositionParts) -> ExecutionTarget:
    target = _required(parts.token_target, "a token target")
    if not parts.runtime.owns(target):
        _wrong("the token target is of another Runtime")
    return target


def _check_feedback(decode: Endpoints) -> None:
    if decode.output_kind is not TextGenerationOutputKind.SAMPLED_TOKEN:
        _wrong("PIPELINE_FEEDBACK needs a decode output of sampled tokens, not of logits")
    if not decode.pipeline.is_connected(decode.token_stage, decode.token_index, next_iteration=True):
        _wrong("PIPELINE_FEEDBACK needs a connect_next_iteration edge into the decode token input")


def _check_output_bindings(parts: CompositionParts, prefill: Pipeline, decode: Pipeline) -> None:
    seen: set[tuple[Phase, object, int]] = set()
    for phase, stage, index, tensor in parts.output_bindings:
        if phase is Phase.UNIFIED:
            _misplaced("an output binding is of the UNIFIED phase; two pipelines have PREFILL and DECODE")
        _check_member(prefill if phase is Phase.PREFILL else decode, stage, f"{phase.name}: bound output")
        if index >= stage.schema().output_count:
            _wrong(f"{phase.name}: {stage.debug_name} has no output {index}")
        if not parts.runtime.owns(tensor):
            _wrong(f"{phase.name}: the tensor for output {index} of {stage.debug_name} is of another Runtime")
        key = phase, stage.underlying_object, index
        if key in seen:
            _wrong(f"{phase.name}: output {index} of {stage.debug_name} is bound twice")
        seen.add(key)


def _check_member(pipeline: Pipeline, stage: Stage, role: str) -> None:
    if not pipeline.owns(stage):
        _wrong(f"the {role} stage is not in the pipeline")


def _check_vocabulary(size: int, tokenizer: Tokenizer | None) -> None:
    if tokenizer is not None and size and size < tokenizer.token_count:
        _wrong(f"the logits have {size} entries, the tokenizer {tokenizer.token_count} tokens")


def _required(value: T | None, what: str) -> T:
    if value is None:
        _misplaced(f"{what} is missing")
    return value


def _misplaced(text: str) -> NoReturn:
    raise WinMLError(E_NOT_VALID_STATE, "TextGenerationConfiguration", text)


def _wrong(text: str) -> NoReturn:
    raise WinMLError(E_INVALIDARG, "TextGenerationConfiguration", text)
