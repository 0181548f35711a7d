"""Pipelines (runtime §12): run, reset, the busy rule, and values that go from one stage or iteration to the next.

A run is all or nothing: every stage runs, then every stage commits; when one fails, those that ran discard and nothing
has moved. Not here: work in the background (`execution.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import WinMLError, recast
from .execution import PipelineExecution, PipelineIterationExecution
from .gate import Gate
from .graph import Edge, Graph
from .handles import Closeable
from .native.backend import StageExecutor
from .native.teams import release_team
from .stage_core import StageCore
from .staging import fetch_bound, publish_bound
from .storage import Storage
from .written_memory import check_outputs_apart

if TYPE_CHECKING:
    from .stage import Stage

_RUN = "IWinMLPipeline.Run"
_RESET = "IWinMLPipeline.ResetExecutionState"


class PipelineCore:
    """A graph of stages and the right to run it.

    A pipeline of one stage without edges, which is what a token loop runs, goes the short way: `single` is its
    executor.
    """

    __slots__ = (
        "__weakref__",
        "edges",
        "executors",
        "feedback",
        "gate",
        "graph",
        "single",
        "stages",
        "submission_count",
    )

    def __init__(
        self, stages: Sequence[StageCore], edges: Sequence[Edge], feedback: Sequence[Edge], gate: Gate
    ) -> None:
        self.stages = tuple(stages)
        self.executors: tuple[StageExecutor, ...] = tuple(stage.built(_RUN) for stage in stages)
        self.gate = gate
        self.submission_count = 0
        self.edges = tuple(edges)
        self.feedback = tuple(feedback)
        self.graph = Graph(stages, edges, feedback)
        self.single = self.executors[0] if len(self.executors) == 1 and not feedback else None

    def execute(self) -> None:
        """Run every stage once and commit; on any failure discard everything that ran."""
        gate = self.gate
        gate.has_outputs = False
        if gate.has_unchecked_outputs:
            self._check_outputs()
        has_staged = Storage.staged_count
        if has_staged or Storage.open_locks:
            self._look_at_storages()
        executor = self.single
        if executor is None:
            self.graph.run(gate.check_cancelled)
        else:
            try:
                executor.run()  # it looks at `gate.cancelled` itself
                executor.commit()
            except BaseException:
                executor.discard()
                raise
        if has_staged:
            publish_bound(self.stages)
        gate.run_count += 1
        gate.has_outputs = True

    def iterate(self, count: int) -> None:
        """Run `count` iterations, up to the first that fails; outputs are there after the last one."""
        gate = self.gate
        gate.has_outputs = False
        if gate.has_unchecked_outputs:
            self._check_outputs()
        for number in range(1, count + 1):
            try:
                if Storage.open_locks or Storage.staged_count:
                    self._look_at_storages()
                self.graph.run(gate.check_cancelled)
                if Storage.staged_count:
                    publish_bound(self.stages)
            except WinMLError as error:
                if error.is_final:
                    raise
                raise recast(error, f"iteration {number} of {count}") from error.__cause__
            gate.run_count += 1
        gate.has_outputs = True

    def _check_outputs(self) -> None:
        """Refuse a run that would write two outputs to one place."""
        self.gate.has_unchecked_outputs = check_outputs_apart(self.stages, self.edges, self.feedback)

    def _look_at_storages(self) -> None:
        """Refuse a run on locked tensors, and bring copies of staged memory up to date."""
        for stage in self.stages:
            stage.check_locks(_RUN)
        fetch_bound(self.stages)

    def cancel(self, claim: object = None) -> None:
        """Ask the call that holds the gate, if there is one, to stop; with `claim` only that one."""
        holder = self.gate.holder
        if holder is None or claim not in (None, holder):
            return
        self.gate.cancelled = holder  # before `abort`: a run that is about to begin looks at it, see `stopping.py`
        for executor in self.executors:
            executor.abort()

    def reset(self) -> None:
        """Go back to iteration 0 and position 0; bindings, publications and produced outputs stay."""
        self.graph.forget_values()
        for stage, executor in zip(self.stages, self.executors, strict=True):
            stage.drop_segment()
            if executor.sequence is not None:
                executor.sequence.reset()


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

    def execution(self) -> PipelineExecution:
        """Return the view that runs single iterations in the background."""
        return PipelineExecution(self._core)

    def iteration_execution(self) -> PipelineIterationExecution:
        """Return the view that runs a number of iterations in the background."""
        return PipelineIterationExecution(self._core)

    def reset(self) -> None:
        """Drop the state of all stages and the values kept for the next iteration; keep bindings and publications."""
        core = self._core
        core.gate.hold(_RESET, core.reset)

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return len(self._core.stages)

    @property
    def run_count(self) -> int:
        """Iterations that have succeeded since `build`."""
        return self._core.gate.run_count

    def owns(self, stage: Stage) -> bool:
        """Return whether `stage` is one of the stages of this pipeline."""
        if not isinstance(stage, Closeable):
            raise TypeError(f"stage must be a Stage, not {type(stage).__name__}")
        wanted = stage.underlying_object
        return any(core is wanted for core in self._core.stages)

    def is_connected(self, stage: Stage, input_index: int, *, next_iteration: bool = False) -> bool:
        """Return whether another stage feeds an input in the same iteration, or any stage in the next one."""
        if not self.owns(stage):
            return False
        core = stage._core
        return input_index in (core.seed_inputs if next_iteration else core.fed_inputs)

    def release_threads(self) -> None:
        """Let go of the compute threads that an engine keeps for the calling thread; its next run makes them again.

        llama.cpp on Linux keeps some for every thread that has run a GGUF model, until that thread ends. Once there are
        more of them than CPUs, every run takes two or three times as long. So a thread that lives on, and leaves the
        next runs to others, calls this when it is done: it takes about 0.2 ms. The text layer does so after each
        generation. Other engines keep none.
        """
        self._core  # noqa: B018  (raises on a closed object)
        release_team()

    def cancel_run(self) -> None:
        """Ask a run on another thread, or submitted work, to stop early: it fails with 0x800704C7 and moves no state.

        Returns at once, and does nothing when no run is active. A run that has ended its work already succeeds. Of
        several iterations those that are done stay done.
        """
        self._core.cancel()
