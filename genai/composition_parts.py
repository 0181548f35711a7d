"""What a `TextGenerationConfiguration` collects (genai §5.1): records only. Checking them is `composing.py`."""

from __future__ import annotations

from dataclasses import dataclass

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, Tensor

from .draft_settings import NO_DRAFTS, DraftSettings
from .results import TextGenerationDecodeInputMode, TextGenerationOutputKind, TextGenerationPipelinePhase
from .tokenizer import Tokenizer

OutputBinding = tuple[TextGenerationPipelinePhase, Stage, int, Tensor]
"""Phase, stage and output that goes to a tensor of the caller."""


@dataclass(frozen=True, slots=True)
class TextGenerationPhaseBinding:
    """The endpoints of one phase."""

    pipeline: Pipeline | None = None
    token_input_stage: Stage | None = None
    token_input_index: int | None = None
    output_stage: Stage | None = None
    output_index: int | None = None
    output_kind: TextGenerationOutputKind | None = None


NOTHING = TextGenerationPhaseBinding()


@dataclass(frozen=True, slots=True)
class CompositionParts:
    """The parts of a text generator; None for what was not given."""

    runtime: Runtime
    unified: TextGenerationPhaseBinding = NOTHING
    prefill: TextGenerationPhaseBinding = NOTHING
    decode: TextGenerationPhaseBinding = NOTHING
    state_owner: Stage | None = None
    token_target: ExecutionTarget | None = None
    tokenizer: Tokenizer | None = None
    decode_input_mode: TextGenerationDecodeInputMode | None = None
    logical_capacity: int | None = None
    output_bindings: tuple[OutputBinding, ...] = ()
    drafts: DraftSettings = NO_DRAFTS
    draft: TextGenerationPhaseBinding = NOTHING
    """The second pipeline that drafts tokens."""
    draft_state_owner: Stage | None = None

    @property
    def has_two_pipelines(self) -> bool:
        """Whether anything was given that only two pipelines have."""
        is_split = self.prefill is not NOTHING or self.decode is not NOTHING
        return is_split or self.decode_input_mode is not None or self.logical_capacity is not None
