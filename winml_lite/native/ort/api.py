# mypy: disable-error-code="empty-body"
"""The entries of the `OrtApi` function table that are used, in header order. Importing this module loads the library.

The first number of a declaration is the position in the table of `onnxruntime_c_api.h`, which only ever grows at its
end. Entries declared with `_ort` raise `WinMLError` for a failing status and release it. `Run` and `RunWithBinding`
return the status as it is, for the hot path; hand it to `raise_status`.
"""

from __future__ import annotations

import logging
import os
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p, c_wchar_p
from typing import Any, NoReturn

from ...errors import E_FAIL, E_INVALIDARG, E_OUTOFMEMORY, ORT_STATUS, WinMLError
from .. import ffi
from .library import load
from .messages import without_places

logger = logging.getLogger("winml_lite.native")

Out = Any
"""`byref` of what a call fills in."""
Array = Any
"""A ctypes array or the address of one."""
Path = Any
"""`ORTCHAR_T` text: str on Windows, UTF-8 bytes elsewhere; see `native_path`."""

PathChar = c_wchar_p if os.name == "nt" else c_char_p
LoggingFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p, c_char_p, c_char_p)

LIBRARY = load()


def native_path(text: str) -> Path:
    """Spell a path or a location the way the library wants it."""
    return text if os.name == "nt" else os.fsencode(text)


def raise_status(status: int, context: str = "") -> NoReturn:
    """Raise the failure that a status describes, and release the status."""
    code = GetErrorCode(status)
    text = GetErrorMessage(status).decode("utf-8", "replace").rstrip()
    ReleaseStatus(status)
    hresult = ORT_STATUS.get(code, E_FAIL)
    if hresult == E_FAIL and ("bad_alloc" in text or "Failed to allocate memory" in text):
        hresult = E_OUTOFMEMORY
    if "shape verification failed" in text:  # of a bound output; older versions report it as an exception
        hresult = E_INVALIDARG
    short = without_places(text)
    if short != text:
        logger.debug("%s", text)
    raise WinMLError(hresult, context, short)


def _check(status: int | None, function: object, arguments: tuple[object, ...]) -> None:
    if status:
        raise_status(status)


_ort = ffi.slots(LIBRARY.table, _check)
_raw = ffi.slots(LIBRARY.table, None)
_text = ffi.slots(LIBRARY.table, None, c_char_p)
_number = ffi.slots(LIBRARY.table, None, c_int)
_unsigned = ffi.slots(LIBRARY.table, None, c_uint32)
_free = ffi.slots(LIBRARY.table, None, None)


@_raw(0, c_int, c_char_p)
def CreateStatus(code: int, message: bytes, /) -> int: ...


@_number(1, c_void_p)
def GetErrorCode(status: int, /) -> int: ...


@_text(2, c_void_p)
def GetErrorMessage(status: int, /) -> bytes: ...


@_ort(4, LoggingFunction, c_void_p, c_int, c_char_p, POINTER(c_void_p))
def CreateEnvWithCustomLogger(
    function: Any, parameter: int | None, severity: int, log_id: bytes, out: Out, /
) -> None: ...


@_ort(7, c_void_p, PathChar, c_void_p, POINTER(c_void_p))
def CreateSession(env: int, path: Path, options: int, out: Out, /) -> None: ...


@_ort(8, c_void_p, c_char_p, c_size_t, c_void_p, POINTER(c_void_p))
def CreateSessionFromArray(env: int, data: bytes, size: int, options: int, out: Out, /) -> None: ...


@_raw(9, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)
def Run(
    session: int,
    run_options: int,
    input_names: Array,
    inputs: Array,
    input_count: int,
    output_names: Array,
    output_count: int,
    outputs: Array,
    /,
) -> int | None: ...


@_ort(10, POINTER(c_void_p))
def CreateSessionOptions(out: Out, /) -> None: ...


@_ort(11, c_void_p, PathChar)
def SetOptimizedModelFilePath(options: int, path: Path, /) -> None: ...


@_ort(14, c_void_p, PathChar)
def EnableProfiling(options: int, prefix: Path, /) -> None: ...


@_ort(22, c_void_p, c_int)
def SetSessionLogSeverityLevel(options: int, severity: int, /) -> None: ...


@_ort(23, c_void_p, c_int)
def SetSessionGraphOptimizationLevel(options: int, level: int, /) -> None: ...


@_ort(24, c_void_p, c_int)
def SetIntraOpNumThreads(options: int, count: int, /) -> None: ...


@_ort(30, c_void_p, POINTER(c_size_t))
def SessionGetInputCount(session: int, out: Out, /) -> None: ...


@_ort(31, c_void_p, POINTER(c_size_t))
def SessionGetOutputCount(session: int, out: Out, /) -> None: ...


@_ort(33, c_void_p, c_size_t, POINTER(c_void_p))
def SessionGetInputTypeInfo(session: int, index: int, out: Out, /) -> None: ...


@_ort(34, c_void_p, c_size_t, POINTER(c_void_p))
def SessionGetOutputTypeInfo(session: int, index: int, out: Out, /) -> None: ...


@_ort(36, c_void_p, c_size_t, c_void_p, POINTER(c_void_p))
def SessionGetInputName(session: int, index: int, allocator: int, out: Out, /) -> None: ...


@_ort(37, c_void_p, c_size_t, c_void_p, POINTER(c_void_p))
def SessionGetOutputName(session: int, index: int, allocator: int, out: Out, /) -> None: ...


@_ort(39, POINTER(c_void_p))
def CreateRunOptions(out: Out, /) -> None: ...


@_ort(46, c_void_p)
def RunOptionsSetTerminate(run_options: int, /) -> None: ...


@_ort(47, c_void_p)
def RunOptionsUnsetTerminate(run_options: int, /) -> None: ...


@_ort(49, c_void_p, c_void_p, c_size_t, POINTER(c_int64), c_size_t, c_int, POINTER(c_void_p))
def CreateTensorWithDataAsOrtValue(
    memory_info: int, data: int, size: int, shape: Array, rank: int, element_type: int, out: Out, /
) -> None: ...


@_ort(51, c_void_p, POINTER(c_void_p))
def GetTensorMutableData(value: int, out: Out, /) -> None: ...


@_ort(55, c_void_p, POINTER(c_void_p))
def CastTypeInfoToTensorInfo(type_info: int, out: Out, /) -> None: ...


@_ort(60, c_void_p, POINTER(c_int))
def GetTensorElementType(info: int, out: Out, /) -> None: ...


@_ort(61, c_void_p, POINTER(c_size_t))
def GetDimensionsCount(info: int, out: Out, /) -> None: ...


@_ort(62, c_void_p, POINTER(c_int64), c_size_t)
def GetDimensions(info: int, extents: Array, rank: int, /) -> None: ...


@_ort(65, c_void_p, POINTER(c_void_p))
def GetTensorTypeAndShape(value: int, out: Out, /) -> None: ...


@_ort(69, c_int, c_int, POINTER(c_void_p))
def CreateCpuMemoryInfo(allocator_type: int, memory_type: int, out: Out, /) -> None: ...


@_ort(76, c_void_p, c_void_p)
def AllocatorFree(allocator: int, memory: int, /) -> None: ...


@_ort(78, POINTER(c_void_p))
def GetAllocatorWithDefaultOptions(out: Out, /) -> None: ...


@_free(92, c_void_p)
def ReleaseEnv(env: int, /) -> None: ...


@_free(93, c_void_p)
def ReleaseStatus(status: int, /) -> None: ...


@_free(95, c_void_p)
def ReleaseSession(session: int, /) -> None: ...


@_free(96, c_void_p)
def ReleaseValue(value: int, /) -> None: ...


@_free(97, c_void_p)
def ReleaseRunOptions(run_options: int, /) -> None: ...


@_free(98, c_void_p)
def ReleaseTypeInfo(type_info: int, /) -> None: ...


@_free(99, c_void_p)
def ReleaseTensorTypeAndShapeInfo(info: int, /) -> None: ...


@_free(100, c_void_p)
def ReleaseSessionOptions(options: int, /) -> None: ...


@_ort(124, c_void_p, c_char_p, c_int64)
def AddFreeDimensionOverrideByName(options: int, name: bytes, extent: int, /) -> None: ...


@_ort(125, POINTER(c_void_p), POINTER(c_int))
def GetAvailableProviders(names: Out, count: Out, /) -> None: ...


@_ort(126, c_void_p, c_int)
def ReleaseAvailableProviders(names: int, count: int, /) -> None: ...


@_ort(130, c_void_p, c_char_p, c_char_p)
def AddSessionConfigEntry(options: int, key: bytes, value: bytes, /) -> None: ...


@_raw(133, c_void_p, c_void_p, c_void_p)
def RunWithBinding(session: int, run_options: int, binding: int, /) -> int | None: ...


@_ort(134, c_void_p, POINTER(c_void_p))
def CreateIoBinding(session: int, out: Out, /) -> None: ...


@_free(135, c_void_p)
def ReleaseIoBinding(binding: int, /) -> None: ...


@_ort(136, c_void_p, c_char_p, c_void_p)
def BindInput(binding: int, name: bytes, value: int, /) -> None: ...


@_ort(137, c_void_p, c_char_p, c_void_p)
def BindOutput(binding: int, name: bytes, value: int, /) -> None: ...


@_ort(204, c_void_p, c_void_p)
def SessionOptionsAppendExecutionProvider_CUDA_V2(options: int, cuda_options: int, /) -> None: ...


@_ort(205, POINTER(c_void_p))
def CreateCUDAProviderOptions(out: Out, /) -> None: ...


@_ort(206, c_void_p, c_void_p, c_void_p, c_size_t)
def UpdateCUDAProviderOptions(cuda_options: int, keys: Array, values: Array, count: int, /) -> None: ...


@_free(208, c_void_p)
def ReleaseCUDAProviderOptions(cuda_options: int, /) -> None: ...


@_ort(210, c_void_p, POINTER(c_char_p), POINTER(c_void_p), c_size_t)
def AddExternalInitializers(options: int, names: Array, values: Array, count: int, /) -> None: ...


@_ort(216, c_void_p, c_char_p, c_void_p, c_void_p, c_size_t)
def SessionOptionsAppendExecutionProvider(
    options: int, name: bytes, keys: Array, values: Array, count: int, /
) -> None: ...


@_ort(228, c_void_p, PathChar)
def RegisterCustomOpsLibrary_V2(options: int, path: Path, /) -> None: ...


@_ort(279, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
def AddExternalInitializersFromFilesInMemory(
    options: int, names: Array, buffers: Array, sizes: Array, count: int, /
) -> None: ...


@_ort(293, c_void_p, c_bool)
def SessionOptionsSetLoadCancellationFlag(options: int, cancel: bool, /) -> None: ...


@_raw(294)
def GetCompileApi() -> int: ...


@_text(297, c_void_p, c_char_p)
def GetKeyValue(pairs: int, key: bytes, /) -> bytes | None: ...


@_ort(301, c_void_p, c_char_p, PathChar)
def RegisterExecutionProviderLibrary(env: int, name: bytes, path: Path, /) -> None: ...


@_ort(303, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
def GetEpDevices(env: int, devices: Out, count: Out, /) -> None: ...


@_ort(304, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t)
def SessionOptionsAppendExecutionProvider_V2(
    options: int, env: int, devices: Array, device_count: int, keys: Array, values: Array, option_count: int, /
) -> None: ...


@_number(307, c_void_p)
def HardwareDevice_Type(device: int, /) -> int: ...


@_unsigned(308, c_void_p)
def HardwareDevice_VendorId(device: int, /) -> int: ...


@_text(309, c_void_p)
def HardwareDevice_Vendor(device: int, /) -> bytes: ...


@_unsigned(310, c_void_p)
def HardwareDevice_DeviceId(device: int, /) -> int: ...


@_raw(311, c_void_p)
def HardwareDevice_Metadata(device: int, /) -> int | None: ...


@_text(312, c_void_p)
def EpDevice_EpName(device: int, /) -> bytes: ...


@_raw(316, c_void_p)
def EpDevice_Device(device: int, /) -> int: ...


@_ort(318, c_void_p, POINTER(c_size_t))
def GetTensorSizeInBytes(value: int, out: Out, /) -> None: ...
