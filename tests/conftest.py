"""What the test folders share: built models, the engines to run a test on, and walls around the machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles, require_engine
from winml_lite import Runtime
from winml_lite.native.backend import replaced_backend


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return ModelFiles(tmp_path_factory.mktemp("models"))


@pytest.fixture
def script() -> Script:
    """What the fake engine shall do, and what it has done."""
    return Script()


@pytest.fixture
def fake_ort(script: Script) -> Iterator[FakeBackend]:
    """ONNX graphs run on the fake engine."""
    fake = FakeBackend(script)
    with replaced_backend("ort", fake):
        yield fake


@pytest.fixture(params=["fake", "ort"])
def onnx_engine(request: pytest.FixtureRequest, script: Script) -> Iterator[str]:
    """Run the test once on the fake engine and once on ONNX Runtime."""
    if request.param == "fake":
        with replaced_backend("ort", FakeBackend(script)):
            yield "fake"
    else:
        require_engine("ort")
        yield "ort"


@pytest.fixture
def ort() -> None:
    """The test needs ONNX Runtime."""
    require_engine("ort")


@pytest.fixture
def llama() -> None:
    """The test needs llama.cpp."""
    require_engine("llama")


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


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
