"""When an output may feed an input (runtime §6.1): element types, ranks and extents of the two ends of an edge."""

from __future__ import annotations

import math

from .values import ANY_SHAPE, FREE_DIMENSION, Descriptor, TensorDataType


def is_compatible(given: Descriptor, wanted: Descriptor) -> bool:
    """Whether types and ranks are equal and no two fixed extents differ; an unknown rank fits all."""
    if given[0] is not wanted[0] or ANY_SHAPE is given[1] or ANY_SHAPE is wanted[1]:
        return given[0] is wanted[0]
    return len(given[1]) == len(wanted[1]) and all(
        a == b or FREE_DIMENSION in (a, b) for a, b in zip(given[1], wanted[1], strict=True)
    )


def is_token_row(given: Descriptor) -> bool:
    """Whether llama.cpp takes it for ids: both integer widths, of shape (n,) or (1, n)."""
    data_type, shape = given
    is_row = shape is ANY_SHAPE or len(shape) == 1 or (len(shape) == 2 and shape[0] in (1, FREE_DIMENSION))
    return data_type in (TensorDataType.INT32, TensorDataType.INT64) and is_row


def may_hold_as_many(given: Descriptor, wanted: Descriptor) -> bool:
    """Whether types are equal and `given`, in some extents of its free dimensions, has as many elements as `wanted`."""
    count = math.prod(wanted[1])
    fixed = math.prod(extent for extent in given[1] if extent != FREE_DIMENSION)
    if given[0] is not wanted[0] or given[1] is ANY_SHAPE:
        return given[0] is wanted[0]
    return count % fixed == 0 if fixed and FREE_DIMENSION in given[1] else count == fixed
