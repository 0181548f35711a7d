"""Embeddings by llama.cpp: encoders, and decoders whose last hidden states serve as embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from winml_lite import GgufFile, NotSupportedError, Pipeline, PipelineBuilder, Runtime, Stage

from .cancellation import CancellationLatch
from .codes import NOT_SUPPORTED
from .embedding import Pooling, Rows, TextPooling
from .operation_failures import past_late_cancel

_BY_NUMBER: dict[object, TextPooling] = {1: "mean", 2: "cls", 3: "last"}
"""Values of `pooling_type` in a file."""


class GgufEncoder:
    """Implements `Encoder`. A stage is built for each way of pooling that is asked for; they share the weights.

    `add_stage` adds a stage of the model to a builder, with the options of loading.
    """

    def __init__(
        self,
        runtime: Runtime,
        path: Path,
        add_stage: Callable[[PipelineBuilder], Stage],
        context_length: int | None,
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._add_stage = add_stage
        with GgufFile(path) as file:
            trained = file.metadata.get(f"{file.architecture}.context_length")
            self.pooling: TextPooling = _BY_NUMBER.get(file.metadata.get(f"{file.architecture}.pooling_type"), "mean")
        limit = trained if isinstance(trained, int) and trained > 0 else 512
        self.limit = min(context_length or limit, limit)
        self._stages: dict[Pooling, tuple[Stage, Pipeline]] = {}
        stage, _ = self._built(self.pooling)
        self.dimension: int = stage.schema().output_desc(0)[1][-1]

    def _built(self, pooling: Pooling) -> tuple[Stage, Pipeline]:
        if pooling == "max":
            raise NotSupportedError(NOT_SUPPORTED, "embed", 'llama.cpp has no pooling "max"; use mean, cls or last')
        if pooling not in self._stages:
            builder = self._runtime.create_pipeline_builder()
            stage = self._add_stage(builder)
            options = stage.llama_options()
            options.embeddings, options.pooling = True, pooling
            stage.set_sequence_capacity_hint(self.limit)
            stage.request_output(0)
            self._stages[pooling] = stage, builder.build()
        return self._stages[pooling]

    def abort(self) -> None:
        for _, pipeline in tuple(self._stages.values()):
            with suppress(RuntimeError):  # it was closed meanwhile
                pipeline.cancel_run()

    def encode(self, texts: Sequence[list[int]], pooling: Pooling | None, latch: CancellationLatch) -> list[Rows]:
        stage, pipeline = self._built(pooling or self.pooling)
        lengths = [len(text) for text in texts]
        runtime = self._runtime
        with (
            runtime.tensor_from_tokens([token for text in texts for token in text]) as ids,
            runtime.tensor_from_tokens(lengths) as counts,
        ):
            stage.bind_input(0, ids)
            stage.bind_input(1, counts)
            try:
                past_late_cancel(pipeline.run, latch)
            finally:
                pipeline.release_threads()  # the next call may be another thread's
        with stage.output(0) as output:
            rows: Rows = np.array(output.to_numpy())
        if len(rows) == len(texts) and pooling != "none":
            return list(rows)
        ends = accumulate(lengths, initial=0)
        return [rows[start:stop] for start, stop in pairwise(ends)]

    def close(self) -> None:
        for stage, pipeline in self._stages.values():
            stage.close()
            pipeline.close()
        self._stages = {}
        self._runtime.close()
