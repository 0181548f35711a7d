"""Count the operators of an ONNX model: every node, those of subgraphs and of functions included (runtime §2.1).

A second walk over the file, for those who ask; loading a model does without. Attribute tensors are stepped over.
Counts are by `domain.Operator`, the default domain left out. Malformed content raises ValueError.
"""

from __future__ import annotations

from collections import Counter

from .mapped import Data
from .ort import Buffer, Table
from .protobuf import Span, payloads, text

_DEEPEST_SUBGRAPH = 32
_DEFAULT_DOMAIN = "ai.onnx"


def onnx_operators(data: Data) -> Counter[str]:
    """Count the operators of an `.onnx` model."""
    counts: Counter[str] = Counter()
    for number, part in payloads(data, (0, len(data))):
        if number == 7:
            _count_nodes(data, part, 1, counts, 0)
        elif number == 25:
            _count_nodes(data, part, 7, counts, 1)
    return counts


def _count_nodes(data: Data, span: Span, nodes: int, counts: Counter[str], depth: int) -> None:
    """Count in a graph or a function, whose nodes have the field number `nodes`."""
    if depth > _DEEPEST_SUBGRAPH:
        raise ValueError(f"subgraphs are nested deeper than {_DEEPEST_SUBGRAPH}")
    for number, part in payloads(data, span):
        if number != nodes:
            continue
        operator = domain = ""
        for member, (start, end) in payloads(data, part):
            if member == 4:
                operator = text(data, (start, end))
            elif member == 7:
                domain = text(data, (start, end))
            elif member == 5:
                for attribute, graph in payloads(data, (start, end)):
                    if attribute in (6, 11):
                        _count_nodes(data, graph, 1, counts, depth + 1)
        counts[_name(domain, operator)] += 1


def ort_operators(data: Data) -> Counter[str]:
    """Count the operators of an ORT format model."""
    counts: Counter[str] = Counter()
    model = Buffer(data).root().table(1)
    graph = model.table(7) if model is not None else None
    if graph is not None:
        _count_tables(graph, counts, 0)
    return counts


def _count_tables(graph: Table, counts: Counter[str], depth: int) -> None:
    if depth > _DEEPEST_SUBGRAPH:
        raise ValueError(f"subgraphs are nested deeper than {_DEEPEST_SUBGRAPH}")
    for node in graph.tables(2):
        for attribute in node.tables(10):
            single = attribute.table(7)
            for inner in (*((single,) if single is not None else ()), *attribute.tables(12)):
                _count_tables(inner, counts, depth + 1)
        counts[_name(node.text(2), node.text(5))] += 1


def _name(domain: str, operator: str) -> str:
    return operator if domain in ("", _DEFAULT_DOMAIN) else f"{domain}.{operator}"
