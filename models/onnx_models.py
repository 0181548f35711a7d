"""Small ONNX graphs for tests and examples, built on demand and the same on every machine.

Here: `onnx.ModelProto` builders, one function each, and `to_ort`, which makes the ORT format from any of them.
Not here: language models with a tokenizer (`recipes.py`). All weights are arithmetic, none are stored.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]

OPSET = 21
IR_VERSION = 10  # every supported ONNX Runtime reads it
MICROSOFT = "com.microsoft"

FLOAT = TensorProto.FLOAT
INT32 = TensorProto.INT32
INT64 = TensorProto.INT64


def _port(name: str, element_type: int, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def _constant(name: str, value: npt.ArrayLike, dtype: npt.DTypeLike) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def _weights(name: str, *shape: int, phase: float) -> onnx.TensorProto:
    """Values in -0.5..0.5 without a random generator: sines of irregular arguments."""
    count = int(np.prod(shape))
    return _constant(name, (0.5 * np.sin(np.arange(count) * 12.9898 + phase)).reshape(shape), np.float32)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    if any(node.domain == MICROSOFT for node in nodes):
        opsets.append(helper.make_opsetid(MICROSOFT, 1))
    return helper.make_model(graph, producer_name="winml-lite", ir_version=IR_VERSION, opset_imports=opsets)


def add() -> onnx.ModelProto:
    """`C[2] = A[2] + B[2]`, float32."""
    return _model(
        [helper.make_node("Add", ["A", "B"], ["C"])],
        [_port("A", FLOAT, [2]), _port("B", FLOAT, [2])],
        [_port("C", FLOAT, [2])],
    )


def add_rows() -> onnx.ModelProto:
    """`C[N,M] = A[N,M] + B[N,M]`, float32."""
    return _model(
        [helper.make_node("Add", ["A", "B"], ["C"])],
        [_port("A", FLOAT, ["N", "M"]), _port("B", FLOAT, ["N", "M"])],
        [_port("C", FLOAT, ["N", "M"])],
    )


def two() -> onnx.ModelProto:
    """`doubled[2] = X + X` and `negated[2] = -X`, float32."""
    return _model(
        [helper.make_node("Add", ["X", "X"], ["doubled"]), helper.make_node("Neg", ["X"], ["negated"])],
        [_port("X", FLOAT, [2])],
        [_port("doubled", FLOAT, [2]), _port("negated", FLOAT, [2])],
    )


def dyn1() -> onnx.ModelProto:
    """`Y[N,3] = X[N,3] + X`, float32."""
    return _model(
        [helper.make_node("Add", ["X", "X"], ["Y"])], [_port("X", FLOAT, ["N", 3])], [_port("Y", FLOAT, ["N", 3])]
    )


def same_symbol() -> onnx.ModelProto:
    """`S[1] = sum(A[N]) + sum(B[N])`, float32: two inputs share a symbol that the operators do not need."""
    return _model(
        [
            helper.make_node("ReduceSum", ["A"], ["a"], keepdims=1),
            helper.make_node("ReduceSum", ["B"], ["b"], keepdims=1),
            helper.make_node("Add", ["a", "b"], ["S"]),
        ],
        [_port("A", FLOAT, ["N"]), _port("B", FLOAT, ["N"])],
        [_port("S", FLOAT, [1])],
    )


def inc() -> onnx.ModelProto:
    """`y[1] = x[1] + 1`, int64."""
    return _model(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        [_port("x", INT64, [1])],
        [_port("y", INT64, [1])],
        [_constant("one", [1], np.int64)],
    )


def likeliest() -> onnx.ModelProto:
    """`token[1] = argmax(logits[1,V])`, int64: makes the next token of a decoder's logits."""
    return _model(
        [helper.make_node("ArgMax", ["logits"], ["token"], axis=1, keepdims=0)],
        [_port("logits", FLOAT, [1, "V"])],
        [_port("token", INT64, [1])],
    )


def lookup(table: npt.NDArray[np.float32]) -> onnx.ModelProto:
    """`rows[N,W] = table[ids[N]]`, ids int64, rows float32: an encoder of token ids."""
    return _model(
        [helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0)],
        [_port("ids", INT64, ["N"])],
        [_port("rows", FLOAT, ["N", table.shape[1]])],
        [_constant("table", table, np.float32)],
    )


def badop() -> onnx.ModelProto:
    """A well-formed model with an operator that nobody knows."""
    return _model(
        [helper.make_node("NoSuchOperator", ["X"], ["Y"])], [_port("X", FLOAT, [2])], [_port("Y", FLOAT, [2])]
    )


def pass_through() -> onnx.ModelProto:
    """A graph without nodes: its output is its input `X[2]`, float32."""
    return _model([], [_port("X", FLOAT, [2])], [_port("X", FLOAT, [2])])


def _same(source: str, target: str, element_type: int) -> onnx.NodeProto:
    """A node that hands on its input: ONNX Runtime has no `Identity` of 4-bit elements, but a cast to the same type."""
    if element_type in (TensorProto.INT4, TensorProto.UINT4):
        return helper.make_node("Cast", [source], [target], to=element_type)
    return helper.make_node("Identity", [source], [target])


def identity(element_type: int, shape: Shape) -> onnx.ModelProto:
    """`Y = X` of any element type."""
    return _model([_same("X", "Y", element_type)], [_port("X", element_type, shape)], [_port("Y", element_type, shape)])


def cast(element_type: int, shape: Shape) -> onnx.ModelProto:
    """`Y = cast(X)` to any element type and `Z = cast(Y)` back, `X` float32."""
    return _model(
        [
            helper.make_node("Cast", ["X"], ["Y"], to=element_type),
            helper.make_node("Cast", ["Y"], ["Z"], to=FLOAT),
        ],
        [_port("X", FLOAT, shape)],
        [_port("Y", element_type, shape), _port("Z", FLOAT, shape)],
    )


def delay(element_type: int, shape: Shape) -> onnx.ModelProto:
    """`y = past` and `present = x`, a state of any element type: each run gives the `x` of the run before.

    `step[1]`, int64, is not read: it makes a run one position long.
    """
    x, past, y, present = (_port(name, element_type, shape) for name in ("x", "past", "y", "present"))
    nodes = [_same("past", "y", element_type), _same("x", "present", element_type)]
    return _model(nodes, [_port("step", INT64, [1]), x, past], [y, present])


def text_input() -> onnx.ModelProto:
    """`Y[N] = X[N]` on strings: an element type that tensors of the object model do not have."""
    string = TensorProto.STRING
    return _model(
        [helper.make_node("Identity", ["X"], ["Y"])], [_port("X", string, ["N"])], [_port("Y", string, ["N"])]
    )


def text_output() -> onnx.ModelProto:
    """`T[N] = str(X)`, strings, and `Y[N] = -X`, float32: only one of the outputs is one a stage can give."""
    nodes = [helper.make_node("Cast", ["X"], ["T"], to=TensorProto.STRING), helper.make_node("Neg", ["X"], ["Y"])]
    outputs = [_port("T", TensorProto.STRING, ["N"]), _port("Y", FLOAT, ["N"])]
    return _model(nodes, [_port("X", FLOAT, ["N"])], outputs)


def slow(rounds: int = 2_000_000) -> onnx.ModelProto:
    """`Y[64,64]` = `rounds` times `X @ X * 0`, float32, in a loop: long enough to be stopped half-way."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "state"], ["product"]),
            helper.make_node("Mul", ["product", "nothing"], ["next"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [_port("round", INT64, []), _port("go", TensorProto.BOOL, []), _port("state", FLOAT, [64, 64])],
        [_port("go_on", TensorProto.BOOL, []), _port("next", FLOAT, [64, 64])],
        [_constant("nothing", 0.0, np.float32)],
    )
    return _model(
        [helper.make_node("Loop", ["rounds", "", "X"], ["Y"], body=body)],
        [_port("X", FLOAT, [64, 64])],
        [_port("Y", FLOAT, [64, 64])],
        [_constant("rounds", rounds, np.int64)],
    )


def grow() -> onnx.ModelProto:
    """A growing state: `present[1,1,T,1] = concat(past[1,1,P,1], ids[1,S])`, `y[1,1] = sum(present)`."""
    return _model(_append_ids("present"), _state_inputs("P"), _state_outputs("T"), _append_constants())


def stat(length: int = 8) -> onnx.ModelProto:
    """A state of fixed length: the newest `length` ids; `y[1,1]` is their sum."""
    nodes = [
        *_append_ids("longer", summed="present"),
        helper.make_node("Slice", ["longer", "first", "last", "axis"], ["present"]),
    ]
    nodes = [nodes[0], nodes[1], nodes[2], nodes[4], nodes[3]]  # the sum reads what the slice makes
    constants = [
        *_append_constants(),
        _constant("first", [-length], np.int64),
        _constant("last", [2**62], np.int64),
        _constant("axis", [2], np.int64),
    ]
    return _model(nodes, _state_inputs(length), _state_outputs(length), constants)


def _append_ids(joined: str, summed: str | None = None) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", ["ids"], ["values"], to=FLOAT),
        helper.make_node("Reshape", ["values", "column"], ["new"]),
        helper.make_node("Concat", ["past", "new"], [joined], axis=2),
        helper.make_node("ReduceSum", [summed or joined, "inner"], ["y"], keepdims=0),
    ]


def _append_constants() -> list[onnx.TensorProto]:
    return [_constant("column", [1, 1, -1, 1], np.int64), _constant("inner", [2, 3], np.int64)]


def _state_inputs(length: int | str) -> list[onnx.ValueInfoProto]:
    return [_port("ids", INT64, [1, "S"]), _port("past", FLOAT, [1, 1, length, 1])]


def _state_outputs(length: int | str) -> list[onnx.ValueInfoProto]:
    return [_port("y", FLOAT, [1, 1]), _port("present", FLOAT, [1, 1, length, 1])]


def external_weights(location: str = "weights.bin") -> tuple[onnx.ModelProto, bytes]:
    """`Y[2] = X[2] + W`, float32; `W` = (10, 20) lies in an external file. Returns the model and the file's bytes."""
    weight = onnx.TensorProto(name="W", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    payload = np.asarray([10, 20], np.float32).tobytes()
    for key, value in (("location", location), ("offset", "0"), ("length", str(len(payload)))):
        weight.external_data.add(key=key, value=value)
    model = _model(
        [helper.make_node("Add", ["X", "W"], ["Y"])], [_port("X", FLOAT, [2])], [_port("Y", FLOAT, [2])], [weight]
    )
    return model, payload


def dense() -> onnx.ModelProto:
    """`y[batch,64] = Relu(x[batch,64] @ W + b)`, float32; `W` has 16 KiB, `b` 256 bytes."""
    return _model(
        [
            helper.make_node("MatMul", ["x", "W"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        [_port("x", FLOAT, ["batch", 64])],
        [_port("y", FLOAT, ["batch", 64])],
        [_weights("W", 64, 64, phase=1.0), _weights("b", 64, phase=2.0)],
    )


def twins() -> onnx.ModelProto:
    """`y[batch,64] = Relu(x[batch,64] @ W) @ V`, float32; `W` and `V` have 16 KiB and are equal."""
    return _model(
        [
            helper.make_node("MatMul", ["x", "W"], ["product"]),
            helper.make_node("Relu", ["product"], ["middle"]),
            helper.make_node("MatMul", ["middle", "V"], ["y"]),
        ],
        [_port("x", FLOAT, ["batch", 64])],
        [_port("y", FLOAT, ["batch", 64])],
        [_weights("W", 64, 64, phase=1.0), _weights("V", 64, 64, phase=1.0)],
    )


def listed_constants() -> onnx.ModelProto:
    """`y[2] = relu(x[2] + a) + b`, `a` and `b` both [1, 2], as of IR version 3: the constants are inputs as well."""
    constants = [_constant(name, [1, 2], np.float32) for name in ("a", "b")]
    nodes = [
        helper.make_node("Add", ["x", "a"], ["shifted"]),
        helper.make_node("Relu", ["shifted"], ["positive"]),
        helper.make_node("Add", ["positive", "b"], ["y"]),
    ]
    inputs = [_port(name, FLOAT, [2]) for name in ("a", "x", "b")]
    graph = helper.make_graph(nodes, "graph", inputs, [_port("y", FLOAT, [2])], constants)
    return helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 8)])


def convolution() -> onnx.ModelProto:
    """`y[1,16,8,8] = Conv(x[1,16,8,8], K)`, float32, with 16 kernels of 3 by 3 (9 KiB)."""
    return _model(
        [helper.make_node("Conv", ["x", "K"], ["y"], pads=[1, 1, 1, 1])],
        [_port("x", FLOAT, [1, 16, 8, 8])],
        [_port("y", FLOAT, [1, 16, 8, 8])],
        [_weights("K", 16, 16, 3, 3, phase=1.0)],
    )


def branches() -> onnx.ModelProto:
    """`y[512] = (chosen ? x + ones : x + twos) * steps`, float32; each constant has 2 KiB, two of them in subgraphs."""

    def branch(name: str, value: float) -> onnx.GraphProto:
        constant = _constant(name, np.full(512, value), np.float32)
        node = helper.make_node("Add", ["x", name], [f"with_{name}"])
        return helper.make_graph([node], name, [], [_port(f"with_{name}", FLOAT, [512])], [constant])

    return _model(
        [
            helper.make_node("If", ["chosen"], ["moved"], then_branch=branch("ones", 1), else_branch=branch("twos", 2)),
            helper.make_node("Mul", ["moved", "steps"], ["y"]),
        ],
        [_port("x", FLOAT, [512]), _port("chosen", TensorProto.BOOL, [1])],
        [_port("y", FLOAT, [512])],
        [_constant("steps", np.arange(512), np.float32)],
    )


def texts() -> onnx.ModelProto:
    """`y[300] = (words == words[x[0]]) ? bias : 0`, float32; `words` has 300 strings, `bias` 1.2 KiB of ones."""
    words = helper.make_tensor("words", TensorProto.STRING, [300], [b"some words"] * 300)
    return _model(
        [
            helper.make_node("Gather", ["words", "x"], ["first"]),
            helper.make_node("Equal", ["words", "first"], ["is_equal"]),
            helper.make_node("Where", ["is_equal", "bias", "zero"], ["y"]),
        ],
        [_port("x", INT64, [1])],
        [_port("y", FLOAT, [300])],
        [_constant("bias", np.ones(300), np.float32), words, _constant("zero", 0, np.float32)],
    )


def bigram(following: Sequence[int]) -> onnx.ModelProto:
    """`logits[B,S,V]` of a model without memory: after token `i` the likeliest next one is `following[i]`."""
    size = len(following)
    table = np.zeros((size, size), np.float32)
    table[np.arange(size), list(following)] = 10.0
    return _model(
        [helper.make_node("Gather", ["table", "input_ids"], ["logits"], axis=0)],
        [_port("input_ids", INT64, ["batch", "sequence"])],
        [_port("logits", FLOAT, ["batch", "sequence", size])],
        [_constant("table", table, np.float32)],
    )


def sum_state(vocabulary_size: int = 8) -> onnx.ModelProto:
    """`logits[1,S,V]`, one-hot at (sum of all tokens so far) mod V; the past tokens are the state.

    A token that is dropped, doubled or stale changes every later one. With V = 8 the prompt (1, 2, 3) continues
    6, 4, 0, 0, 0 however it is cut.
    """
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["values"], to=FLOAT),
        helper.make_node("Reshape", ["values", "column"], ["new"]),
        helper.make_node("Concat", ["past_key_values.0.key", "new"], ["present.0.key"], axis=2),
        helper.make_node("ReduceSum", ["past_key_values.0.key"], ["before"], keepdims=0),
        helper.make_node("CumSum", ["values", "row"], ["running"]),
        helper.make_node("Add", ["running", "before"], ["total"]),
        helper.make_node("Cast", ["total"], ["whole"], to=INT64),
        helper.make_node("Mod", ["whole", "size"], ["next"]),
        helper.make_node("OneHot", ["next", "size", "levels"], ["logits"], axis=-1),
    ]
    return _model(
        nodes,
        [_port("input_ids", INT64, [1, "S"]), _port("past_key_values.0.key", FLOAT, [1, 1, "P", 1])],
        [_port("logits", FLOAT, [1, "S", vocabulary_size]), _port("present.0.key", FLOAT, [1, 1, "T", 1])],
        [
            _constant("column", [1, 1, -1, 1], np.int64),
            _constant("row", 1, np.int64),
            _constant("size", vocabulary_size, np.int64),
            _constant("levels", [0, 1], np.float32),
        ],
    )


def running_sum(vocabulary_size: int = 16) -> onnx.ModelProto:
    """`ids[1,S], past[1,1] -> logits[1,S,V], present[1,1], token[1,1]`: `sum_state` with one number as its state.

    Logits are one-hot at (sum of all tokens so far) mod V, the token is that of the last position.
    """
    nodes = [
        helper.make_node("Cast", ["ids"], ["values"], to=FLOAT),
        helper.make_node("CumSum", ["values", "row"], ["running"]),
        helper.make_node("Add", ["running", "past"], ["total"]),
        helper.make_node("Gather", ["total", "last"], ["present"], axis=1),
        helper.make_node("Cast", ["total"], ["whole"], to=INT64),
        helper.make_node("Mod", ["whole", "size"], ["next"]),
        helper.make_node("OneHot", ["next", "size", "levels"], ["logits"], axis=-1),
        helper.make_node("Gather", ["next", "last"], ["token"], axis=1),
    ]
    return _model(
        nodes,
        [_port("ids", INT64, [1, "S"]), _port("past", FLOAT, [1, 1])],
        [
            _port("logits", FLOAT, [1, "S", vocabulary_size]),
            _port("present", FLOAT, [1, 1]),
            _port("token", INT64, [1, 1]),
        ],
        [
            _constant("row", 1, np.int64),
            _constant("last", [-1], np.int64),
            _constant("size", vocabulary_size, np.int64),
            _constant("levels", [0, 1], np.float32),
        ],
    )


def sum_slots(vocabulary_size: int = 303, length: int = 16) -> onnx.ModelProto:
    """`logits[1,S,V]` like those of `sum_state`, with the tokens in a state of fixed length.

    `slots[S]` says where the tokens go, `used[1,1,length,1]` which slots count as past.
    """
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["values"], to=FLOAT),
        helper.make_node("Reshape", ["values", "column"], ["new"]),
        helper.make_node("Reshape", ["slots", "column"], ["places"]),
        helper.make_node("ScatterElements", ["past", "places", "new"], ["present"], axis=2),
        helper.make_node("Mul", ["past", "used"], ["counted"]),
        helper.make_node("ReduceSum", ["counted"], ["before"], keepdims=0),
        helper.make_node("CumSum", ["values", "row"], ["running"]),
        helper.make_node("Add", ["running", "before"], ["total"]),
        helper.make_node("Cast", ["total"], ["whole"], to=INT64),
        helper.make_node("Mod", ["whole", "size"], ["next"]),
        helper.make_node("OneHot", ["next", "size", "levels"], ["logits"], axis=-1),
    ]
    state = [1, 1, length, 1]
    return _model(
        nodes,
        [
            _port("input_ids", INT64, [1, "S"]),
            _port("past", FLOAT, state),
            _port("slots", INT64, ["S"]),
            _port("used", FLOAT, state),
        ],
        [_port("logits", FLOAT, [1, "S", vocabulary_size]), _port("present", FLOAT, state)],
        [
            _constant("column", [1, 1, -1, 1], np.int64),
            _constant("row", 1, np.int64),
            _constant("size", vocabulary_size, np.int64),
            _constant("levels", [0.0, 1.0], np.float32),
        ],
    )


def group_query_attention(vocabulary_size: int = 16) -> onnx.ModelProto:
    """One attention layer whose past and present may share a buffer.

    Inputs `input_ids[B,S]`, `attention_mask[B,T]`, `past_key_values.0.{key,value}[B,1,P,8]`;
    outputs `logits[B,S,V]`, `present.0.{key,value}[B,1,T,8]`. Two query heads, one key-value head of 8.
    """
    width, head = 16, 8
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["hidden"], axis=0),
        helper.make_node("MatMul", ["hidden", "query_weight"], ["query"]),
        helper.make_node("MatMul", ["hidden", "key_weight"], ["key"]),
        helper.make_node("MatMul", ["hidden", "value_weight"], ["value"]),
        helper.make_node("ReduceSum", ["attention_mask", "row"], ["lengths"], keepdims=0),
        helper.make_node("Sub", ["lengths", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens_k"], to=INT32),
        helper.make_node("Shape", ["attention_mask"], ["mask_length"], start=1, end=2),
        helper.make_node("Squeeze", ["mask_length"], ["mask_extent"]),
        helper.make_node("Cast", ["mask_extent"], ["total_sequence_length"], to=INT32),
        helper.make_node(
            "GroupQueryAttention",
            [
                "query",
                "key",
                "value",
                "past_key_values.0.key",
                "past_key_values.0.value",
                "seqlens_k",
                "total_sequence_length",
            ],
            ["attended", "present.0.key", "present.0.value"],
            domain=MICROSOFT,
            num_heads=width // head,
            kv_num_heads=1,
        ),
        helper.make_node("Add", ["hidden", "attended"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "output_weight"], ["logits"]),
    ]
    ids: list[int | str] = ["batch", "sequence"]
    past: list[int | str] = ["batch", 1, "past_length", head]
    present: list[int | str] = ["batch", 1, "total_length", head]
    return _model(
        nodes,
        [
            _port("input_ids", INT64, ids),
            _port("attention_mask", INT64, ["batch", "total_length"]),
            _port("past_key_values.0.key", FLOAT, past),
            _port("past_key_values.0.value", FLOAT, past),
        ],
        [
            _port("logits", FLOAT, [*ids, vocabulary_size]),
            _port("present.0.key", FLOAT, present),
            _port("present.0.value", FLOAT, present),
        ],
        [
            _weights("embedding", vocabulary_size, width, phase=0.1),
            _weights("query_weight", width, width, phase=0.2),
            _weights("key_weight", width, head, phase=0.3),
            _weights("value_weight", width, head, phase=0.4),
            _weights("output_weight", width, vocabulary_size, phase=0.5),
            _constant("row", [1], np.int64),
            _constant("one", 1, np.int64),
        ],
    )


def ep_context(*sources: str) -> onnx.ModelProto:
    """x [2] to y [2] through one compiled node for each of the providers, which alone could run it."""
    names = ["x", *(f"value_{index}" for index in range(1, len(sources))), "y"]
    nodes = [
        helper.make_node("EPContext", [names[index]], [names[index + 1]], domain=MICROSOFT, source=source, embed_mode=1)
        for index, source in enumerate(sources)
    ]
    ports = [[_port(name, FLOAT, [2])] for name in ("x", "y")]
    return helper.make_model(
        helper.make_graph(nodes, "ep_context", *ports),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=IR_VERSION,
    )


def save(model: onnx.ModelProto, path: str | os.PathLike[str]) -> Path:
    """Write a model; returns the path."""
    Path(path).write_bytes(model.SerializeToString(deterministic=True))
    return Path(path)


def to_ort(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Make the ORT format model `target` from the `.onnx` file `source`, with ONNX Runtime itself; returns the path."""
    import onnxruntime  # the engine is needed for this function only

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return Path(target)
