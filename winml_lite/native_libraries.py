"""Libraries that a caller has an engine load: execution providers and custom operators (runtime §18.3, tensors §11.3).

They are code that will be run. Here: the checks that come before an engine is asked, and the border to it.
"""

from __future__ import annotations

import os
import stat
from typing import cast

from .errors import E_INVALIDARG, WinMLError, recast
from .model import probe_file
from .native.backend import backend
from .native.providers import ProviderBackend

_REGISTER = "IWinMLRuntime.RegisterExecutionProvider"


def library_file(path: str, context: str) -> str:
    """Return the absolute path of a library: engines look elsewhere for a file that is not there."""
    try:
        status = probe_file(path)
    except WinMLError as error:
        raise WinMLError(error.hresult, context, error.native_message) from None
    if stat.S_ISDIR(status.st_mode):
        raise WinMLError(E_INVALIDARG, context, f"{path} is a folder; pass the library file in it")
    if not stat.S_ISREG(status.st_mode):  # to open a pipe is to wait for it
        raise WinMLError(E_INVALIDARG, context, f"{path} is a device or a pipe, not a file")
    return os.path.abspath(path)


def provider_problems() -> tuple[str, ...]:
    """Return why providers that are there offer no device; () without their engine."""
    engine = cast(ProviderBackend, backend("ort"))
    return () if engine.describe().problem is not None else engine.provider_problems()


def register_provider(name: str, path: str) -> tuple[str, ...]:
    """Register a library of execution providers; return those that found hardware."""
    engine = cast(ProviderBackend, backend("ort"))
    try:
        return engine.register_provider(name, library_file(path, _REGISTER))
    except WinMLError as error:
        raise recast(error, _REGISTER) from None
