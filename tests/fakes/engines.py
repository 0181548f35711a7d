"""The engines that a contract test runs on, as fixtures; `conftest.py` makes them known to every test.

    engine        the fake in the place of ONNX Runtime, ONNX Runtime, the fake in the place of llama.cpp, llama.cpp;
                  its value is a `Sample`, a small model with the same questions and known answers on each
    onnx_engine   the fake and ONNX Runtime, for statements about a certain graph
    gguf_engine   the fake and llama.cpp, for statements about a decoder
    both_engines  the fake in both places, and both engines, for pipelines with stages of both
    compose       `fakes.scripted.composed` on the fake, on ONNX Runtime and on llama.cpp, for statements about sessions
    fake_ort, fake_gguf, ort, llama   one of them

`tests/contract/engines.toml` lists the statements that do not run everywhere, `tests/rules/test_engines.py` checks it.
An engine that is not installed skips the test; under `check.py --ci` it fails it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import Block, FakeBackend, Script
from fakes.model_files import ModelFiles, require_engine
from winml_lite import (
    ExecutionTarget,
    Model,
    Pipeline,
    PipelineBuilder,
    Runtime,
    Stage,
    Tensor,
    TensorDataType,
    WinMLError,
)
from winml_lite.errors import CANCELLED
from winml_lite.native.backend import EngineKey, replaced_backend

if TYPE_CHECKING:
    from fakes.scripted import Compose

VOCABULARY_SIZE = 331
SUCCESSORS = {
    10: 259, 259: 261, 261: 264, 264: 271, 271: 273, 273: 279, 279: 44, 44: 280, 280: 283, 283: 287,
    287: 291, 291: 292, 292: 195, 195: 169, 169: 294, 294: 301, 301: 46, 46: 330,
}  # fmt: skip
"""What the scripted model says after each token, whatever stood before: 10 is a line feed, 330 ends the turn."""


def scripted_logits(ids: Sequence[int]) -> npt.ArrayLike:
    """What the scripted model says, and as its noise something that depends on the whole sequence."""
    row = np.zeros(VOCABULARY_SIZE, np.float32)
    row[(sum(ids) + len(ids)) % VOCABULARY_SIZE] = 1
    row[SUCCESSORS.get(ids[-1], 0)] += 10
    return row


@dataclass(frozen=True, slots=True)
class Sample:
    """A model with one output, two values for its input 0, and the answers to them.

    For ONNX Runtime `C[2] = A[2] + B[2]`, for llama.cpp the scripted decoder, whose answer is the likeliest token.
    """

    path: str
    is_decoder: bool
    first: tuple[float, ...]
    """The answer after one run as `built` leaves the stage."""
    second: tuple[float, ...]
    """The answer after a run with `other` at input 0."""

    def value(self, runtime: Runtime) -> Tensor:
        """A new tensor for input 0, whose answer is `first`."""
        return runtime.tensor_from_tokens([10]) if self.is_decoder else _floats(runtime, 1, 2)

    def other(self, runtime: Runtime) -> Tensor:
        """A new tensor for input 0, whose answer is `second`."""
        return runtime.tensor_from_tokens([259]) if self.is_decoder else _floats(runtime, 5, 6)

    def room(self, runtime: Runtime) -> Tensor:
        """A new tensor of zeros that takes output 0."""
        shape = (1, VOCABULARY_SIZE) if self.is_decoder else (2,)
        return runtime.create_tensor(TensorDataType.FLOAT32, shape)

    def answer(self, tensor: Tensor) -> tuple[float, ...]:
        """What an output says."""
        values = tensor.to_numpy()
        return (int(values.argmax()),) if self.is_decoder else tuple(values.tolist())

    def add(
        self,
        runtime: Runtime,
        builder: PipelineBuilder,
        *,
        model: Model | None = None,
        target: ExecutionTarget | None = None,
    ) -> Stage:
        """Add a stage with all inputs bound and nothing published; on the CPU, unless told otherwise."""
        place = target or runtime.create_cpu_target()
        stage = builder.add_model_stage(model or runtime.load_model(self.path), place)
        stage.bind_input(0, self.value(runtime))
        if self.is_decoder:
            stage.llama_options().thread_count = 1  # threads that wait for each other are slow beside other work
        else:
            stage.bind_input(1, _floats(runtime, 10, 20))
        return stage

    def unbuilt(self, runtime: Runtime) -> Stage:
        """A stage of a builder of its own, with all inputs bound and nothing published."""
        return self.add(runtime, runtime.create_pipeline_builder())

    def built(self, runtime: Runtime) -> tuple[Stage, Pipeline]:
        """A pipeline of one stage, its inputs bound and its output requested."""
        builder = runtime.create_pipeline_builder()
        stage = self.add(runtime, builder)
        stage.request_output(0)
        return stage, builder.build()


def _floats(runtime: Runtime, *values: float) -> Tensor:
    return runtime.tensor_from_numpy(np.array(values, np.float32))


def add_sample(files: ModelFiles) -> Sample:
    """The sample that ONNX Runtime runs."""
    return Sample(files.onnx("add"), is_decoder=False, first=(11, 22), second=(15, 26))


def decoder_sample(files: ModelFiles) -> Sample:
    """The sample that llama.cpp runs."""
    return Sample(files.scripted_gguf, is_decoder=True, first=(259,), second=(261,))


def hold(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Block:
    """Make the next run of a built stage wait inside its engine's `run`, until it is released or aborted."""
    executor: Any = stage.underlying_object.executor
    block, run, engine_abort, aborted = Block(), executor.run, executor.abort, Event()

    def held_run() -> None:
        monkeypatch.setattr(executor, "run", run)
        block.entered.set()
        assert block.release.wait(100), "nobody released the held run"
        monkeypatch.setattr(executor, "abort", engine_abort)
        if aborted.is_set():
            raise WinMLError(CANCELLED, "", "the run was aborted")
        run()

    def abort() -> None:
        aborted.set()
        block.release.set()

    monkeypatch.setattr(executor, "run", held_run)
    monkeypatch.setattr(executor, "abort", abort)
    return block


def spoil(stage: Stage, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make the next run of a built stage fail after its engine has done the work."""
    executor: Any = stage.underlying_object.executor
    run = executor.run

    def spoilt_run() -> None:
        monkeypatch.setattr(executor, "run", run)
        run()
        raise error

    monkeypatch.setattr(executor, "run", spoilt_run)


def _engine(name: str, key: EngineKey, script: Script, stack: ExitStack) -> None:
    """Put the fake in the place of an engine, or make sure that the real one is there."""
    if name != "fake":
        require_engine(key)
    elif key == "ort":
        stack.enter_context(replaced_backend("ort", FakeBackend(script)))
    else:
        stack.enter_context(replaced_backend("llama", FakeBackend(script, logits=scripted_logits)))


@pytest.fixture(params=["fake-onnx", "ort", "fake-gguf", "llama"])
def engine(request: pytest.FixtureRequest, files: ModelFiles, script: Script) -> Iterator[Sample]:
    """A small model on the fake engine in both places, on ONNX Runtime and on llama.cpp."""
    key: EngineKey = "ort" if request.param in ("fake-onnx", "ort") else "llama"
    with ExitStack() as stack:
        _engine(request.param.split("-")[0], key, script, stack)
        yield add_sample(files) if key == "ort" else decoder_sample(files)


@pytest.fixture(params=["fake", "ort"])
def onnx_engine(request: pytest.FixtureRequest, script: Script) -> Iterator[str]:
    """ONNX graphs run once on the fake engine and once on ONNX Runtime."""
    with ExitStack() as stack:
        _engine(request.param, "ort", script, stack)
        yield request.param


@pytest.fixture(params=["fake", "llama"])
def gguf_engine(request: pytest.FixtureRequest, script: Script) -> Iterator[str]:
    """Decoders run once on the fake engine and once on llama.cpp."""
    with ExitStack() as stack:
        _engine(request.param, "llama", script, stack)
        yield request.param


@pytest.fixture(params=["fake", "real"])
def both_engines(request: pytest.FixtureRequest, script: Script) -> Iterator[str]:
    """Graphs and decoders run once on the fake engine, and once on ONNX Runtime and llama.cpp."""
    with ExitStack() as stack:
        _engine("fake" if request.param == "fake" else "ort", "ort", script, stack)
        _engine("fake" if request.param == "fake" else "llama", "llama", script, stack)
        yield request.param


@pytest.fixture(params=["fake", "ort", "llama"])
def compose(request: pytest.FixtureRequest, files: ModelFiles) -> Compose:
    """Makes pipelines for sessions, on each engine."""
    from fakes.scripted import composed  # most tests need no tokenizer

    if request.param == "fake":
        return composed
    require_engine(request.param)
    return partial(composed, engine=request.param, models=files.folder)


@pytest.fixture
def fake_ort(script: Script) -> Iterator[FakeBackend]:
    """ONNX graphs run on the fake engine."""
    fake = FakeBackend(script)
    with replaced_backend("ort", fake):
        yield fake


@pytest.fixture
def fake_gguf(script: Script) -> Iterator[FakeBackend]:
    """Decoders run on the fake engine, as the scripted model."""
    fake = FakeBackend(script, logits=scripted_logits)
    with replaced_backend("llama", fake):
        yield fake


@pytest.fixture
def ort() -> None:
    """The test needs ONNX Runtime."""
    require_engine("ort")


@pytest.fixture
def llama() -> None:
    """The test needs llama.cpp."""
    require_engine("llama")
