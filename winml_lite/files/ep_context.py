"""Graphs that an execution provider has compiled: their EPContext nodes name it (tensors §9.3 and 11.3).

Here: whose nodes they are. What they hold, in the graph or in a file beside it, is read by the provider alone.
"""

from __future__ import annotations

from collections.abc import Collection

from .mapped import Data
from .protobuf import Span, payloads, text


def context_source(data: Data, node: Span) -> str:
    """Return the provider that an EPContext node is for; "" if the NodeProto does not say."""
    source = ""
    for number, attribute in payloads(data, node):
        if number == 5:
            parts = dict(payloads(data, attribute))
            name, value = parts.get(1), parts.get(4)  # the value of another one may be gigabytes that are no text
            if name is not None and value is not None and text(data, name) == "source":
                source = text(data, value)
    return source


def only_source(sources: Collection[str]) -> str | None:
    """Return the provider that all compiled nodes of a graph are for; None without any, and where they disagree."""
    return next(iter(sources)) or None if len(sources) == 1 else None
