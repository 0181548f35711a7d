"""Prefix reuse on a model that forgets how to go back: recurrent layers keep one state, not one for each position."""

from __future__ import annotations

import pytest

import genai
from fakes.model_files import ModelFiles
from fakes.rig import failing
from models import recipes
from winml_lite import Runtime

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

PROMPT = [5, 9, 33, 120, 7, 250, 8, 91]
CHANGED = [5, 9, 33, 120, 11, 250, 8, 91]


def test_the_state_cannot_be_rewound(runtime: Runtime, files: ModelFiles) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(recipes.hybrid_gguf(files.folder)), runtime.create_cpu_target())
    stage.llama_options().thread_count = 1
    pipeline = builder.build()
    stage.bind_input(0, runtime.tensor_from_tokens(PROMPT))
    pipeline.run()
    with failing(0x80070057):
        stage.rewind(4)


def test_s_ctx_09_a_model_that_cannot_go_back_starts_again(files: ModelFiles) -> None:
    path = recipes.hybrid_gguf(files.folder)
    with genai.load(path, threads=1) as model:
        model.generate(PROMPT, max_new_tokens=4)
        changed = model.generate(CHANGED, max_new_tokens=6)
        assert changed.timings.evaluated_prompt_token_count == 8
        longer = model.generate([*CHANGED, *changed.token_ids, 3], max_new_tokens=4)
        assert longer.timings.evaluated_prompt_token_count == 2  # the pending token and the new one
    with genai.load(path, threads=1) as fresh:
        assert fresh.generate(CHANGED, max_new_tokens=6).token_ids == changed.token_ids
        assert fresh.generate([*CHANGED, *changed.token_ids, 3], max_new_tokens=4).token_ids == longer.token_ids


def test_s_ctx_08_the_same_prompt_again_is_the_same(files: ModelFiles) -> None:
    with genai.load(recipes.hybrid_gguf(files.folder), threads=1) as model:
        first = model.generate(PROMPT, max_new_tokens=6)
        second = model.generate(PROMPT, max_new_tokens=6)
        assert second.token_ids == first.token_ids
        assert second.timings.evaluated_prompt_token_count == 8
