"""Short words for what most tests of the object model do first: load, build, bind, and expect a failure with a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import Block
from winml_lite import Pipeline, Runtime, Stage, Tensor, WinMLError


def floats(runtime: Runtime, *values: float) -> Tensor:
    """A float32 vector."""
    return runtime.tensor_from_numpy(np.array(values, np.float32))


def integers(runtime: Runtime, *values: int) -> Tensor:
    """An int64 vector."""
    return runtime.tensor_from_numpy(np.array(values, np.int64))


def built(runtime: Runtime, path: str, *pairs: tuple[int, int], hint: int = 0) -> tuple[Stage, Pipeline]:
    """A pipeline of one stage; `pairs` are its state pairs, `hint` its capacity hint."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    for pair in pairs:
        stage.add_state_tensor_pair(*pair)
    if hint:
        stage.set_sequence_capacity_hint(hint)
    return stage, builder.build()


def built_add(runtime: Runtime, path: str) -> tuple[Stage, Pipeline]:
    """The graph C = A + B with A = (1, 2), B = (10, 20) bound and C requested."""
    stage, pipeline = built(runtime, path)
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.bind_input(1, floats(runtime, 10, 20))
    stage.request_output(0)
    return stage, pipeline


def result(stage: Stage, index: int = 0) -> list[float]:
    """The values of an output, flat."""
    values: npt.NDArray[np.float32] = stage.output(index).to_numpy()
    return [float(value) for value in values.reshape(-1)]


@contextmanager
def failing(code: int, kind: type[WinMLError] = WinMLError) -> Iterator[pytest.ExceptionInfo[WinMLError]]:
    """Expect exactly the exception class `kind` with this HRESULT."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind
    assert f"0x{caught.value.hresult:08X}" == f"0x{code:08X}"


@contextmanager
def running(pipeline: Pipeline, block: Block) -> Iterator[list[WinMLError]]:
    """Inside the block, `pipeline.run()` hangs in the fake engine on another thread; yields what it raised."""
    errors: list[WinMLError] = []

    def run() -> None:
        try:
            pipeline.run()
        except WinMLError as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    assert block.entered.wait(100)
    try:
        yield errors
    finally:
        block.release.set()
        thread.join(100)
