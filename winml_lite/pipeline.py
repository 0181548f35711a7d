"""Pipelines (runtime §12): run, reset, the busy rule, and values that go from one stage or iteration to the next.

A run is all or nothing: every stage runs, then every stage commits; when one fails, those that ran discard and nothing
has moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import CANCELLED, E_INVALIDARG, WinMLError
from .gate import Gate
from .handles import Closeable
from .native.backend import StageExecutor
from .stage_core import StageCore
from .storage import Storage

if TYPE_CHECKING:
    from .stage import Stage

_RUN = "IWinMLPipeline.Run"
_RESET = "IWinMLPipeline.ResetExecutionState"


@dataclass(frozen=True, slots=True)
class Edge:
    """An output of one stage that feeds an input of another (or, in the next iteration, of any stage)."""

    source: StageCore
    output: int
    target: StageCore
    input: int


class PipelineCore:
    """The stages in the order they run, the edges between them, and the values kept for the next iteration.

    A pipeline of one stage without edges, which is what a token loop runs, goes the short way: `single` is its
    executor.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_requested",
        "_edges",
        "_feedback",
        "_required",
        "_retained",
        "executors",
        "gate",
        "single",
        "stages",
    )

    def __init__(
        self, stages: Sequence[StageCore], edges: Sequence[Edge], feedback: Sequence[Edge], gate: Gate
    ) -> None:
        self.stages = tuple(stages)
        self.executors: tuple[StageExecutor, ...] = tuple(stage.built(_RUN) for stage in stages)
        self.gate = gate
        self._cancel_requested = False
        self._edges = tuple(edges)
        self._feedback = tuple(feedback)
        self._retained: dict[Edge, Storage] = {}
        self._required = tuple(stage.required_inputs() for stage in stages)
        self.single = self.executors[0] if len(self.executors) == 1 and not feedback else None

    def execute(self) -> None:
        """Run every stage once and commit; on any failure discard everything that ran."""
        gate = self.gate
        gate.has_outputs = False
        if Storage.open_locks:
            for stage in self.stages:
                stage.check_locks(_RUN)
        executor = self.single
        if executor is None:
            self._run_graph()
        else:
            try:
                executor.run()
                executor.commit()
            except BaseException:
                executor.discard()
                raise
        gate.run_count += 1
        gate.has_outputs = True

    def _run_graph(self) -> None:
        self._check_bindings()
        started: list[StageExecutor] = []
        try:
            for edge in self._feedback:
                value = self._retained.get(edge) or edge.target.inputs[edge.input]
                edge.target.built(_RUN).bind_input(edge.input, value)
            for stage, executor in zip(self.stages, self.executors, strict=True):
                for edge in self._edges:
                    if edge.target is stage:
                        executor.bind_input(edge.input, edge.source.built(_RUN).output(edge.output))
                if self._cancel_requested:
                    raise WinMLError(CANCELLED, _RUN, f"cancelled before {stage.debug_name}")
                started.append(executor)
                executor.run()
            retained = {edge: _kept(edge) for edge in self._feedback}
            for executor in self.executors:
                executor.commit()
            self._retained = retained
        except BaseException:
            for executor in started:
                executor.discard()
            raise
        finally:
            self._cancel_requested = False

    def _check_bindings(self) -> None:
        """Look for missing inputs before the first stage executes; the executors would look one by one."""
        for stage, required in zip(self.stages, self._required, strict=True):
            missing = required - stage.inputs.keys()
            if missing:
                raise WinMLError(E_INVALIDARG, _RUN, f"{stage.debug_name}: input {min(missing)} is not bound")

    def cancel(self) -> None:
        """Ask the active run, if there is one, to stop."""
        if self.gate.is_held:
            self._cancel_requested = True
            for executor in self.executors:
                executor.abort()

    def reset(self) -> None:
        """Go back to iteration 0 and position 0; bindings, publications and produced outputs stay."""
        self._retained = {}
        for executor in self.executors:
            if executor.sequence is not None:
                executor.sequence.reset()


def _kept(edge: Edge) -> Storage:
    """Return the value of a feedback edge for the next iteration.

    What is published is copied: the caller, or a failing run, may write to it before the value is used.
    """
    value = edge.source.built(_RUN).output(edge.output)
    if edge.output in edge.source.outputs:
        return Storage(value.data.copy(), value.data_type, value.shape)
    return value


class Pipeline(Closeable[PipelineCore]):
    """A built graph of stages. Any thread may call it; a second call at the same time is refused with 0x800700AA."""

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<Pipeline (closed)>"
        return f"<Pipeline of {', '.join(repr(stage.debug_name) for stage in core.stages)}>"

    def run(self) -> None:
        """Run one iteration and wait for it.

        A failing run moves no position, no state and no value of an earlier iteration.
        """
        core = self._open
        if core is None:
            raise RuntimeError("Pipeline is closed")
        core.gate.hold(_RUN, core.execute)

    def reset(self) -> None:
        """Drop the state of all stages and the values kept for the next iteration; keep bindings and publications."""
        core = self._core
        core.gate.hold(_RESET, core.reset)

    def owns(self, stage: Stage) -> bool:
        """Return whether `stage` is one of the stages of this pipeline."""
        wanted = stage.underlying_object
        return any(core is wanted for core in self._core.stages)

    def cancel_run(self) -> None:
        """Ask a run on another thread to stop early: it fails with 0x800704C7 and moves no state.

        Returns at once, and does nothing when no run is active. A run that has ended its work already succeeds.
        """
        self._core.cancel()
