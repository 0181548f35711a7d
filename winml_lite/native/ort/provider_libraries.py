"""Libraries that bring execution providers: those that a program registers, and those of installed packages.

Registering one runs its code, and it stays for as long as the process. Here: where libraries come from and what they
brought. Not here: the devices of their providers (`devices.py`).
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import pkgutil
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import E_FAIL, E_INVALIDARG, MODULE_NOT_FOUND, WinMLError
from ...files.mapped import is_same_file
from . import api
from .environment import ENGINE, environment

logger = logging.getLogger("winml_lite.native")

PACKAGE_PREFIX = "onnxruntime_ep_"
"""How modules are named that bring a provider; their `get_library_path()` and `get_ep_names()` say which."""

_CONTEXT = "IWinMLRuntime.RegisterExecutionProvider"


@dataclass(frozen=True, slots=True)
class ProviderLibrary:
    """A registered library."""

    path: str
    providers: tuple[str, ...]
    """Those that found hardware; () where there is none for them."""


_lock = threading.Lock()
_libraries: dict[str, ProviderLibrary] = {}
"""By name, like the one environment of this process keeps them."""


def ep_devices() -> tuple[int, ...]:
    """Return the library's list of `OrtEpDevice`, which the environment owns."""
    array, count = ctypes.c_void_p(), ctypes.c_size_t()
    api.GetEpDevices(environment().pointer, ctypes.byref(array), ctypes.byref(count))
    pointers = (ctypes.c_void_p * count.value).from_address(array.value) if array.value else ()
    return tuple(pointer for pointer in pointers if pointer)


def register_library(name: str, path: str) -> tuple[str, ...]:
    """Register a library under a name, once; return the providers of it that found hardware.

    One that does not load, or brings no provider, is 0x8007007E; another one under a name in use is 0x80070057.
    """
    ENGINE.check()
    path = os.path.abspath(path)
    with _lock:
        known = _libraries.get(name)
        if known is None:
            known = _libraries[name] = _register(name, path)
    if not is_same_file(known.path, path):
        text = f"{name!r} is the name of {known.path} in this process; register {path} under another one"
        raise WinMLError(E_INVALIDARG, _CONTEXT, text)
    return known.providers


def _register(name: str, path: str) -> ProviderLibrary:
    before = set(ep_devices())
    try:
        api.RegisterExecutionProviderLibrary(environment().pointer, name.encode(), api.native_path(path))
    except WinMLError as error:
        text = error.native_message or ""
        if "already registered" in text:
            raise WinMLError(E_INVALIDARG, _CONTEXT, f"{name!r} is a provider of ONNX Runtime itself") from None
        code = MODULE_NOT_FOUND if error.hresult == E_FAIL else error.hresult
        version = api.LIBRARY.version
        raise WinMLError(
            code, _CONTEXT, f"ONNX Runtime {version} gets no execution provider from {path}: {text}"
        ) from None
    providers = (api.EpDevice_EpName(pointer).decode() for pointer in ep_devices() if pointer not in before)
    return ProviderLibrary(path, tuple(dict.fromkeys(providers)))


@cache
def register_installed() -> tuple[str, ...]:
    """Register the libraries of installed packages, once in a process; return what is wrong with those that fail."""
    problems: list[str] = []
    for name in sorted(module.name for module in pkgutil.iter_modules() if module.name.startswith(PACKAGE_PREFIX)):
        try:
            _register_package(importlib.import_module(name))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a package comes up with, SystemExit too: the engine works without it
            reason = error.native_message if isinstance(error, WinMLError) else f"{type(error).__name__}: {error}"
            problems.append(f"the installed package {name} cannot be used: {reason}")
            logger.warning("%s", problems[-1])
    return tuple(problems)


def _register_package(module: Any) -> None:
    path = os.fsdecode(module.get_library_path())
    if not os.path.isfile(path):
        raise WinMLError(MODULE_NOT_FOUND, _CONTEXT, f"there is no file {path}")
    if any(is_same_file(library.path, path) for library in _libraries.values()):
        return
    names = module.get_ep_names() if hasattr(module, "get_ep_names") else [module.get_ep_name()]
    name = names if isinstance(names, str) else names[0]
    register_library(name, path)


def idle_libraries() -> tuple[str, ...]:
    """Describe the libraries that found no hardware."""
    return tuple(
        f"{name} ({library.path}) is registered, but finds no hardware here that it can use"
        for name, library in _libraries.items()
        if not library.providers
    )
