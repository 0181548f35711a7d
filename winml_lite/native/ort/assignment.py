# mypy: disable-error-code="empty-body"
"""Which execution provider took how many operators of a graph, as the making of a session recorded it (runtime §18).

Importing this module loads the library, which must have API 24. Counted are the operators of the graph and of its
subgraphs after the simplifications that are done for every provider, before a provider fuses what it took.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from ctypes import POINTER, c_char_p, c_size_t, c_void_p

from .. import ffi
from . import api

_ort = ffi.slots(api.LIBRARY.table, api._check)


@_ort(407, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
def Session_GetEpGraphAssignmentInfo(session: int, subgraphs: api.Out, count: api.Out, /) -> None: ...


@_ort(408, c_void_p, POINTER(c_char_p))
def EpAssignedSubgraph_GetEpName(subgraph: int, out: api.Out, /) -> None: ...


@_ort(409, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
def EpAssignedSubgraph_GetNodes(subgraph: int, nodes: api.Out, count: api.Out, /) -> None: ...


def count_nodes(session: int) -> dict[str, int]:
    """Return the number of operators that each provider took, the most first; those that took none are left out.

    The session must have been made with `session.record_ep_graph_assignment_info`. A graph of constants has none.
    """
    array, count, name = c_void_p(), c_size_t(), c_char_p()
    Session_GetEpGraphAssignmentInfo(session, ctypes.byref(array), ctypes.byref(count))
    subgraphs = (c_void_p * count.value).from_address(array.value) if array.value else ()
    counts: Counter[str] = Counter()
    for subgraph in subgraphs:
        EpAssignedSubgraph_GetEpName(subgraph or 0, ctypes.byref(name))
        EpAssignedSubgraph_GetNodes(subgraph or 0, ctypes.byref(array), ctypes.byref(count))
        counts[(name.value or b"").decode()] += count.value
    return dict(counts.most_common())
