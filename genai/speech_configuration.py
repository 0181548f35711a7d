"""How pipelines and stages make a speech recognizer (genai §10): what a program fills in, and every check of it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import NoReturn

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, WinMLError

from .checks import instance_of
from .codes import E_INVALIDARG, E_NOT_VALID_STATE
from .factory import Factory
from .tokenizer import Tokenizer
from .whisper_decoding import WhisperDecoder
from .whisper_stages import BuiltStage, WhisperParts, WhisperStages
from .whisper_tokens import find_tokens

_WHAT = "AutomaticSpeechRecognitionConfiguration"


@dataclass(frozen=True, slots=True)
class WhisperAutomaticSpeechRecognitionBindings:
    """The parts of a Whisper model; None for what was not given."""

    encoder_pipeline: Pipeline | None = None
    encoder_stage: Stage | None = None
    decoder_pipeline: Pipeline | None = None
    decoder_stage: Stage | None = None
    tensor_target: ExecutionTarget | None = None
    preprocessing_pipeline: Pipeline | None = None
    preprocessing_stage: Stage | None = None
    force_encoder_output_copy: bool = False

    def fresh(self) -> WhisperAutomaticSpeechRecognitionBindings:
        """Return the same parts in wrappers of their own."""
        wrappers = {field.name: copy(getattr(self, field.name)) for field in fields(self)}
        return replace(self, **wrappers)


class AutomaticSpeechRecognitionConfiguration(Factory):
    """The parts of a speech recognizer, filled in by `configure_whisper` and consumed by `create_session`.

    Make it with `AutomaticSpeechRecognitionTask.create_configuration`. A failed call leaves everything as it was. After
    consumption setters are 0x8007139F and getters go on working. Sessions keep what they need of it when it is closed.
    """

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer, owner: object) -> None:
        self._runtime = runtime
        self._tokenizer = tokenizer
        self._owner = owner
        self._bindings: WhisperAutomaticSpeechRecognitionBindings | None = None
        self._is_consumed = False

    def __repr__(self) -> str:
        if self._is_closed:
            return super().__repr__()
        kind = "empty" if self._bindings is None else "Whisper"
        return f"<{_WHAT} {kind}{', consumed' if self._is_consumed else ''}>"

    @property
    def runtime(self) -> Runtime:
        """The Runtime whose objects are composed."""
        self._check_open()
        return self._runtime

    def configure_whisper(
        self,
        *,
        encoder_pipeline: Pipeline,
        encoder_stage: Stage,
        decoder_pipeline: Pipeline,
        decoder_stage: Stage,
        tensor_target: ExecutionTarget,
        preprocessing_pipeline: Pipeline | None = None,
        preprocessing_stage: Stage | None = None,
        force_encoder_output_copy: bool = False,
    ) -> AutomaticSpeechRecognitionConfiguration:
        """Set all parts of a Whisper model at once, in place of those before; returns the configuration.

        encoder, decoder: ONNX stages whose inputs and outputs have the names that exporters use: `input_features` to
            `last_hidden_state` or `present*`, and `input_ids` with `encoder_hidden_states` or `past*` to `logits`. The
            decoder's own cache is declared by `Stage.add_state_tensor_pair` before `build`.
        tensor_target: where the tensors of features and tokens are made.
        preprocessing: a stage that makes features of 480,000 samples, in place of the built-in computation; both or
            none.
        force_encoder_output_copy: give the decoder copies of what the encoder gives, not the same memory.

        TypeError for a part of another class, ValueError for half of the preprocessing pair. What the parts are like is
        looked at by `validate`.
        """
        self._check_open()
        if self._is_consumed:
            raise WinMLError(E_NOT_VALID_STATE, _WHAT, "a session has consumed this configuration; make a new one")
        if (preprocessing_pipeline is None) is not (preprocessing_stage is None):
            raise ValueError("preprocessing_pipeline and preprocessing_stage go together: give both or none")
        optional_pipeline, optional_stage = preprocessing_pipeline, preprocessing_stage
        given = WhisperAutomaticSpeechRecognitionBindings(
            instance_of(encoder_pipeline, Pipeline, "encoder_pipeline"),
            instance_of(encoder_stage, Stage, "encoder_stage"),
            instance_of(decoder_pipeline, Pipeline, "decoder_pipeline"),
            instance_of(decoder_stage, Stage, "decoder_stage"),
            instance_of(tensor_target, ExecutionTarget, "tensor_target"),
            None if optional_pipeline is None else instance_of(optional_pipeline, Pipeline, "preprocessing_pipeline"),
            None if optional_stage is None else instance_of(optional_stage, Stage, "preprocessing_stage"),
            instance_of(force_encoder_output_copy, bool, "force_encoder_output_copy"),
        )
        self._bindings = given.fresh()
        return self

    @property
    def whisper_bindings(self) -> WhisperAutomaticSpeechRecognitionBindings:
        """The parts, in new wrappers each time; all None before `configure_whisper`."""
        self._check_open()
        return WhisperAutomaticSpeechRecognitionBindings() if self._bindings is None else self._bindings.fresh()

    def validate(self) -> None:
        """Check that the parts are complete, fit each other and the tokenizer of the task.

        WinMLError 0x8007139F where nothing is configured, 0x80070057 for parts that do not fit, 0x8007000D for a
        tokenizer of another kind of model, NotSupportedError 0x80070032 for stages of another engine than ONNX Runtime.
        """
        self._check_open()
        self._compose().close()

    def _compose(self) -> WhisperDecoder:
        """Check the parts and put them together, in wrappers that the decoder closes."""
        if self._is_consumed:
            raise WinMLError(E_NOT_VALID_STATE, _WHAT, "a session has consumed this configuration; make a new one")
        if self._bindings is None:
            raise WinMLError(E_NOT_VALID_STATE, _WHAT, "nothing is configured: call configure_whisper")
        parts = _parts(self._runtime, self._bindings)
        tokens = find_tokens(self._tokenizer)
        stages = WhisperStages(parts, filler=tokens.end)
        size, needed = stages.vocabulary_size, max(self._tokenizer.token_count, tokens.timestamp_begin)
        if size and size < needed:
            _wrong(f"the logits have {size} entries, the tokenizer {needed} tokens")
        return WhisperDecoder(stages, tokens)

    def _mark_consumed(self) -> None:
        self._is_consumed = True


def _parts(runtime: Runtime, bindings: WhisperAutomaticSpeechRecognitionBindings) -> WhisperParts:
    """Check whose the parts are; return them in wrappers of their own."""
    given = bindings.fresh()
    target = given.tensor_target
    assert target is not None
    if not runtime.owns(target):
        _wrong("the tensor target is of another Runtime")
    encoder = _built(runtime, given.encoder_pipeline, given.encoder_stage, "encoder")
    decoder = _built(runtime, given.decoder_pipeline, given.decoder_stage, "decoder")
    preprocessing = None
    if given.preprocessing_pipeline is not None:
        preprocessing = _built(runtime, given.preprocessing_pipeline, given.preprocessing_stage, "preprocessing")
    pipelines = [part.pipeline.underlying_object for part in (encoder, decoder, preprocessing) if part is not None]
    if len({id(pipeline) for pipeline in pipelines}) < len(pipelines):
        _wrong("encoder, decoder and preprocessing need a pipeline each: they run at different times")
    return WhisperParts(copy(runtime), encoder, decoder, target, preprocessing, given.force_encoder_output_copy)


def _built(runtime: Runtime, pipeline: Pipeline | None, stage: Stage | None, role: str) -> BuiltStage:
    assert pipeline is not None and stage is not None
    if not runtime.owns(pipeline):
        _wrong(f"the {role} pipeline is of another Runtime")
    if not pipeline.owns(stage):
        _wrong(f"the {role} stage is not in the {role} pipeline")
    return BuiltStage(pipeline, stage)


def _wrong(text: str) -> NoReturn:
    raise WinMLError(E_INVALIDARG, _WHAT, text)
