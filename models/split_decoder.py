"""Splits a converted decoder in several graphs, as a pipeline of stages wants them.

    python -m models.split_decoder FOLDER [TARGET]

FOLDER is what `genai.convert` wrote in the dialect `gqa`. Without TARGET it is cut in two, token ids to rows and rows
to logits: beside `model.onnx`, and on the same file of weights, appear

    embedding.onnx   input_ids int64 [batch, sequence] -> inputs_embeds float32 [batch, sequence, width]
    decoder.onnx     inputs_embeds, sequence_length int32 [1] (this token and all before it), past_key_values.N.key and
                     .value -> logits, present.N.key and .value; one sequence at a time

With TARGET that folder becomes a model of three graphs, with a `genai_config.json` that wires them by
`decoder.pipeline`, as onnxruntime-genai has it:

    embedding.onnx   input_ids -> inputs_embeds
    decoder.onnx     inputs_embeds, attention_mask, past_key_values.N.key and .value -> hidden_states, present.N.key and
                     .value
    lm_head.onnx     hidden_states float32 [batch, rows, width] -> logits float32 [batch, 1, vocabulary]
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EMBEDDING_FILE, DECODER_FILE, HEAD_FILE = "embedding.onnx", "decoder.onnx", "lm_head.onnx"
_ROWS, _HIDDEN, _LENGTH, _ONE = "inputs_embeds", "hidden_states", "sequence_length", "one"
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


def split_in_three(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the three graphs, their configuration and copies of all else to `target`, unless they are there."""
    folder, made = Path(source), Path(target)
    if (made / "genai_config.json").exists():
        return made
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    made.mkdir(parents=True, exist_ok=True)
    graphs = {EMBEDDING_FILE: _embedding(model), DECODER_FILE: _body(model), HEAD_FILE: _head(model)}
    for name, graph in graphs.items():
        _save(graph, made / name)
    for file in folder.iterdir():
        if file.suffix != ".onnx" and file.name != "genai_config.json" and file.is_file():
            shutil.copyfile(file, made / file.name)
    config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
    config["model"]["type"] = "decoder-pipeline"
    del config["model"]["decoder"]["filename"]
    config["model"]["decoder"]["pipeline"] = [{Path(name).stem: _stage(name, graph)} for name, graph in graphs.items()]
    (made / "genai_config.json").write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")
    return made


def _stage(file: str, model: onnx.ModelProto) -> dict[str, object]:
    """Describe one graph of the pipeline."""
    return {
        "filename": file,
        "inputs": [port.name for port in model.graph.input],
        "outputs": [port.name for port in model.graph.output],
        **({"is_lm_head": True} if file == HEAD_FILE else {}),
    }


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


def _body(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the graph between embedding and output, with the inputs and the cache of the whole."""
    nodes = [_copy(node) for node in model.graph.node if not _is_embedding(node) and not _is_output(node)]
    _rename(nodes, {_rows_name(model): _ROWS, _hidden_name(model): _HIDDEN})
    used = {name for node in nodes for name in node.input}
    inputs = [_rows_port(model), *(port for port in model.graph.input if port.name in used)]
    presents = [port for port in model.graph.output if port.name.startswith("present.")]
    return _part(model, nodes, inputs, [_hidden_port(model), *presents])


def _head(model: onnx.ModelProto) -> onnx.ModelProto:
    nodes = [_copy(node) for node in model.graph.node if _is_output(node)]
    _rename(nodes, {_hidden_name(model): _HIDDEN})
    return _part(model, nodes, [_hidden_port(model)], _ports(model.graph.output, "logits"))


def _is_embedding(node: onnx.NodeProto) -> bool:
    return bool(node.name.startswith("embedding/"))


def _is_output(node: onnx.NodeProto) -> bool:
    return bool(node.name.startswith("output/"))


def _is_length(node: onnx.NodeProto) -> bool:
    return bool(node.name.startswith("lengths/"))


def _rows_name(model: onnx.ModelProto) -> str:
    """Return the one value that goes from the embedding to the rest."""
    made = {name for node in model.graph.node if _is_embedding(node) for name in node.output}
    (rows,) = {name for node in model.graph.node if not _is_embedding(node) for name in node.input} & made
    return str(rows)


def _hidden_name(model: onnx.ModelProto) -> str:
    """Return the one value that goes from the last block to the output."""
    made = {name for node in model.graph.node if not _is_output(node) for name in node.output}
    (hidden,) = {name for node in model.graph.node if _is_output(node) for name in node.input} & made
    return str(hidden)


def _hidden_port(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(_HIDDEN, TensorProto.FLOAT, ["batch_size", "rows", _width(model)])


def _rows_port(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(_ROWS, TensorProto.FLOAT, ["batch_size", "sequence_length", _width(model)])


def _width(model: onnx.ModelProto) -> int:
    """Return the length of a row, which is that of a norm."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return int(weights["output_norm.weight"].dims[0])


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
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m models.split_decoder FOLDER [TARGET]")
    if len(sys.argv) == 2:
        split_decoder(sys.argv[1])
    else:
        split_in_three(sys.argv[1], sys.argv[2])
