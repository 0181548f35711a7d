"""A real engine whose models follow tables, and whose runs follow a `Script`: they are counted, block or fail where it
says so. The fake engine does the same in `scripted.py`.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event

from fakes.backend import Block, Script
from models.recipes import table_decoder
from models.table_decoders import TableDecoder
from winml_lite import Pipeline, Runtime, Stage, WinMLError
from winml_lite.errors import CANCELLED
from winml_lite.files.artifact import Artifact
from winml_lite.native.backend import Backend, EngineKey, Placement, StageExecutor, StageOptions
from winml_lite.native.hardware import Device
from winml_lite.values import EngineInfo


def build_tables(
    runtime: Runtime, folder: Path, engine: EngineKey, tables: TableDecoder, capacity: int
) -> tuple[Stage, Pipeline]:
    """Build a pipeline of one stage that follows `tables` and has room for `capacity` tokens; models go to `folder`."""
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
    """Put the script in front of `run`, and let `abort` end a wait of the script too."""
    engine_run, engine_abort, aborted = executor.run, executor.abort, Event()
    waiting: list[Block] = []

    def run() -> None:
        script.runs += 1
        number = script.runs
        aborted.clear()
        block = script.block_at.get(number)
        if block is not None:
            waiting.append(block)
            block.entered.set()
            assert block.release.wait(30), "nobody released the blocked run"
            waiting.clear()
            if aborted.is_set():
                raise WinMLError(CANCELLED, "", "the run was aborted")
        if number in script.call_at:
            script.call_at[number]()
        failure = script.fail_at.get(number)
        if failure is not None:
            raise failure
        engine_run()

    def abort() -> None:
        aborted.set()
        for block in waiting:
            block.release.set()
        engine_abort()

    executor.run = run  # type: ignore[method-assign]
    executor.abort = abort  # type: ignore[method-assign]
