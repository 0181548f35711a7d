"""Find and load ONNX Runtime, and agree on an API version.

The library is the one that the installed `onnxruntime` package carries beside its extension module; that package is
located but never imported. `WINML_LITE_ORT_LIBRARY` names another library file: it is code that will be run.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...errors import MODULE_NOT_FOUND, WinMLError
from .. import ffi

ENVIRONMENT_VARIABLE = "WINML_LITE_ORT_LIBRARY"
OUR_API_VERSION = 24
LOWEST_API_VERSION = 22  # the first with devices of execution providers

_FILE_PATTERNS = ("libonnxruntime.so*", "onnxruntime.dll", "libonnxruntime.*dylib")
_MEND = f"Install it with `pip install onnxruntime`, or name a library file in {ENVIRONMENT_VARIABLE}."


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded library."""

    path: str
    version: str
    api_version: int
    table: int
    """Address of the `OrtApi` function table."""
    handle: ctypes.CDLL
    """Keeps the library loaded."""


class _ApiBase(ctypes.Structure):
    _fields_ = (
        ("GetApi", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
        ("GetVersionString", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    )


@cache
def load() -> Library:
    """Load the library once. Missing or too old is 0x8007007E with the mend."""
    handle, path = ffi.load_library(_candidates(), "ONNX Runtime", f"ONNX Runtime was not found. {_MEND}")
    try:
        get_base = handle.OrtGetApiBase
    except AttributeError:
        raise WinMLError(MODULE_NOT_FOUND, "loading ONNX Runtime", f"{path} is not ONNX Runtime. {_MEND}") from None
    get_base.restype, get_base.argtypes = ctypes.POINTER(_ApiBase), ()
    base = get_base().contents
    version = base.GetVersionString().decode()
    api_version = agreed_version(version, path)
    table = base.GetApi(api_version)
    if not table:
        raise WinMLError(MODULE_NOT_FOUND, "loading ONNX Runtime", f"{path} ({version}) refused API {api_version}")
    return Library(path, version, api_version, table, handle)


def agreed_version(version: str, path: str) -> int:
    """The API version to ask for: a library 1.N serves N and all before it; asking for more would print to stderr."""
    match = re.match(r"1\.(\d+)", version)
    minor = int(match[1]) if match else 0
    if minor < LOWEST_API_VERSION:
        raise WinMLError(
            MODULE_NOT_FOUND,
            "loading ONNX Runtime",
            f"{path} is version {version}, 1.{LOWEST_API_VERSION} or later is needed: `pip install -U onnxruntime`",
        )
    return min(OUR_API_VERSION, minor)


def _candidates() -> Iterator[str]:
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        yield os.path.abspath(chosen)
        return
    for folder in _package_folders():
        for pattern in _FILE_PATTERNS:
            yield from sorted(str(file) for file in Path(folder, "capi").glob(pattern))


def _package_folders() -> list[str]:
    try:
        spec = importlib.util.find_spec("onnxruntime")
    except ValueError:  # somebody put a module without a spec into sys.modules
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []
