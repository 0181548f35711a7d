# mypy: disable-error-code="empty-body"
"""The entries of the `OrtCompileApi` function table that are used, and those of `OrtApi` that only they need.

Importing this module loads the library, which must have API 23. Numbers, types and checks are those of `api.py`.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

from .. import ffi
from . import api

WriteFunction = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)
LocationFunction = CFUNCTYPE(c_void_p, c_void_p, c_char_p, c_void_p, c_void_p, POINTER(c_void_p))

_base = ffi.slots(api.LIBRARY.table, api._check)
_ort = ffi.slots(api.GetCompileApi(), api._check)
_free = ffi.slots(api.GetCompileApi(), None, None)


@_base(389, api.PathChar, c_int64, c_size_t, POINTER(c_void_p))
def CreateExternalInitializerInfo(path: api.Path, offset: int, size: int, out: api.Out, /) -> None: ...


@_free(0, c_void_p)
def ReleaseModelCompilationOptions(options: int, /) -> None: ...


@_ort(1, c_void_p, c_void_p, POINTER(c_void_p))
def CreateModelCompilationOptionsFromSessionOptions(env: int, session_options: int, out: api.Out, /) -> None: ...


@_ort(2, c_void_p, api.PathChar)
def ModelCompilationOptions_SetInputModelPath(options: int, path: api.Path, /) -> None: ...


@_ort(3, c_void_p, c_char_p, c_size_t)
def ModelCompilationOptions_SetInputModelFromBuffer(options: int, data: bytes, size: int, /) -> None: ...


@_ort(4, c_void_p, api.PathChar)
def ModelCompilationOptions_SetOutputModelPath(options: int, path: api.Path, /) -> None: ...


@_ort(5, c_void_p, api.PathChar, c_size_t)
def ModelCompilationOptions_SetOutputModelExternalInitializersFile(
    options: int, path: api.Path, threshold: int, /
) -> None: ...


@_ort(8, c_void_p, c_void_p)
def CompileModel(env: int, options: int, /) -> None: ...


@_ort(9, c_void_p, c_uint32)
def ModelCompilationOptions_SetFlags(options: int, flags: int, /) -> None: ...


@_ort(11, c_void_p, c_int)
def ModelCompilationOptions_SetGraphOptimizationLevel(options: int, level: int, /) -> None: ...


@_ort(12, c_void_p, WriteFunction, c_void_p)
def ModelCompilationOptions_SetOutputModelWriteFunc(options: int, function: Any, state: int | None, /) -> None: ...


@_ort(13, c_void_p, LocationFunction, c_void_p)
def ModelCompilationOptions_SetOutputModelGetInitializerLocationFunc(
    options: int, function: Any, state: int | None, /
) -> None: ...
