"""Whisper graphs in other forms than the tiny model's: a decoder without a cache, a stage that makes features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from fakes.speech import Recognizer
from genai.log_mel import log_mel
from models.onnx_models import FLOAT, INT64, Shape, _constant, _model, _port
from models.whisper_models import tones, whisper_vocabulary
from winml_lite import Pipeline, Stage

SAYS, SAYS_ELSE = "abcd", "x"
"""What the model says when it hears anything, and when it hears nothing."""
_HEARD = 0.5


def whole_encoder(shape: Shape = (1, 80, 3000)) -> onnx.ModelProto:
    """`input_features[1,80,3000] -> last_hidden_state[1,1500,1]`: the largest feature of every other frame."""
    return _model(
        [
            helper.make_node("ReduceMax", ["input_features", "mel"], ["levels"], keepdims=0),
            helper.make_node("Slice", ["levels", "start", "stop", "time", "step"], ["halved"]),
            helper.make_node("Unsqueeze", ["halved", "last"], ["last_hidden_state"]),
        ],
        [_port("input_features", FLOAT, shape)],
        [_port("last_hidden_state", FLOAT, [shape[0], "rows", 1])],
        [
            _constant(name, [value], np.int64)
            for name, value in (("mel", 1), ("start", 0), ("stop", 3000), ("time", 1), ("step", 2), ("last", 2))
        ],
    )


def whole_decoder(length: int | None) -> onnx.ModelProto:
    """`input_ids[1,N], encoder_hidden_states[1,1500,1] -> logits[1,N,V]`: letter after letter, then the end."""
    vocabulary = whisper_vocabulary()
    size, end = len(vocabulary.tokens), vocabulary.id("<|endoftext|>")
    following = np.full((2, size), end)
    for row, text in zip(following, (SAYS, SAYS_ELSE), strict=True):
        said = [vocabulary.id("<|notimestamps|>"), *vocabulary.ids(letter.encode() for letter in text), end]
        row[said[:-1]] = said[1:]
    tokens = length or "tokens"
    return _model(
        [
            helper.make_node("ReduceMax", ["encoder_hidden_states"], ["loudest"], keepdims=0),
            helper.make_node("Greater", ["loudest", "heard"], ["sounds"]),
            helper.make_node("Where", ["sounds", "following", "else"], ["table"]),
            helper.make_node("Gather", ["table", "input_ids"], ["next"]),
            helper.make_node("OneHot", ["next", "size", "values"], ["logits"], axis=-1),
        ],
        [_port("input_ids", INT64, [1, tokens]), _port("encoder_hidden_states", FLOAT, [1, 1500, 1])],
        [_port("logits", FLOAT, [1, tokens, size])],
        [
            _constant("heard", _HEARD, np.float32),
            _constant("following", following[0], np.int64),
            _constant("else", following[1], np.int64),
            _constant("size", size, np.int64),
            _constant("values", [0, 10], np.float32),
        ],
    )


def two_in_one() -> onnx.ModelProto:
    """The whole decoder with the switch of a graph that holds one with a cache too."""
    model = whole_decoder(None)
    model.graph.input.append(_port("use_cache_branch", TensorProto.BOOL, [1]))
    return model


def in_half(path: Path) -> onnx.ModelProto:
    """A graph whose floating inputs and outputs are float16; it computes as before."""
    model = onnx.load(path)
    graph, before, after = model.graph, [], []
    for port in graph.input:
        if port.type.tensor_type.elem_type == FLOAT:
            before.append(helper.make_node("Cast", [port.name], [f"{port.name}.full"], to=FLOAT))
            port.type.tensor_type.elem_type = TensorProto.FLOAT16
    renamed = {node.input[0]: node.output[0] for node in before}
    for port in graph.output:
        if port.type.tensor_type.elem_type == FLOAT:
            renamed[port.name] = f"{port.name}.full"
            after.append(helper.make_node("Cast", [f"{port.name}.full"], [port.name], to=TensorProto.FLOAT16))
            port.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def hears_sound(word: int) -> onnx.ModelProto:
    """`samples[1,480000] -> features[1,80,3000]`: those of a word where a sample is above zero, else of silence."""
    return _model(
        [
            helper.make_node("ReduceMax", ["samples"], ["loudest"], keepdims=0),
            helper.make_node("Greater", ["loudest", "nothing"], ["sounds"]),
            helper.make_node("Where", ["sounds", "word", "silence"], ["features"]),
        ],
        [_port("samples", FLOAT, [1, 480_000])],
        [_port("features", FLOAT, [1, 80, 3000])],
        [
            _constant("nothing", 0, np.float32),
            _constant("word", log_mel(tones([word])), np.float32),
            _constant("silence", -1, np.float32),
        ],
    )


def without_state(recognizer: Recognizer, path: Path) -> tuple[Pipeline, Stage]:
    """Build a decoder whose cache nobody has declared."""
    builder = recognizer.runtime.create_pipeline_builder()
    stage = builder.add_model_stage(recognizer.runtime.load_model(path), recognizer.target)
    return builder.build(), stage
