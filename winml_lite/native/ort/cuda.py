"""The GPUs that NVIDIA's driver offers, by the numbers that CUDA gives them.

ONNX Runtime does not list devices of its built-in CUDA provider; that provider takes the number of a GPU. The driver
counts like the provider: both follow `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`. Asking it makes no CUDA context,
but, as with any use of CUDA, a process that is forked afterwards cannot use CUDA.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

from ...errors import E_FAIL, WinMLError
from ..ffi import load_library
from ..hardware import normal_pci_address

_CONTEXT = "asking the NVIDIA driver"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED
_TEXT_SIZE = 256
_NUMBER, _SIZE = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_size_t)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (_NUMBER,),
    "cuDeviceGet": (_NUMBER, ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceTotalMem_v2": (_SIZE, ctypes.c_int),
    "cuDeviceGetPCIBusId": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (_NUMBER, ctypes.c_int, ctypes.c_int),
}


class Driver(Protocol):
    """The functions of the driver library that are used; each returns a status, 0 when all is well."""

    def cuInit(self, flags: int, /) -> int: ...
    def cuDeviceGetCount(self, count: Any, /) -> int: ...
    def cuDeviceGet(self, device: Any, ordinal: int, /) -> int: ...
    def cuDeviceGetName(self, name: Any, size: int, device: int, /) -> int: ...
    def cuDeviceTotalMem_v2(self, size: Any, device: int, /) -> int: ...
    def cuDeviceGetPCIBusId(self, address: Any, size: int, device: int, /) -> int: ...
    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class CudaGpu:
    """One GPU."""

    ordinal: int
    name: str
    memory_size: int
    """Bytes."""
    is_integrated: bool
    pci_address: str


def cuda_gpus() -> tuple[CudaGpu, ...]:
    """List the GPUs; 0x8007007E without NVIDIA's driver, 0x80004005 when it fails."""
    api = driver()
    status = api.cuInit(0)
    if status == _NO_DEVICE:
        return ()
    _check(status, "cuInit")
    count = ctypes.c_int()
    _check(api.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return tuple(_describe(api, ordinal) for ordinal in range(count.value))


def _describe(api: Driver, ordinal: int) -> CudaGpu:
    device, integrated, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name, address = ctypes.create_string_buffer(_TEXT_SIZE), ctypes.create_string_buffer(_TEXT_SIZE)
    _check(api.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    _check(api.cuDeviceGetName(name, _TEXT_SIZE, device.value), "cuDeviceGetName")
    _check(api.cuDeviceTotalMem_v2(ctypes.byref(memory), device.value), "cuDeviceTotalMem")
    _check(api.cuDeviceGetPCIBusId(address, _TEXT_SIZE, device.value), "cuDeviceGetPCIBusId")
    _check(api.cuDeviceGetAttribute(ctypes.byref(integrated), _INTEGRATED, device.value), "cuDeviceGetAttribute")
    return CudaGpu(
        ordinal,
        name.value.decode("utf-8", "replace"),
        memory.value,
        bool(integrated.value),
        normal_pci_address(address.value.decode("ascii", "replace")),
    )


def _check(status: int, function: str) -> None:
    if status:
        raise WinMLError(E_FAIL, _CONTEXT, f"{function} failed with status {status}")


@cache
def driver() -> Driver:
    """Load the driver library once."""
    names = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1"]
    library, _ = load_library(names, "NVIDIA's driver", "NVIDIA's driver is not installed.")
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_int, arguments
    return cast(Driver, library)
