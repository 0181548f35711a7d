"""`PipelineBuilder` (runtime §6): the rules of the graph, and `build`."""

from __future__ import annotations

from dataclasses import replace

from .checks import index_value, text_value
from .errors import (
    E_INVALIDARG,
    E_NOT_VALID_STATE,
    FILE_NOT_FOUND,
    MODULE_NOT_FOUND,
    NOT_SUPPORTED,
    WinMLError,
    recast,
)
from .gate import Gate
from .graph import Edge
from .handles import Closeable
from .model import Model, ModelCore
from .native.backend import OrtOptions, Placement, StageExecutor, backend
from .ort_extensions import pinned_provider, shared_context_entries
from .pipeline import Pipeline, PipelineCore
from .processor import Processor
from .sequence import check_state_options
from .speculation import check_speculation_options
from .stage import Stage
from .stage_core import StageCore
from .stage_source import StageSource
from .storage import descriptor_text
from .target import ExecutionTarget, RuntimeCore, target_core
from .values import ExecutionTargetKind

_BUILD = "IWinMLPipelineBuilder.Build"


class BuilderCore:
    """Stages in the order they were added, and edges between them."""

    __slots__ = ("edges", "feedback", "is_consumed", "runtime", "stages")

    def __init__(self, runtime: RuntimeCore) -> None:
        self.runtime = runtime
        self.stages: list[StageCore] = []
        self.edges: list[Edge] = []
        self.feedback: list[Edge] = []
        self.is_consumed = False

    def check_unconsumed(self, context: str) -> None:
        """Raise 0x8007139F after a successful `build`."""
        if self.is_consumed:
            raise WinMLError(E_NOT_VALID_STATE, context, "this builder has built its pipeline; make a new one")

    def add_stage(self, source: StageSource, target: ExecutionTarget | None, name: str, context: str) -> StageCore:
        """Append a stage made of a model or a processor."""
        place = target_core(target)
        text_value(name, "name")
        self.check_unconsumed(context)
        if source.runtime is not self.runtime or (place is not None and place.runtime is not self.runtime):
            raise WinMLError(E_INVALIDARG, context, "the stage and its target must belong to the builder's Runtime")
        stage = StageCore(source, place, name)
        self.stages.append(stage)
        return stage

    def edge(self, source: Stage, output: int, target: Stage, input_index: int, context: str) -> Edge:
        """Check the ends of a new edge."""
        edge = Edge(self._member(source, context), output, self._member(target, context), input_index)
        edge.source.check_index("outputs", output, context)
        edge.target.check_index("inputs", input_index, context)
        if input_index in edge.target.fed_inputs or input_index in edge.target.seed_inputs:
            raise WinMLError(E_INVALIDARG, context, f"input {input_index} of {edge.target.debug_name} has a producer")
        return edge

    def _member(self, stage: Stage, context: str) -> StageCore:
        if not isinstance(stage, Stage):
            raise TypeError(f"a connection joins stages, not {type(stage).__name__}")
        core = stage._core
        if not any(core is member for member in self.stages):
            raise WinMLError(E_INVALIDARG, context, f"{core.debug_name} is a stage of another builder")
        return core


class PipelineBuilder(Closeable[BuilderCore]):
    """Collects stages and connections; `build` makes the pipeline, once.

    After a failed `build` it can be used again.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<PipelineBuilder (closed)>"
        return f"<PipelineBuilder of {len(core.stages)} stages, {'built' if core.is_consumed else 'not built'}>"

    def add_model_stage(self, model: Model, target: ExecutionTarget | None = None, name: str = "stage") -> Stage:
        """Add a stage that runs `model` on `target` (None: placed automatically).

        Objects of another Runtime are 0x80070057.
        """
        core = self._core
        if not isinstance(model, Model):
            raise TypeError(f"model must be a Model, not {type(model).__name__}; runtime.load_model makes one")
        return Stage(core.add_stage(model._core, target, name, "IWinMLPipelineBuilder.AddModelStage"))

    def add_processor_stage(
        self, processor: Processor, target: ExecutionTarget | None = None, name: str = "stage"
    ) -> Stage:
        """Add a stage that runs `processor`, on the host: any target but a CPU fails at `build` (0x80070032).

        Objects of another Runtime are 0x80070057.
        """
        core = self._core
        if not isinstance(processor, Processor):
            raise TypeError(
                f"processor must be a Processor, not {type(processor).__name__}; runtime.create_processor makes one"
            )
        return Stage(core.add_stage(processor._core, target, name, "IWinMLPipelineBuilder.AddProcessorStage"))

    def connect(self, source: Stage, out_index: int, target: Stage, in_index: int) -> None:
        """Feed an input of `target` with an output of `source`, in the same iteration. An input has one producer."""
        core = self._core
        output, input_index = index_value(out_index, "out_index"), index_value(in_index, "in_index")
        context = "IWinMLPipelineBuilder.Connect"
        core.check_unconsumed(context)
        edge = core.edge(source, output, target, input_index, context)
        core.edges.append(edge)
        edge.target.fed_inputs.add(input_index)
        edge.source.internal_outputs.add(output)

    def connect_next_iteration(self, source: Stage, out_index: int, target: Stage, in_index: int) -> None:
        """Feed an input of `target` with an output of `source`, one iteration later.

        What is bound to the input seeds the first iteration.
        """
        core = self._core
        output, input_index = index_value(out_index, "out_index"), index_value(in_index, "in_index")
        context = "IWinMLPipelineBuilder.ConnectNextIteration"
        core.check_unconsumed(context)
        edge = core.edge(source, output, target, input_index, context)
        core.feedback.append(edge)
        edge.target.seed_inputs.add(input_index)
        edge.source.internal_outputs.add(output)

    def build(self) -> Pipeline:
        """Make the sessions and contexts, check that everything fits, and return the pipeline.

        Nothing falls back to another target. Failures carry the engine's text in `native_message`.
        """
        core = self._core
        core.check_unconsumed(_BUILD)
        try:
            pipeline = _build(core)
        except WinMLError as error:
            raise _explained(recast(error, _BUILD), core.stages) from error.__cause__
        core.is_consumed = True
        return Pipeline(pipeline)


def _build(core: BuilderCore) -> PipelineCore:
    if not core.stages:
        raise WinMLError(E_INVALIDARG, _BUILD, "there is no stage; use add_model_stage first")
    order = run_order(core.stages, core.edges)
    for stage in order:
        _check_stage(stage)
    entries = shared_context_entries(core.stages, _BUILD)
    alone = [stage for stage in core.stages if stage not in entries]
    executors = {stage: _make_executor(stage, entries.get(stage, ())) for stage in (*entries, *alone)}
    for edge in core.edges + core.feedback:
        _check_edge(edge, executors[edge.source], executors[edge.target])
    for stage, executor in executors.items():
        try:
            _bind_recorded(stage, executor)
        except WinMLError as error:
            raise recast(error, f"{_BUILD}, {stage.debug_name}") from error.__cause__
    gate = Gate()
    for stage, executor in executors.items():
        executor.watch(gate)
        stage.adopt(executor, gate)
    return PipelineCore(order, core.edges, core.feedback, gate)


def run_order(stages: list[StageCore], edges: list[Edge]) -> list[StageCore]:
    """Return the stages so that each follows those that feed it; otherwise in the order they were added."""
    order: list[StageCore] = []
    waiting = list(stages)
    while waiting:
        ready = next(
            (s for s in waiting if not any(edge.target is s and edge.source in waiting for edge in edges)), None
        )
        if ready is None:
            names = ", ".join(stage.debug_name for stage in waiting)
            raise WinMLError(E_INVALIDARG, _BUILD, f"the connections go in a circle: {names}")
        waiting.remove(ready)
        order.append(ready)
    return order


def _check_stage(stage: StageCore) -> None:
    """Refuse options that the engine of the stage cannot have."""
    check_state_options(stage)
    check_speculation_options(stage)
    for index in stage.inputs.keys() & stage.fed_inputs:
        raise WinMLError(E_INVALIDARG, _BUILD, f"{stage.debug_name}: input {index} is bound and fed by a connection")
    provider = pinned_provider(stage)
    ort = stage.options.ort
    if not stage.is_onnx:
        what = "a .gguf model" if stage.is_llama else "a processor"
        if ort is not None or stage.options.context_group is not None:
            raise WinMLError(NOT_SUPPORTED, _BUILD, f"{stage.debug_name}: {what} has no ONNX Runtime options")
        if provider is not None:
            raise WinMLError(NOT_SUPPORTED, _BUILD, f"{stage.debug_name}: {what} has no execution provider")
    elif ort is not None and ort.provider_options and provider is None:
        raise WinMLError(
            E_INVALIDARG,
            _BUILD,
            f"{stage.debug_name}: provider options need a provider: use create_ort_execution_target",
        )


def _make_executor(stage: StageCore, session_entries: tuple[tuple[str, str], ...]) -> StageExecutor:
    target = stage.target
    placement = Placement() if target is None else target.placement()
    options = stage.options.for_engine(stage.debug_name)
    if session_entries:
        ort = options.ort or OrtOptions()
        options = replace(options, ort=replace(ort, session_config=ort.session_config + session_entries))
    try:
        return stage.source.make_executor(placement, options)
    except WinMLError as error:
        raise recast(error, f"{_BUILD}, {stage.debug_name}") from error.__cause__


def _check_edge(edge: Edge, source: StageExecutor, target: StageExecutor) -> None:
    """Check indices, element types and fixed extents of an edge between built stages."""
    if edge.output >= len(source.outputs) or edge.input >= len(target.inputs):
        raise WinMLError(
            E_INVALIDARG,
            _BUILD,
            f"{edge.source.debug_name} has {len(source.outputs)} outputs and {edge.target.debug_name} "
            f"{len(target.inputs)} inputs: {edge.output} -> {edge.input} is out of range",
        )
    given, wanted = source.outputs[edge.output], target.inputs[edge.input]
    if not edge.target.source.accepts(edge.input, given, wanted):
        raise WinMLError(
            E_INVALIDARG,
            _BUILD,
            f"output {edge.output} of {edge.source.debug_name} is {descriptor_text(given)}, "
            f"input {edge.input} of {edge.target.debug_name} is {descriptor_text(wanted)}",
        )


def _bind_recorded(stage: StageCore, executor: StageExecutor) -> None:
    """Give a new executor the bindings and publications that were made before `build`."""
    for side, indices, count in (
        ("inputs", stage.inputs, len(executor.inputs)),
        ("outputs", stage.outputs, len(executor.outputs)),
    ):
        if any(index >= count for index in indices):
            raise WinMLError(E_INVALIDARG, "", f"there are {count} {side}, index {max(indices)} is none of them")
    for index, storage in stage.inputs.items():
        if index not in stage.seed_inputs:
            executor.bind_input(index, storage)
    stage.place_outputs(executor)


_HINTED = (FILE_NOT_FOUND, NOT_SUPPORTED, MODULE_NOT_FOUND)


def _explained(error: WinMLError, stages: list[StageCore]) -> WinMLError:
    """Add to a failed `build` of `.gguf` files what is missing on this machine (runtime §6.3)."""
    gguf = [
        stage
        for stage in stages
        if stage.is_llama and isinstance(stage.source, ModelCore) and stage.source.is_from_file
    ]
    if not gguf or error.hresult not in _HINTED:
        return error
    kinds = {stage.target.kind for stage in gguf if stage.target is not None}
    problem = backend("llama").describe().problem
    hint: str | None = None
    if problem is not None:
        hint = problem
    elif error.hresult == NOT_SUPPORTED and ExecutionTargetKind.NPU in kinds:
        hint = "llama.cpp does not run on an NPU; use a CPU target, or an ONNX form of the model"
    elif error.hresult == NOT_SUPPORTED and ExecutionTargetKind.GPU in kinds:
        hint = "a GPU target needs a build of llama.cpp with a GPU backend; install one, or use a CPU target"
    message = error.native_message or ""
    if hint is None or hint in message:
        return error
    return WinMLError(error.hresult, error.context, f"{message}; {hint}" if message else hint)
