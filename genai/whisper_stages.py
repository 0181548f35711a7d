"""The two stages of a Whisper model, wired: sound features go in, rows of logits come out (genai §10).

The encoder runs once for a window of sound. What it gives, hidden states or the keys and values of cross-attention, is
bound to the decoder as it is, without a copy. The decoder keeps its own keys and values as state pairs of its stage;
one without a cache is given all tokens each time.

Which port is which is told by the names that exporters use: `input_features`, `last_hidden_state`,
`encoder_hidden_states`, `input_ids`, `logits`, and `past*` with the `present*` that belongs to it. Not here: running
the decoder (`whisper_feed.py`), what is said (`whisper_decoding.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from winml_lite import ExecutionTarget, Model, Pipeline, Runtime, Stage, TensorDataType, WinMLError

from .codes import E_INVALIDARG
from .endpoints import FLOATS, FREE_DIMENSION, INTEGERS, NUMPY, Endpoints, TensorMaker
from .feed import TokenFeed
from .log_mel import FRAME_COUNT, SAMPLE_COUNT
from .model_folder import present_name
from .whisper_feed import CachedDecoderFeed, DecoderFeed, WholeDecoderFeed

Features = npt.NDArray[Any]
_WHAT = "speech recognition"


@dataclass(frozen=True, slots=True)
class BuiltStage:
    """A stage and the pipeline it is in."""

    pipeline: Pipeline
    stage: Stage


@dataclass(frozen=True, slots=True)
class WhisperParts:
    """What a Whisper model is composed of."""

    runtime: Runtime
    encoder: BuiltStage
    decoder: BuiltStage
    target: ExecutionTarget
    preprocessing: BuiltStage | None = None
    copies: bool = False
    """Whether the decoder gets copies of what the encoder gives."""


class WhisperStages:
    """Encoder and decoder of one Whisper model. It closes the wrappers it is given.

    `mel_count` is the number of rows of the features, `vocabulary_size` the length of a row of logits, 0 where only a
    run can tell. `filler` stands behind the tokens of a decoder that was built for a number of them.

    WinMLError 0x80070057 for stages that are no such model, NotSupportedError 0x80070032 for stages of another engine
    than ONNX Runtime.
    """

    def __init__(self, parts: WhisperParts, filler: int) -> None:
        self._parts = parts
        tensors = TensorMaker(parts.runtime, parts.target)
        encoder, decoder = _Ports(parts.encoder), _Ports(parts.decoder)
        self._features_index = encoder.input_at("input_features", "audio_features")
        data_type, self.mel_count = _features_type(encoder, self._features_index)
        self._features = np.zeros((1, self.mel_count, FRAME_COUNT), NUMPY[data_type])
        self._features_tensor = tensors.over(self._features, data_type, self._features.shape)
        self._links = _links(encoder, decoder)
        self._sound: _SoundInput | None = None
        if parts.preprocessing is not None:
            self._sound = _SoundInput(parts.preprocessing, tensors, (data_type, self.mel_count))
        self.decoder: DecoderFeed = _decoder_feed(parts, decoder, tensors, filler)

    @property
    def vocabulary_size(self) -> int:
        return self.decoder.vocabulary_size

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, which have no other user while a session drives them."""
        parts = self._parts
        return tuple(
            built.pipeline for built in (parts.preprocessing, parts.encoder, parts.decoder) if built is not None
        )

    @property
    def preprocesses(self) -> bool:
        """Whether a stage of the caller's makes the features: then `encode_samples` is there."""
        return self._sound is not None

    def encode(self, features: Features) -> None:
        """Hear features, numbers of shape (1, mel_count, 3000). The decoder starts over."""
        self._features[...] = features
        self._parts.encoder.stage.bind_input(self._features_index, self._features_tensor)
        self._hear()

    def encode_samples(self, samples: npt.NDArray[np.float32]) -> None:
        """Hear at most 480,000 samples by the preprocessing stage. The decoder starts over."""
        assert self._sound is not None
        self._sound.run(samples, self._parts.encoder.stage, self._features_index)
        self._hear()

    def _hear(self) -> None:
        """Run the encoder, and bind what it gives to the decoder."""
        encoder, decoder = self._parts.encoder, self._parts.decoder.stage
        for output, target in self._links:
            decoder.clear_input(target)  # or the window before would take up memory meanwhile
            encoder.stage.request_output(output)
        encoder.pipeline.run()
        for output, target in self._links:
            with encoder.stage.output(output) as heard:
                if self._parts.copies:
                    with self._parts.runtime.tensor_from_numpy(heard.to_numpy(), target=self._parts.target) as copied:
                        decoder.bind_input(target, copied)
                else:
                    decoder.bind_input(target, heard)
        self.decoder.restart()

    def reset(self) -> None:
        """Reset the execution state of all pipelines; inputs stay bound."""
        for pipeline in self.pipelines:
            pipeline.reset()

    def abort(self) -> None:
        """Ask a run on another thread to stop early; it then fails with 0x800704C7."""
        for pipeline in self.pipelines:
            pipeline.cancel_run()

    def release_threads(self) -> None:
        """Let the next run come from another thread at no cost."""
        for pipeline in self.pipelines:
            pipeline.release_threads()

    def close(self) -> None:
        """Give up the hold on pipelines and stages."""
        self.decoder.close()
        for built in (self._parts.preprocessing, self._parts.encoder, self._parts.decoder):
            if built is not None:
                built.stage.close()
                built.pipeline.close()


def declare_whisper_state(model: Model, stage: Stage) -> None:
    """Declare the cache of a decoder stage before `build`: each `past*` input with the `present*` output that follows.

    model: what the stage was made of. A `past*` without such an output is cross-attention, which the encoder gives.
    """
    schema, names = model.schema(), model.ort_schema()
    outputs = {names.output_name(index): index for index in range(schema.output_count)}
    for index in range(schema.input_count):
        name = names.input_name(index)
        present = present_name(name, outputs) if name.startswith("past") else None
        if present is not None:
            stage.add_state_tensor_pair(index, outputs[present])


class _Ports:
    """Inputs and outputs of a built stage by name."""

    def __init__(self, built: BuiltStage) -> None:
        self.stage, self.pipeline = built.stage, built.pipeline
        bindings, schema = built.stage.ort_bindings(), built.stage.schema()
        self.inputs, self.outputs = bindings.input_names, bindings.output_names
        self.input_desc, self.output_desc = schema.input_desc, schema.output_desc
        self.state = {past for past, _ in built.stage.state_tensor_pairs}

    def input_at(self, *names: str) -> int:
        """The position of the first of these names that is there, else the first input."""
        return next((self.inputs.index(name) for name in names if name in self.inputs), 0)

    def output_at(self, *names: str) -> int:
        """The position of the first of these names that is there, else the first output."""
        return next((self.outputs.index(name) for name in names if name in self.outputs), 0)


def _features_type(encoder: _Ports, index: int) -> tuple[TensorDataType, int]:
    """Check the input that takes features; return its type and the number of mel bands."""
    data_type, shape = encoder.input_desc(index)
    wanted = (1, None, FRAME_COUNT)
    fits = len(shape) == 3 and all(
        extent in (FREE_DIMENSION, other) or other is None for extent, other in zip(shape, wanted, strict=True)
    )
    if data_type not in FLOATS or not fits:
        text = f"the encoder input {encoder.inputs[index]!r} is {data_type.name}{shape}"
        _wrong(f"{text}, which takes no features (1, 80, {FRAME_COUNT})")
    return data_type, 80 if shape[1] == FREE_DIMENSION else shape[1]


def _links(encoder: _Ports, decoder: _Ports) -> tuple[tuple[int, int], ...]:
    """Find the encoder outputs that the decoder takes, as pairs of output and input."""
    outputs = {name: index for index, name in enumerate(encoder.outputs)}
    links = []
    for index, name in enumerate(decoder.inputs):
        if index in decoder.state or decoder.pipeline.is_connected(decoder.stage, index):
            continue
        if name == "use_cache_branch":
            _wrong("the decoder is two graphs in one, which are not taken apart here: use the one without a cache")
        if name == "encoder_hidden_states":
            links.append((encoder.output_at("last_hidden_state", name), index))
        elif name.startswith("past"):
            present = present_name(name, outputs)
            if present is None:
                _wrong(_undeclared(decoder, index, name))
            links.append((outputs[present], index))
    if not links:
        _wrong(f"the decoder takes nothing that the encoder gives: its inputs are {', '.join(decoder.inputs)}")
    for output, target in links:
        given, taken = encoder.output_desc(output), decoder.input_desc(target)
        if given[0] is not taken[0] or len(given[1]) != len(taken[1]):
            text = f"the encoder output {encoder.outputs[output]!r} is {given[0].name} of rank {len(given[1])}"
            _wrong(f"{text}, the decoder input {decoder.inputs[target]!r} {taken[0].name} of rank {len(taken[1])}")
    return tuple(links)


def _undeclared(decoder: _Ports, index: int, name: str) -> str:
    present = present_name(name, {output: place for place, output in enumerate(decoder.outputs)})
    if present is None:
        return f"neither the encoder nor the decoder gives the decoder input {name!r}"
    pair = f"add_state_tensor_pair({index}, {decoder.outputs.index(present)})"
    return f"the decoder input {name!r} is state: call {pair} on its stage before build, and so for the others"


def _decoder_feed(parts: WhisperParts, decoder: _Ports, tensors: TensorMaker, filler: int) -> DecoderFeed:
    token_index, logits_index = decoder.input_at("input_ids", "decoder_input_ids"), decoder.output_at("logits")
    token_type, token_shape = decoder.input_desc(token_index)
    logits_type, logits_shape = decoder.output_desc(logits_index)
    if token_type not in INTEGERS or len(token_shape) != 2:
        _wrong(f"the decoder input {decoder.inputs[token_index]!r} takes no token ids: {token_type.name}{token_shape}")
    if logits_type not in FLOATS or len(logits_shape) not in (2, 3):
        _wrong(f"the decoder output {decoder.outputs[logits_index]!r} is no logits: {logits_type.name}{logits_shape}")
    endpoints = Endpoints(decoder.pipeline, decoder.stage, token_index, decoder.stage, logits_index)
    if not decoder.state:
        return WholeDecoderFeed(tensors, endpoints, filler)
    return CachedDecoderFeed(TokenFeed(parts.runtime, endpoints, parts.target), decoder.stage)


class _SoundInput:
    """The stage that makes features of sound: input 0 takes 480,000 float32 samples, output 0 gives the features."""

    def __init__(self, built: BuiltStage, tensors: TensorMaker, wanted: tuple[TensorDataType, int]) -> None:
        self._built = built
        schema = built.stage.schema()
        data_type, shape = schema.input_desc(0)
        fits = len(shape) in (1, 2) and shape[-1] in (FREE_DIMENSION, SAMPLE_COUNT)
        if data_type is not TensorDataType.FLOAT32 or not fits or shape[0] == 0:
            _wrong(f"input 0 of the preprocessing stage is not FLOAT32 [1, {SAMPLE_COUNT}]: {data_type.name}{shape}")
        given, made = schema.output_desc(0)
        if given is not wanted[0] or (made and (len(made) != 3 or made[1] not in (wanted[1], FREE_DIMENSION))):
            text = f"the encoder takes {wanted[0].name} (1, {wanted[1]}, {FRAME_COUNT})"
            _wrong(f"output 0 of the preprocessing stage is {given.name}{made}, {text}")
        self._samples = np.zeros((1,) * (len(shape) - 1) + (SAMPLE_COUNT,), np.float32)
        self._tensor = tensors.over(self._samples, data_type, self._samples.shape)

    def run(self, samples: npt.NDArray[np.float32], encoder: Stage, features_index: int) -> None:
        """Make the features of samples, with silence behind them, and bind them to the encoder."""
        row = self._samples.reshape(-1)
        row[: samples.size] = samples
        row[samples.size :] = 0
        self._built.stage.bind_input(0, self._tensor)
        self._built.stage.request_output(0)
        self._built.pipeline.run()
        with self._built.stage.output(0) as features:
            encoder.bind_input(features_index, features)


def _wrong(text: str) -> NoReturn:
    raise WinMLError(E_INVALIDARG, _WHAT, text)
