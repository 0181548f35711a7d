"""A decoder in several ONNX graphs, connected in one pipeline (design of `genai.load`).

Values go from graph to graph by their names. One graph takes the ids, one keeps the cache, and mask and positions are
bound by name. What the configuration says is read by `model_folder.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from winml_lite import Model, PipelineBuilder, Runtime, Stage, WinMLError

from .codes import NOT_SUPPORTED
from .endpoints import Endpoints
from .model_folder import DecoderPipeline, PipelineGraph, present_name, set_head_size
from .session_settings import SessionSettings, building

_PLACED = ("attention_mask", "position_ids")
Port = tuple[Stage, int]


@dataclass
class Assembly:
    """The stages so far. `finish` builds the pipeline; before it the options of stages can be set."""

    builder: PipelineBuilder
    pipeline: DecoderPipeline
    stages: list[Stage] = field(default_factory=list)
    settings: list[SessionSettings] = field(default_factory=list)
    """Those of the stages, in the same order."""
    state_owner: Stage | None = None
    token_input: Port | None = None
    logits_output: Port | None = None
    values: dict[str, Port] = field(default_factory=dict)
    """Where each value comes from that later graphs may take."""

    def add(self, graph: PipelineGraph, model: Model, runtime: Runtime, settings: SessionSettings) -> None:
        """Add one graph. WinMLError 0x80070032 for an input of no known kind."""
        stage = self.builder.add_model_stage(model, settings.make_target(runtime), graph.name)
        settings.prepare(stage)
        self.stages.append(stage)
        self.settings.append(settings)
        names, schema = model.ort_schema(), model.schema()
        outputs = {names.output_name(index): index for index in range(schema.output_count)}
        for index in range(schema.input_count):
            self._connect(graph, stage, (names.input_name(index), index), outputs)
        for name, index in outputs.items():
            self.values[graph.renamed.get(name, name)] = stage, index

    def _connect(self, graph: PipelineGraph, stage: Stage, port: tuple[str, int], outputs: dict[str, int]) -> None:
        name, index = port
        if name in self.values:
            self.builder.connect(*self.values[name], stage, index)
        elif name == self.pipeline.token_input:
            if self.token_input is not None:
                _refuse(graph.file, f"a second graph takes {name!r}")
            self.token_input = stage, index
        elif name.startswith("past"):
            present = present_name(name, outputs)
            if present is None:
                _refuse(graph.file, f"the input {name!r} has no matching present output")
            if self.state_owner not in (None, stage):
                _refuse(graph.file, "a second graph keeps a cache")
            self.state_owner = stage
            stage.add_state_tensor_pair(index, outputs[present])
        elif name not in _PLACED:
            _refuse(graph.file, f"nothing gives the input {name!r}")

    def finish(self, folder: Path, capacity: int, head_size: int | None) -> tuple[Endpoints, Stage]:
        """Build the pipeline with room for `capacity` tokens; return its endpoints and the stage with the cache."""
        wanted = self.pipeline.token_input, self.pipeline.logits_output
        logits = self.values.get(wanted[1])
        if self.token_input is None or logits is None or self.state_owner is None:
            _refuse(
                folder, f"its graphs need an input {wanted[0]!r}, an output {wanted[1]!r} and a cache (past, present)"
            )
        self.state_owner.set_sequence_capacity_hint(capacity)
        set_head_size(self.state_owner, head_size)
        others = tuple(self.stages)
        with building(*self.settings):
            built = self.builder.build()
        for settings in self.settings:
            settings.check(stage for stage, own in zip(self.stages, self.settings, strict=True) if own == settings)
        return Endpoints(built, *self.token_input, *logits, others=others), self.state_owner


def assemble_pipeline(
    runtime: Runtime, pipeline: DecoderPipeline, settings_of: Callable[[object], SessionSettings]
) -> Assembly:
    """Load the graphs of a decoder and connect them; `settings_of` reads what the file says of the session of one."""
    assembly = Assembly(runtime.create_pipeline_builder(), pipeline)
    for graph in pipeline.graphs:
        with runtime.load_model(graph.file) as model:
            assembly.add(graph, model, runtime, settings_of(graph.session_options))
    return assembly


def _refuse(file: Path, why: str) -> NoReturn:
    raise WinMLError(NOT_SUPPORTED, "genai.load", f"{file}: {why}")
