"""Resource maps: external weights in caller memory, by name (runtime §2.1 and 2.2, tensors §10).

Buffers are exported, never copied: they stay pinned for as long as the model or something built from it lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def export_resources(resources: Any) -> Mapping[str, memoryview]:
    """Check a resource map and return its buffers as byte views; on failure no export is left."""
    if resources is None:
        return {}
    if not isinstance(resources, Mapping) and not (hasattr(resources, "keys") and hasattr(resources, "__getitem__")):
        raise TypeError(f"resources must be a mapping from name to buffer, not {type(resources).__name__}")
    views: dict[str, memoryview] = {}
    with released_on_failure(views):
        for name, buffer in dict(resources).items():
            views[_name(name)] = _bytes_view(name, buffer)
    return views


@contextmanager
def released_on_failure(views: Mapping[str, memoryview]) -> Iterator[None]:
    """Give the buffers free when the block fails; the error itself must not pin them."""
    try:
        yield
    except BaseException:
        for view in views.values():
            view.release()
        raise


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a resource name must be a str, not {type(name).__name__}")
    if not name or "\0" in name:
        raise ValueError(f"a resource name must be nonempty and free of NUL, not {name!r}")
    return name


def _bytes_view(name: str, buffer: Any) -> memoryview:
    try:
        export = memoryview(buffer)
    except TypeError as error:
        raise TypeError(f"resource {name!r} must be bytes or another buffer, not {type(buffer).__name__}") from error
    with export as view:
        if not view.c_contiguous:
            raise BufferError(f"resource {name!r} is not contiguous")
        if view.nbytes == 0:
            raise ValueError(f"resource {name!r} is empty")
        if "O" in view.format:
            raise TypeError(f"resource {name!r} is an array of Python objects, not of bytes")
    return np.frombuffer(buffer, np.uint8).data
