"""What the test folders share: built models, the engines to run a test on, and walls around the machine."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import FakeBackend, Script
from winml_lite import Runtime
from winml_lite.native.backend import backend, replaced_backend


class ModelFiles:
    """Paths of the small models, each built when first asked for; only then are the builders imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def onnx(self, name: str) -> str:
        """A graph of `models.onnx_models`, by the name of its function."""
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            from models import onnx_models

            onnx_models.save(getattr(onnx_models, name)(), path)
        return str(path)

    @cached_property
    def external(self) -> tuple[str, bytes]:
        """A graph whose weights lie in `weights.bin` beside it, and the bytes of that file."""
        from models import onnx_models

        folder = self.folder / "external"
        folder.mkdir()
        model, weights = onnx_models.external_weights("weights.bin")
        (folder / "weights.bin").write_bytes(weights)
        return str(onnx_models.save(model, folder / "external.onnx")), weights

    @cached_property
    def gguf(self) -> str:
        """A tiny random decoder."""
        from models import recipes

        return str(recipes.random_gguf(self.folder))

    @cached_property
    def shards(self) -> Path:
        """The first file of a model in several files."""
        from models import recipes

        return recipes.sharded_gguf(self.folder)


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


def require_engine(key: Any) -> None:
    """Skip the test, saying why, when an engine is not installed."""
    if importlib.util.find_spec(f"winml_lite.native.{key}.backend") is None:
        pytest.skip(f"the engine {key} is not in this package")
    problem = backend(key).describe().problem
    if problem:
        pytest.skip(problem)


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
