"""How pipelines, stages and a tokenizer make a text generator (genai §5.1): what a program fills in.

Only setters; the getters are in `configuration_view.py`, and `composing.py` checks the parts and puts them together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, Tensor, WinMLError

from .checks import enum_value, index_value, instance_of
from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .composing import compose
from .composition import Composition
from .composition_parts import CompositionParts, OutputBinding, TextGenerationPhaseBinding
from .configuration_view import PHASE_FIELDS, ConfigurationView
from .draft_settings import DEFAULT_DRAFT_TOKENS, NO_DRAFTS, DraftSettings
from .results import TextGenerationDecodeInputMode, TextGenerationOutputKind, TextGenerationPipelinePhase
from .speculative_statistics import TextGenerationSpeculativeMethod
from .tokenizer import Tokenizer

Phase = TextGenerationPipelinePhase


class TextGenerationConfiguration(ConfigurationView, Closing):
    """The parts of a text generator, filled in by setters and consumed by `TextGenerationTask.create_session`.

    There are two modes: UNIFIED, where one pipeline serves prompt and decoding and keeps the state, and PREFILL_DECODE,
    where each has a pipeline of its own and the state is the caller's. What was given decides: parts of the PREFILL or
    DECODE phase, a decode input mode or a logical capacity make it PREFILL_DECODE.

    `validate` may be called at any time, and `create_session` validates again: what was set since counts. A failed
    validation leaves everything editable. After consumption setters are 0x8007139F and getters go on working, as they
    do after `close()`.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(CompositionParts(runtime))
        self._is_consumed = self._is_closed = False

    def __repr__(self) -> str:
        state = " (closed)" if self._is_closed else ", consumed" if self._is_consumed else ""
        return f"<TextGenerationConfiguration {self.mode.name}{state}>"

    # --- setters ------------------------------------------------------------------------------------------------------

    def _change(self, **parts: Any) -> None:
        self._check_unconsumed()
        self._parts = replace(self._parts, **parts)

    def _change_phase(self, phase: Any, **endpoints: Any) -> None:
        name = PHASE_FIELDS[enum_value(phase, Phase, "phase")]
        self._change(**{name: replace(getattr(self._parts, name), **endpoints)})

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("TextGenerationConfiguration is closed")

    def _check_unconsumed(self) -> None:
        self._check_open()
        if self._is_consumed:
            raise WinMLError(
                E_NOT_VALID_STATE, "TextGenerationConfiguration", "a session has consumed this configuration"
            )

    def set_pipeline(self, phase: TextGenerationPipelinePhase, pipeline: Pipeline) -> None:
        """Set the built pipeline of a phase."""
        self._change_phase(phase, pipeline=instance_of(pipeline, Pipeline, "pipeline"))

    def set_token_input(self, phase: TextGenerationPipelinePhase, stage: Stage, input_index: int) -> None:
        """Set where token ids go in: INT32 or INT64 of shape (n,) or (1, n)."""
        self._change_phase(
            phase,
            token_input_stage=instance_of(stage, Stage, "stage"),
            token_input_index=index_value(input_index, "input_index"),
        )

    def set_output(
        self, phase: TextGenerationPipelinePhase, stage: Stage, output_index: int, kind: TextGenerationOutputKind
    ) -> None:
        """Set what the next token is taken from: LOGITS, of which the last row counts, or the SAMPLED_TOKEN that the
        pipeline has chosen itself (INT32 or INT64; the last one counts).
        """
        self._change_phase(
            phase,
            output_stage=instance_of(stage, Stage, "stage"),
            output_index=index_value(output_index, "output_index"),
            output_kind=enum_value(kind, TextGenerationOutputKind, "kind"),
        )

    def set_state_owner_stage(self, stage: Stage) -> None:
        """Set the stage that holds the sequence state. In UNIFIED mode its position and capacity are those of the
        session.
        """
        self._change(state_owner=instance_of(stage, Stage, "stage"))

    def set_token_target(self, target: ExecutionTarget) -> None:
        """Set the target on which token tensors are made."""
        self._change(token_target=instance_of(target, ExecutionTarget, "target"))

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer; it must be the task's own."""
        self._change(tokenizer=instance_of(tokenizer, Tokenizer, "tokenizer"))

    def set_decode_input_mode(self, mode: TextGenerationDecodeInputMode) -> None:
        """Set how tokens reach the DECODE pipeline."""
        self._change(decode_input_mode=enum_value(mode, TextGenerationDecodeInputMode, "mode"))

    def set_logical_capacity(self, capacity: int) -> None:
        """Set the most tokens of prompt and output together, where the state is the caller's: in two pipelines."""
        self._change(logical_capacity=index_value(capacity, "capacity"))

    def add_output_binding(
        self, phase: TextGenerationPipelinePhase, stage: Stage, output_index: int, tensor: Tensor
    ) -> None:
        """Have an output of a PREFILL or DECODE stage written to `tensor`, from `create_session` on.

        That may be state, or what the token is taken from: its shape must then be that of the run, for PREFILL logits
        that of the whole prompt. The stage keeps the memory, so the tensor may be closed.
        """
        binding: OutputBinding = (
            enum_value(phase, Phase, "phase"),
            instance_of(stage, Stage, "stage"),
            index_value(output_index, "output_index"),
            instance_of(tensor, Tensor, "tensor"),
        )
        self._change(output_bindings=(*self._parts.output_bindings, binding))

    def set_speculative_decoding(self, method: TextGenerationSpeculativeMethod, draft_token_count: int = 0) -> None:
        """Have tokens drafted by `method`, at most `draft_token_count` at a time (0: 3), and verified together.

        That needs UNIFIED mode, one stage that takes the ids as its input 0, keeps the state and gives logits for every
        token, and state that can be taken back; otherwise `create_session` is NotSupportedError 0x80070032. More than
        the stage can verify at a time (on llama.cpp, and with converted models, 16) are not drafted, and fewer
        wherever more would not pay.
        """
        wanted = enum_value(method, TextGenerationSpeculativeMethod, "method")
        count = index_value(draft_token_count, "draft_token_count")
        is_off = wanted is TextGenerationSpeculativeMethod.NONE
        self._change(drafts=NO_DRAFTS if is_off else DraftSettings(wanted, count or DEFAULT_DRAFT_TOKENS))

    def set_draft_pipeline(
        self,
        *,
        pipeline: Pipeline,
        token_input_stage: Stage,
        token_input_index: int,
        output_stage: Stage,
        output_index: int,
        state_owner_stage: Stage,
    ) -> None:
        """Set the second pipeline of DRAFT_MODEL: it takes ids of the same vocabulary and gives logits. It may be of
        another engine; the session is its only user.
        """
        kind = TextGenerationOutputKind.LOGITS
        draft = TextGenerationPhaseBinding(
            pipeline, token_input_stage, token_input_index, output_stage, output_index, kind
        )
        self._change(
            draft=_checked(draft, ""), draft_state_owner=instance_of(state_owner_stage, Stage, "state_owner_stage")
        )

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
        """Set all parts of UNIFIED mode, drop those of the other one, and return the configuration itself."""
        unified = TextGenerationPhaseBinding(
            pipeline, token_input_stage, token_input_index, output_stage, output_index, output_kind
        )
        self._configure(state_owner_stage, token_target, tokenizer, unified=_checked(unified, ""))
        return self

    def configure_prefill_decode(
        self,
        *,
        prefill_pipeline: Pipeline,
        prefill_token_input_stage: Stage,
        prefill_token_input_index: int,
        prefill_output_stage: Stage,
        prefill_output_index: int,
        prefill_output_kind: TextGenerationOutputKind,
        decode_pipeline: Pipeline,
        decode_token_input_stage: Stage,
        decode_token_input_index: int,
        decode_output_stage: Stage,
        decode_output_index: int,
        decode_output_kind: TextGenerationOutputKind,
        state_owner_stage: Stage,
        token_target: ExecutionTarget,
        logical_capacity: int,
        decode_input_mode: TextGenerationDecodeInputMode,
        tokenizer: Tokenizer | None = None,
    ) -> TextGenerationConfiguration:
        """Set all parts of PREFILL_DECODE mode, drop those of the other one, and return the configuration itself."""
        prefill = TextGenerationPhaseBinding(
            prefill_pipeline,
            prefill_token_input_stage,
            prefill_token_input_index,
            prefill_output_stage,
            prefill_output_index,
            prefill_output_kind,
        )
        decode = TextGenerationPhaseBinding(
            decode_pipeline,
            decode_token_input_stage,
            decode_token_input_index,
            decode_output_stage,
            decode_output_index,
            decode_output_kind,
        )
        self._configure(
            state_owner_stage,
            token_target,
            tokenizer,
            prefill=_checked(prefill, "prefill_"),
            decode=_checked(decode, "decode_"),
            logical_capacity=index_value(logical_capacity, "logical_capacity"),
            decode_input_mode=enum_value(decode_input_mode, TextGenerationDecodeInputMode, "decode_input_mode"),
        )
        return self

    def _configure(
        self, state_owner: Stage, token_target: ExecutionTarget, tokenizer: Tokenizer | None, **mode: Any
    ) -> None:
        """Set all parts at once, or nothing; tokenizer, output bindings and drafting of before stay."""
        present = self._parts
        parts = CompositionParts(
            present.runtime,
            state_owner=instance_of(state_owner, Stage, "state_owner_stage"),
            token_target=instance_of(token_target, ExecutionTarget, "token_target"),
            tokenizer=present.tokenizer if tokenizer is None else instance_of(tokenizer, Tokenizer, "tokenizer"),
            output_bindings=present.output_bindings,
            drafts=present.drafts,
            draft=present.draft,
            draft_state_owner=present.draft_state_owner,
            **mode,
        )
        self._check_unconsumed()
        self._parts = parts

    # --- validation ---------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check that the parts are complete and fit: 0x8007139F for a missing one or one of the other mode, 0x80070057
        for one that does not fit, NotSupportedError 0x80070032 for a UNIFIED state owner without sequence state. The
        configuration stays editable either way.
        """
        self._compose(self.tokenizer)

    def _compose(self, tokenizer: Tokenizer | None) -> Composition:
        """Check everything, with `tokenizer` in mind, and put it together for a session."""
        self._check_unconsumed()
        return compose(self._parts, tokenizer)

    def close(self) -> None:
        """End its use; a session that was made of it goes on. Again is fine."""
        self._is_closed = True

    def _mark_consumed(self) -> None:
        """Close the configuration for edits: a session was made of it."""
        self._is_consumed = True


def _checked(binding: TextGenerationPhaseBinding, prefix: str) -> TextGenerationPhaseBinding:
    """Check the types of endpoints; `prefix` begins the names of their arguments."""
    return TextGenerationPhaseBinding(
        instance_of(binding.pipeline, Pipeline, f"{prefix}pipeline"),
        instance_of(binding.token_input_stage, Stage, f"{prefix}token_input_stage"),
        index_value(binding.token_input_index, f"{prefix}token_input_index"),
        instance_of(binding.output_stage, Stage, f"{prefix}output_stage"),
        index_value(binding.output_index, f"{prefix}output_index"),
        enum_value(binding.output_kind, TextGenerationOutputKind, f"{prefix}output_kind"),
    )
