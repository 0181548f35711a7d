"""Built decoders of every kind that keeps its own state, fed alike whatever other inputs the model has.

decoder   the fake, llama.cpp, and ONNX Runtime with states that grow (plain and fused operators), that share one
          buffer, and that have a fixed length
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles, require_engine
from winml_lite import Pipeline, Runtime, Stage
from winml_lite.native.backend import replaced_backend

Row = npt.NDArray[np.float32]

IDS = (5, 9, 33, 120, 7, 250, 8, 91)
"""Eight tokens that every decoder knows."""
VOCABULARY_SIZE = 303


def history_logits(ids: Sequence[int]) -> npt.ArrayLike:
    """A row that depends on every token and on their order."""
    row = np.arange(VOCABULARY_SIZE, dtype=np.float32)
    return row * sum(place * token for place, token in enumerate(ids, 1)) % 17


@dataclass
class Decoder:
    """A pipeline of one decoder stage, its logits requested."""

    runtime: Runtime
    stage: Stage
    pipeline: Pipeline
    inputs: tuple[str, ...]
    """Names of the inputs of a graph."""

    def bind(self, *ids: int) -> None:
        """Bind tokens that follow the present position, with the mask and the positions that go with them."""
        self.bind_rest(len(ids))
        self.stage.bind_input(0, self.runtime.tensor_from_tokens(ids))

    def bind_rest(self, count: int) -> None:
        """Bind the other inputs for `count` more tokens."""
        position = self.stage.sequence_position
        values: dict[str, npt.NDArray[np.generic]] = {
            "attention_mask": np.ones((1, position + count), np.int64),
            "position_ids": np.arange(position, position + count)[None],
            "slots": np.arange(position, position + count),
            "used": (np.arange(16) < position).astype(np.float32).reshape(1, 1, 16, 1),
        }
        for index, name in enumerate(self.inputs):
            if name in values:
                self.stage.bind_input(index, self.runtime.tensor_from_numpy(values[name]))

    def run(self, *ids: int) -> Row:
        """Feed tokens and return the logits of the last one."""
        self.bind(*ids)
        self.pipeline.run()
        return self.row()

    def row(self) -> Row:
        """A copy of the last row of output 0."""
        logits: Row = self.stage.output(0).to_numpy()
        row: Row = logits.reshape(-1, logits.shape[-1])[-1].copy()
        return row

    def step(self, *ids: int) -> memoryview:
        """Step over tokens."""
        self.bind_rest(len(ids))
        return self.stage.step_all_positions(ids)

    def one_by_one(self, *ids: int) -> list[Row]:
        """Logits after each token, by one run each."""
        return [self.run(token) for token in ids]


def llama_decoder(
    runtime: Runtime, path: str, hint: int = 0, draft_limit: int = 0, *, predicts: bool = False
) -> Decoder:
    """Build a `.gguf` file with exact keys and values."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path), runtime.create_cpu_target())
    options = stage.llama_options()
    options.thread_count, options.key_type, options.value_type = 1, "f32", "f32"
    stage.draft_token_limit_hint = draft_limit
    stage.model_draft_predictor_enabled = predicts
    if hint:
        stage.set_sequence_capacity_hint(hint)
    stage.request_output(0)
    return Decoder(runtime, stage, builder.build(), ())


def onnx_decoder(runtime: Runtime, path: str, hint: int = 0) -> Decoder:
    """Build a graph whose state are the inputs `past...` and the outputs `present...`."""
    model = runtime.load_model(path)
    names, schema = model.ort_schema(), model.schema()
    inputs = tuple(names.input_name(index) for index in range(schema.input_count))
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    for index, name in enumerate(inputs):
        if name.startswith("past"):
            present = name.replace("past_key_values", "present").replace("past", "present")
            stage.add_state_tensor_pair(index, names.find_output(present))
    if hint:
        stage.set_sequence_capacity_hint(hint)
    stage.ort_options().set_thread_count(1)
    stage.request_output(0)
    return Decoder(runtime, stage, builder.build(), inputs)


def random_onnx(files: ModelFiles, operators: str, all_logits: bool = True) -> str:
    """The random decoder as a graph; with logits for every token, or for those of short inputs and the last one."""
    from models import recipes

    folder = recipes.random_onnx(files.folder, operators, all_logits=all_logits)
    return str(folder / "model.onnx")


def last_row_onnx(files: ModelFiles) -> str:
    """The random decoder as a graph that gives the logits of the last token only."""
    import onnx

    path = Path(random_onnx(files, "gqa", all_logits=False))
    model = onnx.load(path, load_external_data=False)
    del model.graph.output[-1]
    stripped = path.with_name("last-row.onnx")
    onnx.save_model(model, stripped)
    return str(stripped)


@pytest.fixture(params=["fake", "llama", "ort-plain", "ort-gqa", "ort-shared", "ort-static"])
def decoder(request: pytest.FixtureRequest, runtime: Runtime, files: ModelFiles, script: Script) -> Iterator[Decoder]:
    """A decoder with room for 16 tokens (512 where the state grows freely)."""
    kind: str = request.param
    with ExitStack() as stack:
        if kind == "fake":
            stack.enter_context(replaced_backend("llama", FakeBackend(script, logits=history_logits)))
        else:
            require_engine("llama" if kind == "llama" else "ort")
        if kind in ("fake", "llama"):
            yield llama_decoder(runtime, files.gguf, 16)
        elif kind == "ort-static":
            yield onnx_decoder(runtime, files.onnx("sum_slots"))
        elif kind == "ort-shared":
            yield onnx_decoder(runtime, random_onnx(files, "gqa"), 16)
        else:
            yield onnx_decoder(runtime, random_onnx(files, kind.removeprefix("ort-")))
