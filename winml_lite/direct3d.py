"""Direct3D 12 buffers as tensors (tensors §12): the argument checks, and what to use instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from .checks import UINT64_MAX, number_value
from .errors import NOT_SUPPORTED, NotSupportedError
from .factories import tensor_shape, tensor_type
from .storage import byte_size
from .target import ExecutionTarget, target_core
from .values import TensorDataType


def refuse_d3d12_buffer(
    resource: Any,
    data_type: TensorDataType | int,
    shape: Iterable[int],
    offset_in_bytes: int,
    size_in_bytes: int | None,
    target: ExecutionTarget | None,
) -> NoReturn:
    """Check the arguments of `Runtime.tensor_from_d3d12_buffer`, then raise NotSupportedError 0x80070032."""
    if resource is None:
        raise ValueError("resource must be an ID3D12Resource, not None")
    needed = byte_size(tensor_type(data_type), tensor_shape(shape))
    number_value(offset_in_bytes, "offset_in_bytes", UINT64_MAX)
    if size_in_bytes is not None and number_value(size_in_bytes, "size_in_bytes", UINT64_MAX) < needed:
        raise ValueError(f"the tensor takes {needed} bytes, size_in_bytes is {size_in_bytes}")
    if target_core(target) is None:
        raise ValueError("target must be the target of the resource's device, not None")
    raise NotSupportedError(
        NOT_SUPPORTED,
        "IWinMLRuntime.CreateTensorFromD3D12Buffer",
        "tensors lie in CPU memory; share memory of yours with tensor_from_buffer or tensor_from_dlpack",
    )
