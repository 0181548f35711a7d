"""Stages that feed each other: one iteration of a built graph, all or nothing (runtime §6.1, 12.1 and 12.4).

What goes over an edge is bound once where it can be. After the first run, an output that only edges read and whose
shape is fixed gets a storage for good, as does a small value that is fed back; from then on a run binds nothing. A
small output of a free shape that is fed back gets one after two runs that made the same shape. Should it ever make
another, the engine refuses the storage before it writes, and the stage runs once more without.

Not here: who may run when (`pipeline.py`), which edges are allowed (`builder.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .errors import E_INVALIDARG, WinMLError, recast
from .native.backend import StageExecutor
from .stage_core import StageCore
from .storage import Storage, allocate
from .values import Descriptor, is_fixed

_RUN = "IWinMLPipeline.Run"
_COPIED_BYTES = 1 << 16
"""Values up to this size are copied from iteration to iteration: cheaper than binding a new storage each time."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An output of one stage that feeds an input of another (or, in the next iteration, of any stage)."""

    source: StageCore
    output: int
    target: StageCore
    input: int


class Link:
    """An edge between built stages. It remembers what its input is bound to, so that only a change is bound."""

    __slots__ = ("_bound", "edge", "source", "target")

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.source = edge.source.built(_RUN)
        self.target = edge.target.built(_RUN)
        self._bound: Storage | None = None

    def carry(self) -> None:
        """Bind the input to what the output is in this run."""
        self.bind(self.source.output(self.edge.output))

    def bind(self, storage: Storage) -> None:
        """Bind the input."""
        if storage is not self._bound:
            self._bound = None  # until it is done, whatever interrupts
            try:
                self.target.bind_input(self.edge.input, storage)
            except WinMLError as error:
                source, target = self.edge.source.debug_name, self.edge.target.debug_name
                raise recast(error, f"output {self.edge.output} of {source} does not fit {target}") from error.__cause__
            self._bound = storage


class FeedbackLink(Link):
    """A link to the next iteration, with the value that is kept for it."""

    __slots__ = ("_own", "_value")

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self._own: Storage | None = None
        """A storage that the kept values are copied to, as long as they fit."""
        self._value: Storage | None = None

    @property
    def has_own_storage(self) -> bool:
        return self._own is not None

    def carry(self) -> None:
        """Bind the input to the kept value; in the first iteration, to what the caller has bound there."""
        self.bind(self._value or self.edge.target.inputs[self.edge.input])

    def produced(self) -> Storage:
        """Return what the source has just produced, as `keep` can keep it."""
        stage, output = self.edge.source, self.edge.output
        value = self.source.output(output)
        if self._own is None and value.data.size <= _COPIED_BYTES:
            self._own = allocate(*value.descriptor)
        if self._fits(value):
            return value
        if output in stage.outputs or stage.options.caller_owns_state or stage.source.kept:
            # The caller, or a failing run, may write to it before it is used.
            return Storage(value.copy(), value.data_type, value.shape)
        return value

    def keep(self, value: Storage) -> None:
        """Keep what `produced` has returned for the next iteration. It cannot fail."""
        if self._fits(value) and self._own is not None:
            self._own.data[:] = value.data
            value = self._own
        self._value = value

    def forget(self) -> None:
        """Begin again with what the caller has bound."""
        self._value = None

    def _fits(self, value: Storage) -> bool:
        return self._own is not None and value.shape == self._own.shape


@dataclass(slots=True)
class _Candidate:
    """An output that may get a storage for good, with the feedback links that read it."""

    stage: StageCore
    executor: StageExecutor
    output: int
    readers: tuple[FeedbackLink, ...]
    made: Descriptor | None = None
    """What an earlier run made, of an output whose shape is free."""

    def is_constant(self, made: Descriptor) -> bool | None:
        """Return whether an output that a run has made will stay as it is; None is too early to tell."""
        if not all(reader.has_own_storage for reader in self.readers):
            return False
        if is_fixed(self.executor.outputs[self.output][1]):
            return made == self.executor.outputs[self.output]
        before, self.made = self.made, made
        return None if before is None else made == before


class Graph:
    """The stages of a pipeline in the order they run, and the edges between them."""

    __slots__ = ("_candidates", "_feedback", "_presumed", "_steps", "executors", "stages")

    def __init__(self, stages: Sequence[StageCore], edges: Sequence[Edge], feedback: Sequence[Edge]) -> None:
        self.stages = tuple(stages)
        self.executors: tuple[StageExecutor, ...] = tuple(stage.built(_RUN) for stage in stages)
        links = [Link(edge) for edge in edges]
        self._steps = tuple(
            (executor, tuple(link for link in links if link.edge.target is stage))
            for stage, executor in zip(self.stages, self.executors, strict=True)
        )
        self._feedback = tuple(FeedbackLink(edge) for edge in feedback)
        sources = dict.fromkeys((edge.source, edge.output) for edge in (*edges, *feedback))
        candidates = [self._candidate(stage, output) for stage, output in sources]
        self._candidates = [candidate for candidate in candidates if _is_movable(candidate)]
        self._presumed: dict[StageCore, list[int]] = {}
        """Outputs of free shapes that have a storage."""

    def _candidate(self, stage: StageCore, output: int) -> _Candidate:
        readers = (link for link in self._feedback if link.edge.source is stage and link.edge.output == output)
        return _Candidate(stage, stage.built(_RUN), output, tuple(readers))

    @property
    def has_feedback(self) -> bool:
        return bool(self._feedback)

    def reaches(self, source: StageCore, target: StageCore) -> bool:
        """Whether `target` is `source`, or gets something of it in the same iteration."""
        reached = {source}
        for stage, (_, links) in zip(self.stages, self._steps, strict=True):
            if any(link.edge.source in reached for link in links):
                reached.add(stage)
        return target in reached

    def run(self, check_cancelled: Callable[[], None]) -> None:
        """Run every stage once, then commit all; on any failure discard what ran.

        `check_cancelled` raises when the run shall stop.
        """
        for stage in self.stages:
            if stage.missing:  # looked for before the first stage executes; the executors would look one by one
                raise WinMLError(E_INVALIDARG, _RUN, f"{stage.debug_name}: input {min(stage.missing)} is not bound")
        started = 0
        try:
            for feedback in self._feedback:
                feedback.carry()
            for executor, links in self._steps:
                for link in links:
                    link.carry()
                check_cancelled()
                started += 1
                try:
                    executor.run()
                except WinMLError as error:
                    if not self._run_freely(started - 1, error):
                        if error.is_final:
                            raise
                        raise _named(error, self.stages[started - 1]) from error.__cause__
            values = [feedback.produced() for feedback in self._feedback]
        except BaseException:
            # The last first: two stages may have changed one tensor of the caller, see `processor_stage.Journal`.
            for executor in reversed(self.executors[:started]):
                executor.discard()
            raise
        self._commit(values)
        if self._candidates:
            self._settle()

    def _commit(self, values: Sequence[Storage]) -> None:
        """Make what all stages did the present state; Ctrl-C in the midst of it does not stop it halfway."""
        count = 0
        try:
            for executor in self.executors:
                count += 1
                executor.commit()
        except BaseException:
            for executor in self.executors[count:]:
                executor.commit()
            raise
        finally:
            for link, value in zip(self._feedback, values, strict=True):
                link.keep(value)

    def _run_freely(self, step: int, error: WinMLError) -> bool:
        """After a failure that a storage for a free shape may have caused run the stage without; else return False."""
        stage, executor = self.stages[step], self.executors[step]
        outputs = self._presumed.pop(stage, ()) if error.hresult == E_INVALIDARG else ()
        if not outputs:
            return False
        for output in outputs:
            stage.settle_output(output, None)
        executor.discard()
        try:
            executor.run()
        except WinMLError as failure:
            raise _named(failure, stage) from failure.__cause__
        return True

    def _settle(self) -> None:
        """Give outputs a storage for good, once runs have shown what shape they have."""
        waiting = []
        for candidate in self._candidates:
            stage, executor, output = candidate.stage, candidate.executor, candidate.output
            if output in stage.outputs:
                waiting.append(candidate)  # a published output may be withdrawn later
                continue
            made = executor.output(output).descriptor
            is_constant = candidate.is_constant(made)
            if is_constant is None:
                waiting.append(candidate)
            elif is_constant:
                with suppress(WinMLError):  # too little memory: the run has succeeded, and others can go on as it did
                    stage.settle_output(output, allocate(*made))
                    if candidate.made is not None:
                        self._presumed.setdefault(stage, []).append(output)
        self._candidates = waiting

    def forget_values(self) -> None:
        """Drop the values kept for the next iteration: it is the first again."""
        for link in self._feedback:
            link.forget()


def _named(error: WinMLError, stage: StageCore) -> WinMLError:
    """Say which stage has failed."""
    if error.context == _RUN:  # it will be the context again, of the call as a whole
        return WinMLError(error.hresult, stage.debug_name, error.native_message)
    return recast(error, stage.debug_name)


def _is_movable(candidate: _Candidate) -> bool:
    """Whether an output may have a constant shape, and no place of its own, as state and tensors of processors have.

    Of those with free shapes it is the ones of models that are fed back: a stage in Python code shall run once.
    """
    stage, output = candidate.stage, candidate.output
    if stage.source.kept or any(output == pair[1] for pair in stage.options.state_pairs):
        return False
    return is_fixed(candidate.executor.outputs[output][1]) or (stage.is_onnx and bool(candidate.readers))
