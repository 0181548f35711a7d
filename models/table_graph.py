"""The ONNX graph of a `TableDecoder`. Not here: the tables and their other forms (`table_decoders.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from .onnx_models import FLOAT, INT64, _constant, _model, _port

if TYPE_CHECKING:
    from .table_decoders import TableDecoder


def table_graph(decoder: TableDecoder) -> onnx.ModelProto:
    """Build `input_ids[1,S], past_key_values.0.key[1,1,P,1] -> logits[1,S,V], present.0.key[1,1,T,1]`."""
    size = decoder.vocabulary_size
    graph = _Graph()
    graph.constant("column", [1, 1, -1, 1], np.int64)
    graph.constant("flat", [-1], np.int64)
    graph.node("Cast", ["input_ids"], "values", to=FLOAT)
    graph.node("Reshape", ["values", "column"], "new")
    graph.node("Concat", ["past_key_values.0.key", "new"], "present.0.key", axis=2)
    graph.node("Reshape", ["input_ids", "flat"], "ids")
    graph.constant("no_row", np.zeros((size, size)), np.float32)
    rows = graph.node("Gather", ["no_row", "ids"], "empty_rows", axis=0)
    if decoder.constant is not None:
        rows = graph.add(rows, graph.constant("constant", decoder.constant, np.float32))
    if decoder.following is not None:
        graph.constant("following", decoder.following, np.float32)
        rows = graph.add(rows, graph.node("Gather", ["following", "ids"], "following_rows", axis=0))
    if decoder.by_length is not None or decoder.mixed is not None:
        graph.lengths()
    if decoder.by_length is not None:
        graph.constant("last_length", len(decoder.by_length) - 1, np.int64)
        graph.constant("by_length", decoder.by_length, np.float32)
        graph.node("Min", ["lengths", "last_length"], "row_numbers")
        rows = graph.add(rows, graph.node("Gather", ["by_length", "row_numbers"], "length_rows", axis=0))
    if decoder.mixed is not None:
        rows = graph.add(rows, graph.means(decoder.mixed))
    graph.constant("batch", [0], np.int64)
    graph.node("Unsqueeze", [rows, "batch"], "logits")
    return _model(
        graph.nodes,
        [_port("input_ids", INT64, [1, "S"]), _port("past_key_values.0.key", FLOAT, [1, 1, "P", 1])],
        [_port("logits", FLOAT, [1, "S", size]), _port("present.0.key", FLOAT, [1, 1, "T", 1])],
        graph.initializers,
    )


class _Graph:
    """Nodes and initializers, as they come."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, operator: str, inputs: list[str], output: str, **attributes: int) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        self.initializers.append(_constant(name, value, dtype))
        return name

    def add(self, rows: str, more: str) -> str:
        return self.node("Add", [rows, more], f"{rows}+{more}")

    def lengths(self) -> None:
        """Make `lengths[S]`, the number of tokens up to each new one, and `before`, that of the past ones."""
        for name, value in (("zero", 0), ("one", 1)):
            self.constant(name, value, np.int64)
        self.node("Size", ["past_key_values.0.key"], "before")
        self.node("Size", ["present.0.key"], "after")
        self.node("Add", ["before", "one"], "first_length")
        self.node("Add", ["after", "one"], "end_of_lengths")
        self.node("Range", ["first_length", "end_of_lengths", "one"], "lengths")

    def means(self, table: npt.NDArray[np.float32]) -> str:
        """The mean of the rows of `table` over all tokens, for each new one."""
        self.constant("mixed", table, np.float32)
        self.constant("rows_axis", [0], np.int64)
        self.constant("last_axis", [1], np.int64)
        self.constant("beyond", [np.iinfo(np.int64).max], np.int64)
        self.node("Reshape", ["present.0.key", "flat"], "all_values")
        self.node("Cast", ["all_values"], "all_ids", to=INT64)
        self.node("Gather", ["mixed", "all_ids"], "all_rows", axis=0)
        self.node("CumSum", ["all_rows", "zero"], "running")
        self.node("Unsqueeze", ["before", "rows_axis"], "first_new")
        self.node("Slice", ["running", "first_new", "beyond", "rows_axis"], "sums")
        self.node("Cast", ["lengths"], "float_lengths", to=FLOAT)
        self.node("Unsqueeze", ["float_lengths", "last_axis"], "divisors")
        return self.node("Div", ["sums", "divisors"], "mean_rows")
