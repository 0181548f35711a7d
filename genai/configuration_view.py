"""What a `TextGenerationConfiguration` tells of its parts, before and after it was consumed (genai §5.1)."""

from __future__ import annotations

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, WinMLError

from .checks import enum_value
from .codes import E_NOT_VALID_STATE
from .composition_parts import CompositionParts, OutputBinding, TextGenerationPhaseBinding
from .results import (
    TextGenerationConfigurationMode,
    TextGenerationDecodeInputMode,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
)
from .tokenizer import Tokenizer

Phase = TextGenerationPipelinePhase
PHASE_FIELDS = {Phase.UNIFIED: "unified", Phase.PREFILL: "prefill", Phase.DECODE: "decode"}
"""Where the endpoints of a phase are."""


class ConfigurationView:
    """The getters of a configuration."""

    def __init__(self, parts: CompositionParts) -> None:
        self._parts = parts

    @property
    def runtime(self) -> Runtime:
        """The Runtime whose objects are composed."""
        return self._parts.runtime

    @property
    def mode(self) -> TextGenerationConfigurationMode:
        """PREFILL_DECODE once anything was set that only two pipelines have, UNIFIED before."""
        modes = TextGenerationConfigurationMode
        return modes.PREFILL_DECODE if self._parts.has_two_pipelines else modes.UNIFIED

    def phase(self, phase: TextGenerationPipelinePhase) -> TextGenerationPhaseBinding:
        """The endpoints of a phase; 0x8007139F for one of the other mode."""
        wanted = enum_value(phase, Phase, "phase")
        if (wanted is Phase.UNIFIED) is self._parts.has_two_pipelines:
            raise WinMLError(E_NOT_VALID_STATE, "TextGenerationConfiguration", f"the configuration is {self.mode.name}")
        binding: TextGenerationPhaseBinding = getattr(self._parts, PHASE_FIELDS[wanted])
        return binding

    @property
    def _main(self) -> TextGenerationPhaseBinding:
        """The endpoints of the phase that makes most tokens."""
        return self._parts.decode if self._parts.has_two_pipelines else self._parts.unified

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline, or None; with two, that of the DECODE phase, as in the next five."""
        return self._main.pipeline

    @property
    def token_input_stage(self) -> Stage | None:
        """The stage that takes the token ids, or None."""
        return self._main.token_input_stage

    @property
    def token_input_index(self) -> int | None:
        """The input of that stage, or None."""
        return self._main.token_input_index

    @property
    def output_stage(self) -> Stage | None:
        """The stage that gives logits or tokens, or None."""
        return self._main.output_stage

    @property
    def output_index(self) -> int | None:
        """The output of that stage, or None."""
        return self._main.output_index

    @property
    def output_kind(self) -> TextGenerationOutputKind | None:
        """What the output holds, or None."""
        return self._main.output_kind

    @property
    def state_owner_stage(self) -> Stage | None:
        """The stage that keeps the sequence state, or None."""
        return self._parts.state_owner

    @property
    def token_target(self) -> ExecutionTarget | None:
        """The target on which token tensors are made, or None."""
        return self._parts.token_target

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, or None where it is the business of the task."""
        return self._parts.tokenizer

    @property
    def decode_input_mode(self) -> TextGenerationDecodeInputMode | None:
        """How tokens reach the decoding pipeline; None in UNIFIED mode."""
        return self._parts.decode_input_mode

    @property
    def logical_capacity(self) -> int | None:
        """The capacity of a two-pipeline composition; None in UNIFIED mode, where the state owner has one."""
        return self._parts.logical_capacity

    @property
    def output_bindings(self) -> tuple[OutputBinding, ...]:
        """Outputs bound by the caller as (phase, stage, index, tensor), PREFILL ones first; () in UNIFIED mode."""
        if not self._parts.has_two_pipelines:
            return ()
        return tuple(sorted(self._parts.output_bindings, key=lambda binding: binding[0]))
