"""A real engine whose models follow tables, and whose runs follow a `Script`: they are counted, block or fail where it
says so. The fake engine does the same in `scripted.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import cast

import numpy as np
import numpy.typing as npt

from fakes.backend import Block, Script
from models.recipes import table_decoder
from models.table_decoders import TableDecoder
from winml_lite import Pipeline, PipelineBuilder, Runtime, Stage, WinMLError
from winml_lite.errors import CANCELLED
from winml_lite.files.artifact import Artifact
from winml_lite.native.backend import Backend, EngineKey, Placement, Speculation, StageExecutor, StageOptions
from winml_lite.native.hardware import Device
from winml_lite.values import EngineInfo, SpeculativeCapabilities

Extend = Callable[[PipelineBuilder, Stage], None]


def build_tables(
    runtime: Runtime, folder: Path, engine: EngineKey, tables: TableDecoder, capacity: int, extend: Extend | None = None
) -> tuple[Stage, Pipeline]:
    """Build a pipeline of one stage that follows `tables` and has room for `capacity` tokens; models go to `folder`.

    `extend` adds other stages before the pipeline is built.
    """
    context_length = -(-capacity // 256) * 256  # what llama.cpp rounds up to, and it warns of a model with less
    model = runtime.load_model(table_decoder(folder, tables, ".onnx" if engine == "ort" else ".gguf", context_length))
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    if engine == "ort":
        stage.add_state_tensor_pair(1, 1)
        stage.ort_options().set_thread_count(1)  # threads that wait for each other are slow beside other work
    else:
        options = stage.llama_options()
        options.thread_count, options.key_type, options.value_type = 1, "f32", "f32"
    stage.set_sequence_capacity_hint(capacity)
    if extend is not None:
        extend(builder, stage)
    return stage, builder.build()


class ScriptedEngine:
    """Implements `Backend` over a real one. What its executors do beside running is theirs alone."""

    def __init__(self, backend: Backend, script: Script) -> None:
        self._backend = backend
        self._script = script

    def build_stage(self, artifact: Artifact, placement: Placement, options: StageOptions) -> StageExecutor:
        executor = self._backend.build_stage(artifact, placement, options)
        _follow(executor, self._script)
        return executor

    def describe(self) -> EngineInfo:
        return self._backend.describe()

    def devices(self) -> tuple[Device, ...]:
        return self._backend.devices()


def _follow(executor: StageExecutor, script: Script) -> None:
    """Put the script in front of runs and of steps over several positions, and let `abort` end a wait of it too."""
    engine_run, engine_commit, engine_abort = executor.run, executor.commit, executor.abort
    aborted = Event()
    waiting: list[Block] = []

    def follow() -> None:
        script.runs += 1
        number = script.runs
        aborted.clear()
        block = script.block_at.get(number)
        if block is not None:
            waiting.append(block)
            block.entered.set()
            assert block.release.wait(100), "nobody released the blocked run"
            waiting.clear()
            if aborted.is_set():
                raise WinMLError(CANCELLED, "", "the run was aborted")
        if number in script.call_at:
            script.call_at[number]()
        failure = script.fail_at.get(number)
        if failure is not None:
            raise failure

    def run() -> None:
        follow()
        engine_run()

    def follow_up() -> None:
        if script.runs in script.call_after:
            script.call_after[script.runs]()

    def commit() -> None:
        engine_commit()
        follow_up()

    def abort() -> None:
        aborted.set()
        for block in waiting:
            block.release.set()
        engine_abort()

    executor.run = run  # type: ignore[method-assign]
    executor.commit = commit  # type: ignore[method-assign]
    executor.abort = abort  # type: ignore[method-assign]
    kind = type(executor)
    engine_speculation = cast(property, kind.speculation).fget
    assert engine_speculation is not None

    def speculation(self: StageExecutor) -> Speculation | None:
        steps = engine_speculation(self)
        return None if steps is None else _ScriptedSteps(steps, follow, follow_up)

    executor.__class__ = type(kind.__name__, (kind,), {"speculation": property(speculation)})


class _ScriptedSteps:
    """Implements `Speculation`."""

    def __init__(self, steps: Speculation, follow: Callable[[], None], follow_up: Callable[[], None]) -> None:
        self._steps = steps
        self._follow = follow
        self._follow_up = follow_up

    @property
    def capabilities(self) -> SpeculativeCapabilities:
        return self._steps.capabilities

    def step(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        self._follow()
        rows = self._steps.step(tokens)
        self._follow_up()
        return rows

    def propose(self, pending: int, maximum: int) -> list[int]:
        return self._steps.propose(pending, maximum)
