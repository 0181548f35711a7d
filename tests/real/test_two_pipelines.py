"""A converted decoder as two pipelines whose cache the program moves from one to the other, between reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai
from fakes.model_files import ModelFiles
from genai.runtime import Model, Pipeline, Runtime, Stage, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationDecodeInputMode,
    TextGenerationOptions,
    TextGenerationOutputKind,
    TextGenerationSession,
    TextGenerationStream,
)
from models import recipes

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

PROMPT = [5, 9, 33, 120, 7, 250, 8, 91]


class Phase:
    """One pipeline of the decoder: its state goes in and out as ordinary tensors, which grow with the sequence."""

    def __init__(self, runtime: Runtime, model: Model) -> None:
        names, schema = model.ort_schema(), model.schema()
        self.runtime = runtime
        self.inputs = [names.input_name(index) for index in range(schema.input_count)]
        self.ids, self.logits = names.find_input("input_ids"), names.find_output("logits")
        self.pairs = {
            index: names.find_output(name.replace("past_key_values", "present"))
            for index, name in enumerate(self.inputs)
            if name.startswith("past_key_values.")
        }
        self.shapes = {index: schema.input_desc(index)[1] for index in self.pairs}
        builder = runtime.create_pipeline_builder()
        self.stage: Stage = builder.add_model_stage(model, runtime.create_cpu_target())
        self.stage.ort_options().set_thread_count(1)
        for present in self.pairs.values():
            self.stage.request_output(present)
        self.pipeline: Pipeline = builder.build()

    def begin(self, count: int) -> None:
        """Bind an empty cache, and mask and positions of a prompt of `count` tokens."""
        for index, (_, heads, _, size) in self.shapes.items():
            self.stage.bind_input(index, self.runtime.tensor_from_numpy(np.zeros((1, heads, 0, size), np.float32)))
        self.place(0, count)

    def take(self, other: Phase, position: int) -> None:
        """Go on from the cache that `other` has made, `position` tokens long."""
        for index, present in self.pairs.items():
            self.stage.bind_input(index, other.stage.output(present))
        self.place(position, 1)

    def place(self, position: int, count: int) -> None:
        bindings = self.stage.ort_bindings()
        values = {
            "attention_mask": np.ones((1, position + count), np.int64),
            "position_ids": np.arange(position, position + count)[None],
        }
        for name in values.keys() & set(self.inputs):
            bindings.bind_input(name, self.runtime.tensor_from_numpy(values[name]))


def open_session(runtime: Runtime, tokenizer: Tokenizer, folder: Path) -> tuple[TextGenerationSession, Phase, Phase]:
    model = runtime.load_model(folder / "model.onnx")
    prefill, decode = Phase(runtime, model), Phase(runtime, model)
    configuration = (
        Tasks(runtime)
        .create_text_generation_configuration()
        .configure_prefill_decode(
            prefill_pipeline=prefill.pipeline,
            prefill_token_input_stage=prefill.stage,
            prefill_token_input_index=prefill.ids,
            prefill_output_stage=prefill.stage,
            prefill_output_index=prefill.logits,
            prefill_output_kind=TextGenerationOutputKind.LOGITS,
            decode_pipeline=decode.pipeline,
            decode_token_input_stage=decode.stage,
            decode_token_input_index=decode.ids,
            decode_output_stage=decode.stage,
            decode_output_index=decode.logits,
            decode_output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=decode.stage,
            token_target=runtime.create_cpu_target(),
            logical_capacity=64,
            decode_input_mode=TextGenerationDecodeInputMode.CALLER_BOUND,
        )
    )
    task = Tasks(runtime).create_text_generation_task(tokenizer, ())
    return task.create_session(configuration), prefill, decode


def read(stream: TextGenerationStream, prefill: Phase, decode: Phase, position: int) -> list[int | None]:
    """Read to the end, moving the cache after each read."""
    tokens: list[int | None] = []
    while (update := stream.read_next()) is not None:
        tokens.append(update.token_id)
        decode.take(prefill if len(tokens) == 1 else decode, position + len(tokens) - 1)
    return tokens


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
@pytest.mark.parametrize("fields", [{}, {"temperature": 0.9, "top_k": 20, "repetition_penalty": 1.2, "seed": 5}])
def test_two_pipelines_say_what_one_says(
    runtime: Runtime, files: ModelFiles, operators: str, fields: dict[str, float]
) -> None:
    folder = recipes.random_onnx(files.folder, operators)
    options = TextGenerationOptions(10, **fields)  # type: ignore[arg-type]
    with genai.load(folder, threads=1) as model:
        expected = model.generate(PROMPT, options=options).token_ids
    with Tokenizer.from_file(folder) as tokenizer:
        session, prefill, decode = open_session(runtime, tokenizer, folder)
        for _ in range(2):
            prefill.begin(len(PROMPT))
            with session.generate_tokens(PROMPT, options) as stream:
                assert read(stream, prefill, decode, len(PROMPT)) == list(expected)
        session.close()
