"""How pipelines, stages and a tokenizer make a text generator (genai §5.1): the single-pipeline composition."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, WinMLError

from .checks import enum_value, index_value, instance_of
from .codes import E_INVALIDARG, E_NOT_VALID_STATE, NOT_SUPPORTED
from .feed import TokenFeed
from .results import TextGenerationConfigurationMode, TextGenerationOutputKind, TextGenerationPipelinePhase
from .tokenizer import Tokenizer

Phase = TextGenerationPipelinePhase
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextGenerationPhaseBinding:
    """The endpoints of one phase."""

    pipeline: Pipeline | None = None
    token_input_stage: Stage | None = None
    token_input_index: int | None = None
    output_stage: Stage | None = None
    output_index: int | None = None
    output_kind: TextGenerationOutputKind | None = None


class TextGenerationConfiguration:
    """The parts of a text generator, filled in by setters and consumed by `TextGenerationTask.create_session`.

    Setters and getters follow the phases; this version composes one pipeline that serves prompt and decoding (UNIFIED).
    A failed `validate` leaves everything editable. After consumption setters are 0x8007139F and getters go on working.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._binding = TextGenerationPhaseBinding()
        self._state_owner: Stage | None = None
        self._token_target: ExecutionTarget | None = None
        self._tokenizer: Tokenizer | None = None
        self._is_consumed = False

    # --- setters ------------------------------------------------------------------------------------------------------

    def _edit(self, phase: Any = Phase.UNIFIED) -> None:
        unified = enum_value(phase, Phase, "phase") is Phase.UNIFIED
        self._check_unconsumed()
        if not unified:
            raise WinMLError(NOT_SUPPORTED, "TextGenerationConfiguration", "only the UNIFIED phase can be composed")

    def _check_unconsumed(self) -> None:
        if self._is_consumed:
            raise WinMLError(
                E_NOT_VALID_STATE, "TextGenerationConfiguration", "a session has consumed this configuration"
            )

    def set_pipeline(self, phase: TextGenerationPipelinePhase, pipeline: Pipeline) -> None:
        """Set the built pipeline of a phase."""
        self._edit(phase)
        self._binding = replace(self._binding, pipeline=instance_of(pipeline, Pipeline, "pipeline"))

    def set_token_input(self, phase: TextGenerationPipelinePhase, stage: Stage, input_index: int) -> None:
        """Set where token ids go in: an integer input of rank 1 or 2."""
        self._edit(phase)
        self._binding = replace(
            self._binding,
            token_input_stage=instance_of(stage, Stage, "stage"),
            token_input_index=index_value(input_index, "input_index"),
        )

    def set_output(
        self, phase: TextGenerationPipelinePhase, stage: Stage, output_index: int, kind: TextGenerationOutputKind
    ) -> None:
        """Set where logits come out, and their kind (only LOGITS can be composed)."""
        self._edit(phase)
        self._binding = replace(
            self._binding,
            output_stage=instance_of(stage, Stage, "stage"),
            output_index=index_value(output_index, "output_index"),
            output_kind=enum_value(kind, TextGenerationOutputKind, "kind"),
        )

    def set_state_owner_stage(self, stage: Stage) -> None:
        """Set the stage that holds the sequence state: its position and capacity are those of the session."""
        self._edit()
        self._state_owner = instance_of(stage, Stage, "stage")

    def set_token_target(self, target: ExecutionTarget) -> None:
        """Set the target on which token tensors are made."""
        self._edit()
        self._token_target = instance_of(target, ExecutionTarget, "target")

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer; it must be the task's own."""
        self._edit()
        self._tokenizer = instance_of(tokenizer, Tokenizer, "tokenizer")

    def configure_unified(
        self,
        *,
        pipeline: Pipeline,
        token_input_stage: Stage,
        token_input_index: int,
        output_stage: Stage,
        output_index: int,
        output_kind: TextGenerationOutputKind,
        state_owner_stage: Stage,
        token_target: ExecutionTarget,
        tokenizer: Tokenizer | None = None,
    ) -> TextGenerationConfiguration:
        """Set all parts at once and return the configuration itself."""
        self.set_pipeline(Phase.UNIFIED, pipeline)
        self.set_token_input(Phase.UNIFIED, token_input_stage, token_input_index)
        self.set_output(Phase.UNIFIED, output_stage, output_index, output_kind)
        self.set_state_owner_stage(state_owner_stage)
        self.set_token_target(token_target)
        if tokenizer is not None:
            self.set_tokenizer(tokenizer)
        return self

    # --- getters ------------------------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The Runtime whose objects are composed."""
        return self._runtime

    @property
    def mode(self) -> TextGenerationConfigurationMode:
        """UNIFIED."""
        return TextGenerationConfigurationMode.UNIFIED

    def phase(self, phase: TextGenerationPipelinePhase) -> TextGenerationPhaseBinding:
        """The endpoints of a phase."""
        if enum_value(phase, Phase, "phase") is not Phase.UNIFIED:
            raise WinMLError(E_NOT_VALID_STATE, "TextGenerationConfiguration", "the configuration is UNIFIED")
        return self._binding

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline, or None."""
        return self._binding.pipeline

    @property
    def token_input_stage(self) -> Stage | None:
        """The stage that takes the token ids, or None."""
        return self._binding.token_input_stage

    @property
    def token_input_index(self) -> int | None:
        """The input of that stage, or None."""
        return self._binding.token_input_index

    @property
    def output_stage(self) -> Stage | None:
        """The stage that gives the logits, or None."""
        return self._binding.output_stage

    @property
    def output_index(self) -> int | None:
        """The output of that stage, or None."""
        return self._binding.output_index

    @property
    def output_kind(self) -> TextGenerationOutputKind | None:
        """What the output holds, or None."""
        return self._binding.output_kind

    @property
    def state_owner_stage(self) -> Stage | None:
        """The stage that keeps the sequence state, or None."""
        return self._state_owner

    @property
    def token_target(self) -> ExecutionTarget | None:
        """The target on which token tensors are made, or None."""
        return self._token_target

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, or None where it is the business of the task."""
        return self._tokenizer

    @property
    def decode_input_mode(self) -> None:
        """How tokens reach the decoding pipeline; None in UNIFIED mode."""
        return None

    @property
    def logical_capacity(self) -> None:
        """The capacity of a two-pipeline composition; None in UNIFIED mode, where the state owner has one."""
        return None

    @property
    def output_bindings(self) -> tuple[()]:
        """Outputs bound by the caller; none in UNIFIED mode."""
        return ()

    # --- validation ---------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check that the parts are complete and fit: 0x8007139F for a missing one, 0x80070057 for one that does not
        fit, 0x80070032 for a state owner without sequence state. The configuration stays editable either way.
        """
        self._compose(self._tokenizer)

    def _compose(self, tokenizer: Tokenizer | None) -> tuple[Pipeline, Stage, TokenFeed]:
        """Check everything, with `tokenizer` in mind; return the pipeline, the state owner and a feed.

        They are wrappers of their own, so that a session goes on working when the caller closes his.
        """
        self._check_unconsumed()
        binding = self._binding
        pipeline = _required(binding.pipeline, "a pipeline")
        token_stage = _required(binding.token_input_stage, "a token input")
        token_index = _required(binding.token_input_index, "a token input")
        output_stage = _required(binding.output_stage, "an output")
        output_index = _required(binding.output_index, "an output")
        owner = _required(self._state_owner, "a state owner stage")
        target = _required(self._token_target, "a token target")
        if not self._runtime.owns(pipeline) or not self._runtime.owns(target):
            raise WinMLError(
                E_INVALIDARG, "TextGenerationConfiguration", "the pipeline or the token target is of another Runtime"
            )
        for stage, role in ((token_stage, "token input"), (output_stage, "output"), (owner, "state owner")):
            if not pipeline.owns(stage):
                raise WinMLError(
                    E_INVALIDARG, "TextGenerationConfiguration", f"the {role} stage is not in the pipeline"
                )
        if binding.output_kind is not TextGenerationOutputKind.LOGITS:
            raise WinMLError(NOT_SUPPORTED, "TextGenerationConfiguration", "only LOGITS outputs can be composed")
        owner.sequence_capacity  # noqa: B018  (NotSupportedError on a stage without sequence state)
        token_input, output = (copy(token_stage), token_index), (copy(output_stage), output_index)
        feed = TokenFeed(copy(self._runtime), copy(pipeline), token_input, output, copy(target))
        if tokenizer is not None and feed.vocabulary_size and feed.vocabulary_size < tokenizer.token_count:
            raise WinMLError(
                E_INVALIDARG,
                "TextGenerationConfiguration",
                f"the logits have {feed.vocabulary_size} entries, the tokenizer {tokenizer.token_count} tokens",
            )
        return copy(pipeline), copy(owner), feed

    def _mark_consumed(self) -> None:
        """Close the configuration for edits: a session was made of it."""
        self._is_consumed = True


def _required(value: T | None, what: str) -> T:
    if value is None:
        raise WinMLError(E_NOT_VALID_STATE, "TextGenerationConfiguration", f"{what} is missing")
    return value
