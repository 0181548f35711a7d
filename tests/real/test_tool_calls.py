"""A real model that is made to call a tool: request, grammar, generation, parser."""

from __future__ import annotations

import json

import pytest

from fakes.model_files import require_engine
from fakes.outputs import events_of, joined
from fakes.real_models import smollm2_gguf
from genai.runtime import Runtime, Tokenizer
from genai.tasks import (
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionTool,
    ChatCompletionToolChoice,
    Tasks,
    TextGenerationConfiguration,
    TextGenerationOptions,
    TextGenerationOutputKind,
    TextGenerationSession,
)

pytest.importorskip("llguidance")
pytestmark = pytest.mark.real

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TEMPLATE = (
    "<|im_start|>system\nAnswer with <tool_call>.\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def session_of(runtime: Runtime, tokenizer: Tokenizer) -> TextGenerationSession:
    """A session over SmolLM2."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(smollm2_gguf()))
    stage.llama_options().thread_count = 1
    stage.set_sequence_capacity_hint(512)
    pipeline = builder.build()
    tasks = Tasks(runtime)
    configuration = tasks.create_text_generation_configuration()
    assert isinstance(configuration, TextGenerationConfiguration)
    configuration.configure_unified(
        pipeline=pipeline,
        token_input_stage=stage,
        token_input_index=0,
        output_stage=stage,
        output_index=0,
        output_kind=TextGenerationOutputKind.LOGITS,
        state_owner_stage=stage,
        token_target=runtime.create_cpu_target(),
        tokenizer=tokenizer,
    )
    return tasks.create_text_generation_task(tokenizer).create_session(configuration)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_wanted_call_is_made_with_arguments_of_the_schema(runtime: Runtime, temperature: float) -> None:
    require_engine("llama")
    tool = ChatCompletionTool("weather", json.dumps(SCHEMA), "The weather forecast")
    request = ChatCompletionRequest(
        (ChatCompletionMessage("user", "What is the weather in Łódź?"),),
        (tool,),
        tool_choice=ChatCompletionToolChoice.REQUIRED,
        parallel_tool_calls=ChatCompletionParallelToolCalls.DISABLED,
    )
    with Tokenizer.from_file(smollm2_gguf(), chat_template=TEMPLATE) as tokenizer:
        result = tokenizer.format_conversation(request)
        session = session_of(runtime, tokenizer)
        options = TextGenerationOptions(max_new_tokens=96, temperature=temperature, seed=7)
        with (
            tokenizer.create_constraint(result) as constraint,
            session.generate_tokens_with_constraint(result.token_ids, constraint, options) as stream,
        ):
            output = joined(events_of(result.create_output_parser(), [update.fragment for update in stream]))
    ((_, name, arguments),) = output.calls
    assert (name, output.errors, output.content) == ("weather", 0, "")
    assert sorted(json.loads(arguments)) == ["city", "days"]
