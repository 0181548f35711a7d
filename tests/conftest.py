"""What the test folders share: built models, the engines to run a test on, and walls around the machine."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import Script
from fakes.decoders import decoder  # noqa: F401
from fakes.engines import (  # noqa: F401
    both_engines,
    compose,
    engine,
    fake_gguf,
    fake_ort,
    gguf_engine,
    llama,
    onnx_engine,
    ort,
)
from fakes.ggml_provider import ggml  # noqa: F401
from fakes.model_files import ModelFiles
from fakes.real_models import smollm2_gguf as fetch_smollm2
from fakes.real_models import smollm2_onnx as convert_smollm2
from winml_lite import Runtime

# A job in the background of a shell starts with SIGINT ignored, and its children would inherit that: tests send them
# SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return ModelFiles(tmp_path_factory.mktemp("models"))


@pytest.fixture
def script() -> Script:
    """What the fake engine shall do, and what it has done."""
    return Script()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


# Session fixtures are made before the walls below go up: these may use the network and the user's cache.


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return fetch_smollm2()


@pytest.fixture(scope="session")
def smollm2_q8(smollm2_gguf: Path) -> Path:
    """SmolLM2 as an ONNX model folder: fused operators, 8-bit weights."""
    return convert_smollm2("gqa", "q8")


@pytest.fixture(scope="session")
def smollm2_f16(smollm2_gguf: Path) -> Path:
    """SmolLM2 as an ONNX model folder: portable operators, weights stored as float16."""
    return convert_smollm2("plain", "f16")


@pytest.fixture(scope="session")
def smollm2_f32(smollm2_gguf: Path) -> Path:
    """SmolLM2 as an ONNX model folder: portable operators, float32."""
    return convert_smollm2("plain", "f32")


@pytest.fixture(autouse=True)
def _walls(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests off the caches of the user and off the network."""
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path_factory.getbasetemp() / "home"))
    connect: Callable[..., Any] = socket.socket.connect

    def connect_to_loopback(self: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "localhost", "::1"):
            raise OSError(f"a test must not connect to {address[0]}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_to_loopback)
