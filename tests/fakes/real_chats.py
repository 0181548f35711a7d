"""A chat session over a real model, composed by hand as a program of the long road does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genai.runtime import Pipeline, Runtime, Stage, Tokenizer
from genai.tasks import ChatCompletionSession, Tasks, TextGenerationOutputKind

CAPACITY = 512


def built(runtime: Runtime, path: Path) -> tuple[Pipeline, Stage, int, int]:
    """Build a `.gguf` file or an ONNX folder; return it with the positions of the token input and of the logits."""
    builder = runtime.create_pipeline_builder()
    if path.suffix == ".gguf":
        stage = builder.add_model_stage(runtime.load_model(path))
        stage.llama_options().thread_count = 1
        stage.set_sequence_capacity_hint(CAPACITY)
        return builder.build(), stage, 0, 0
    model = runtime.load_model(path / "model.onnx")
    names, schema = model.ort_schema(), model.schema()
    stage = builder.add_model_stage(model)
    stage.ort_options().set_thread_count(1)
    stage.set_sequence_capacity_hint(CAPACITY)
    for index in range(schema.input_count):
        name = names.input_name(index)
        if name.startswith("past_key_values"):
            stage.add_state_tensor_pair(index, names.find_output(name.replace("past_key_values", "present")))
    return builder.build(), stage, names.find_input("input_ids"), names.find_output("logits")


@contextmanager
def real_chat(runtime: Runtime, path: Path, chat_template: str | None = None) -> Iterator[ChatCompletionSession]:
    """Make a chat session with a text session of its own."""
    pipeline, stage, token_input, logits = built(runtime, path)
    with Tasks(runtime) as tasks, Tokenizer.from_file(path, chat_template=chat_template) as tokenizer:
        configuration = tasks.create_text_generation_configuration().configure_unified(
            pipeline=pipeline,
            token_input_stage=stage,
            token_input_index=token_input,
            output_stage=stage,
            output_index=logits,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=stage,
            token_target=runtime.create_cpu_target(),
        )
        with tasks.create_text_generation_task(tokenizer).create_session(configuration) as session:
            yield tasks.create_chat_completion_task(tokenizer).create_session(session)
