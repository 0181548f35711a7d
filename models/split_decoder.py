"""Splits a converted decoder in two graphs, as a pipeline of stages wants them: token ids to rows, and rows to logits.

    python -m models.split_decoder FOLDER

FOLDER is what `genai.convert` wrote in the dialect `gqa`. Beside `model.onnx`, and on the same file of weights, appear

    embedding.onnx   input_ids int64 [batch, sequence] -> inputs_embeds float32 [batch, sequence, width]
    decoder.onnx     inputs_embeds, sequence_length int32 [1] (this token and all before it), past_key_values.N.key and
                     .value -> logits, present.N.key and .value; one sequence at a time
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EMBEDDING_FILE, DECODER_FILE = "embedding.onnx", "decoder.onnx"
_ROWS, _LENGTH, _ONE = "inputs_embeds", "sequence_length", "one"
_SEQUENCE_LENGTHS, _TOTAL_LENGTH = 5, 6  # inputs of GroupQueryAttention


def split_decoder(folder: str | os.PathLike[str]) -> Path:
    """Write the two graphs, unless they are there, and return the folder."""
    target = Path(folder)
    if not (target / DECODER_FILE).exists():
        model = onnx.load(target / "model.onnx", load_external_data=False)
        decoder = _decoder(model)
        _save(_embedding(model), target / EMBEDDING_FILE)
        _save(decoder, target / DECODER_FILE)
    return target


def _save(model: onnx.ModelProto, path: Path) -> None:
    """Write a file that appears complete."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(model.SerializeToString())
    partial.replace(path)


def _embedding(model: onnx.ModelProto) -> onnx.ModelProto:
    nodes = [_copy(node) for node in model.graph.node if _is_embedding(node)]
    _rename(nodes, {_rows_name(model): _ROWS})
    return _part(model, nodes, _ports(model.graph.input, "input_ids"), [_rows_port(model)])


def _decoder(model: onnx.ModelProto) -> onnx.ModelProto:
    attention = next((node for node in model.graph.node if node.op_type == "GroupQueryAttention"), None)
    if attention is None:
        raise ValueError("the model has no GroupQueryAttention: convert it with operators='gqa'")
    lengths, total = attention.input[_SEQUENCE_LENGTHS], attention.input[_TOTAL_LENGTH]
    front = [
        helper.make_node("Sub", [_LENGTH, _ONE], [lengths], name="lengths/Sub"),
        helper.make_node("Squeeze", [_LENGTH], [total], name="lengths/Squeeze"),
    ]
    body = [_copy(node) for node in model.graph.node if not _is_embedding(node) and not _is_length(node)]
    _rename(body, {_rows_name(model): _ROWS})
    inputs = [
        _rows_port(model),
        helper.make_tensor_value_info(_LENGTH, TensorProto.INT32, [1]),
        *(port for port in model.graph.input if port.name.startswith("past_key_values.")),
    ]
    part = _part(model, [*front, *body], inputs, model.graph.output)
    part.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int32), _ONE))
    return part


def _is_embedding(node: onnx.NodeProto) -> bool:
    return bool(node.name.startswith("embedding/"))


def _is_length(node: onnx.NodeProto) -> bool:
    return bool(node.name.startswith("lengths/"))


def _rows_name(model: onnx.ModelProto) -> str:
    """Return the one value that goes from the embedding to the rest."""
    made = {name for node in model.graph.node if _is_embedding(node) for name in node.output}
    (rows,) = {name for node in model.graph.node if not _is_embedding(node) for name in node.input} & made
    return str(rows)


def _rows_port(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """Describe the rows; their width is that of a norm."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    width = weights["output_norm.weight"].dims[0]
    return helper.make_tensor_value_info(_ROWS, TensorProto.FLOAT, ["batch_size", "sequence_length", width])


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _rename(nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> None:
    for node in nodes:
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]


def _ports(ports: Iterable[onnx.ValueInfoProto], name: str) -> list[onnx.ValueInfoProto]:
    return [port for port in ports if port.name == name]


def _part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Make a model of some nodes, with the initializers they use; external ones go on lying where they are."""
    used = {name for node in nodes for name in node.input}
    initializers = [tensor for tensor in model.graph.initializer if tensor.name in used]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializers)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name=model.producer_name
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m models.split_decoder FOLDER")
    split_decoder(sys.argv[1])
