"""The real model of the tests: SmolLM2 from the catalog, fetched into the user's own cache and converted there once."""

from __future__ import annotations

import atexit
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from genai import catalog, download, named_models
from genai.cache import cache_folder
from genai.convert import convert_gguf
from genai.convert.conversion import Operators, Weights
from winml_lite import WinMLError

_CONNECT = socket.socket.connect
_HOME = os.environ.get("WINML_LITE_HOME")


@contextmanager
def _outside_the_walls() -> Iterator[None]:
    """Use the network and the cache of the user again, which `conftest.py` shuts off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _CONNECT)
        if _HOME is None:
            patch.delenv("WINML_LITE_HOME", raising=False)
        else:
            patch.setenv("WINML_LITE_HOME", _HOME)
        if not _is_writable(cache_folder()):
            patch.setenv("WINML_LITE_HOME", _temporary_home())
        yield


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@cache
def _temporary_home() -> str:
    """A cache for this run of the tests, where the user's own cannot be written."""
    folder = tempfile.TemporaryDirectory(prefix="winml-lite-tests-")
    atexit.register(folder.cleanup)
    return folder.name


def smollm2_gguf() -> Path:
    """Return the GGUF; skip the test where it is neither cached nor to be had (a failure where CI is set)."""
    entry = catalog.find("smollm2")
    assert entry is not None
    try:
        with _outside_the_walls():
            return download.pull(entry)
    except (WinMLError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"SmolLM2 is not to be had: {error}")


def catalog_model(name: str) -> Path:
    """Return the file or folder of another model of the catalog, converted where it has to be; skip as above."""
    entry = catalog.find(name)
    assert entry is not None
    try:
        with _outside_the_walls():
            return named_models.prepare(entry)
    except (WinMLError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} is not to be had: {error}")


def smollm2_onnx(operators: Operators, weights: Weights) -> Path:
    """Return SmolLM2 as an ONNX model folder."""
    gguf = smollm2_gguf()
    entry = catalog.find("smollm2")
    assert entry is not None
    with _outside_the_walls():
        folder = download.converted_folder(replace(entry, variant=f"test-{operators}-{weights}"))
        with download.locked(folder):
            if not (folder / "genai_config.json").is_file():
                convert_gguf(gguf, folder, operators=operators, weights=weights)
    return folder
