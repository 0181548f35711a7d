"""Two pipelines whose state is the caller's: the model is `running_sum`, its state one number.

The prompt 1, 2, 3 continues 6, 12, 8, 0, 0 (sums modulo 16) where the state is moved after each read; without that it
is 6, 6, 6, 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.backend import Script
from fakes.model_files import ModelFiles
from fakes.scripted import write_tokenizer
from genai import Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationConfiguration,
    TextGenerationDecodeInputMode,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationSession,
)
from winml_lite import Pipeline, PipelineBuilder, Runtime, Stage, Tensor, TensorDataType

IDS, PAST = 0, 1
LOGITS, PRESENT, TOKEN = 0, 1, 2
CAPACITY = 32

Phase = TextGenerationPipelinePhase


class Part:
    """One of the pipelines: a stage with a tensor for the state that it reads, and one for the state that it makes."""

    def __init__(self, runtime: Runtime, builder: PipelineBuilder, stage: Stage) -> None:
        self.stage = stage
        self.past, self.present = (runtime.create_tensor(TensorDataType.FLOAT32, (1, 1)) for _ in range(2))
        stage.bind_input(PAST, self.past)
        self.pipeline: Pipeline = builder.build()

    def state(self) -> list[float]:
        """The state that the last run has made."""
        return [float(value) for value in self.present.to_numpy().reshape(-1)]


@dataclass
class TwoPipelines:
    """What a configuration of two pipelines takes, and what the caller does between reads."""

    runtime: Runtime
    tokenizer: Tokenizer
    prefill: Part
    decode: Part
    script: Script

    def parts(self, **changes: Any) -> dict[str, Any]:
        """What `configure_prefill_decode` takes; logits come out, and the caller binds, unless changed."""
        given = {
            "prefill_pipeline": self.prefill.pipeline,
            "prefill_token_input_stage": self.prefill.stage,
            "prefill_token_input_index": IDS,
            "prefill_output_stage": self.prefill.stage,
            "prefill_output_index": LOGITS,
            "prefill_output_kind": TextGenerationOutputKind.LOGITS,
            "decode_pipeline": self.decode.pipeline,
            "decode_token_input_stage": self.decode.stage,
            "decode_token_input_index": IDS,
            "decode_output_stage": self.decode.stage,
            "decode_output_index": LOGITS,
            "decode_output_kind": TextGenerationOutputKind.LOGITS,
            "state_owner_stage": self.decode.stage,
            "token_target": self.runtime.create_cpu_target(),
            "logical_capacity": CAPACITY,
            "decode_input_mode": TextGenerationDecodeInputMode.CALLER_BOUND,
        }
        return {**given, **changes}

    def configuration(self, **changes: Any) -> TextGenerationConfiguration:
        """A complete configuration, with both states bound to their tensors."""
        configuration = Tasks(self.runtime).create_text_generation_configuration()
        configuration.configure_prefill_decode(**self.parts(**changes))
        configuration.add_output_binding(Phase.DECODE, self.decode.stage, PRESENT, self.decode.present)
        configuration.add_output_binding(Phase.PREFILL, self.prefill.stage, PRESENT, self.prefill.present)
        return configuration

    def session(self, **changes: Any) -> TextGenerationSession:
        """A session that no EOS ends."""
        task = Tasks(self.runtime).create_text_generation_task(self.tokenizer, ())
        return task.create_session(self.configuration(**changes))

    def sampling(self, **changes: Any) -> dict[str, Any]:
        """Changes that take the tokens which both pipelines choose."""
        chosen = TextGenerationOutputKind.SAMPLED_TOKEN
        outputs = {"prefill_output_index": TOKEN, "prefill_output_kind": chosen}
        return {**outputs, "decode_output_index": TOKEN, "decode_output_kind": chosen, **changes}

    def feedback(self, **changes: Any) -> dict[str, Any]:
        """Changes that leave the decode input to the pipeline."""
        return self.sampling(decode_input_mode=TextGenerationDecodeInputMode.PIPELINE_FEEDBACK, **changes)

    def move(self, number: int) -> None:
        """Move the state after a read, counted from 1."""
        source = self.prefill if number == 1 else self.decode
        self.decode.past.copy_from(source.present)


@contextmanager
def two_pipelines(
    folder: Path, files: ModelFiles, script: Script, *, feeds_back: bool = False, prompt_length: int | None = None
) -> Iterator[TwoPipelines]:
    """Build the two pipelines; the second one feeds its token back, or the first is built for one length of prompt."""
    with Runtime() as runtime, Tokenizer.from_file(write_tokenizer(folder)) as tokenizer:
        model = runtime.load_model(files.onnx("running_sum"))

        def part(length: int | None, is_fed_back: bool) -> Part:
            builder = runtime.create_pipeline_builder()
            stage = builder.add_model_stage(model)
            stage.ort_options().set_thread_count(1)
            if length is not None:
                stage.symbolic_dimensions["S"] = length
            if is_fed_back:
                builder.connect_next_iteration(stage, TOKEN, stage, IDS)
            return Part(runtime, builder, stage)

        yield TwoPipelines(runtime, tokenizer, part(prompt_length, False), part(1, feeds_back), script)


def tensor_of(runtime: Runtime, *shape: int) -> Tensor:
    """A tensor of zeros."""
    return runtime.create_tensor(TensorDataType.FLOAT32, shape)
