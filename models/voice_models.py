"""Voice-activity models without a voice: graphs with the ports of silero-vad that measure how loud a step is.

The probability of a step is half the loudest of its 576 samples, and half what the step before had: 1 only after two
loud steps. So a test can work out every number, and sees whether the context and the state come through. Not here: the
real model, which is in the catalog.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .onnx_models import FLOAT, INT64, _constant, _model, _port

WINDOW = 576


def loudness_step() -> onnx.ModelProto:
    """`input[?,?], state[2,?,1], sr -> output[?,1], stateN[?,?,?]`: one step a run, as in the file silero_vad.onnx.

    The state holds the last loudness twice. At a rate other than 16000 the probability is -1.
    """
    return _model(
        [
            helper.make_node("Abs", ["input"], ["magnitude"]),
            helper.make_node("ReduceMax", ["magnitude", "last_axis"], ["loudness"], keepdims=1),
            helper.make_node("Slice", ["state", "zero", "one", "zero"], ["before_row"]),
            helper.make_node("Squeeze", ["before_row", "zero"], ["before"]),
            helper.make_node("Add", ["loudness", "before"], ["both"]),
            helper.make_node("Mul", ["both", "half"], ["probability"]),
            helper.make_node("Equal", ["sr", "rate"], ["is_right"]),
            helper.make_node("Where", ["is_right", "probability", "minus_one"], ["output"]),
            helper.make_node("Unsqueeze", ["loudness", "zero"], ["row"]),
            helper.make_node("Concat", ["row", "row"], ["stateN"], axis=0),
        ],
        [_port("input", FLOAT, [None, None]), _port("state", FLOAT, [2, None, 1]), _port("sr", INT64, [])],
        [_port("output", FLOAT, [None, 1]), _port("stateN", FLOAT, [None, None, None])],
        [
            _constant("last_axis", [1], np.int64),
            _constant("zero", [0], np.int64),
            _constant("one", [1], np.int64),
            _constant("half", 0.5, np.float32),
            _constant("rate", 16000, np.int64),
            _constant("minus_one", -1, np.float32),
        ],
    )


def loudness_sequence() -> onnx.ModelProto:
    """`input[steps,576], h[1,1,1], c[1,1,1] -> speech_probs[steps], hn[1,1,1], cn[1,1,1]`: many steps a run.

    `h` holds the last loudness, `c` the number of steps so far.
    """
    return _model(
        [
            helper.make_node("Abs", ["input"], ["magnitude"]),
            helper.make_node("ReduceMax", ["magnitude", "last_axis"], ["loudness"], keepdims=0),
            helper.make_node("Reshape", ["h", "flat"], ["first"]),
            helper.make_node("Concat", ["first", "loudness"], ["every"], axis=0),
            helper.make_node("Slice", ["every", "zero", "minus_one"], ["before"]),
            helper.make_node("Add", ["loudness", "before"], ["both"]),
            helper.make_node("Mul", ["both", "half"], ["speech_probs"]),
            helper.make_node("Slice", ["every", "minus_one", "far"], ["last"]),
            helper.make_node("Reshape", ["last", "cube"], ["hn"]),
            helper.make_node("Shape", ["input"], ["steps"], start=0, end=1),
            helper.make_node("Cast", ["steps"], ["count"], to=FLOAT),
            helper.make_node("Add", ["c", "count"], ["cn"]),
        ],
        [_port("input", FLOAT, ["steps", WINDOW]), _port("h", FLOAT, [1, 1, 1]), _port("c", FLOAT, [1, 1, 1])],
        [_port("speech_probs", FLOAT, ["steps"]), _port("hn", FLOAT, [1, 1, 1]), _port("cn", FLOAT, [1, 1, 1])],
        [
            _constant("last_axis", [1], np.int64),
            _constant("flat", [1], np.int64),
            _constant("cube", [1, 1, 1], np.int64),
            _constant("zero", [0], np.int64),
            _constant("minus_one", [-1], np.int64),
            _constant("far", [1 << 40], np.int64),
            _constant("half", 0.5, np.float32),
        ],
    )
