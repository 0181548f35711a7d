"""A language model in three ONNX graphs (embedding, decoder, head): by `genai.load`, and composed by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import genai
from fakes.model_files import ModelFiles
from fakes.rig import failing
from genai.runtime import Runtime, Stage, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationFinishReason,
    TextGenerationOptions,
    TextGenerationOutputKind,
    TextGenerationSession,
)
from models import recipes
from models.split_decoder import split_in_three

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

SENTENCE = "Paris is the capital of France, a city with good café and museums."
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
IDS = [5, 9, 33, 120, 7]
LONG = [5, 9, 33, *range(200), 7]


@pytest.fixture(scope="module")
def folder(files: ModelFiles) -> Path:
    return recipes.random_pipeline(files.folder)


def test_a_folder_of_three_graphs_loads_and_answers(files: ModelFiles) -> None:
    with genai.load(recipes.scripted_pipeline(files.folder), threads=1) as model:
        assert (model.engine, model.context_length, model.can_chat) == ("ONNX Runtime", 512, True)
        assert "".join(model.stream(ASKED)) == SENTENCE
        chat = model.chat()
        assert chat.send("What?").text == SENTENCE


def test_three_graphs_say_what_one_says(files: ModelFiles, folder: Path) -> None:
    with (
        genai.load(folder, threads=1) as three,
        genai.load(recipes.random_onnx(files.folder, "gqa"), threads=1) as one,
    ):
        for prompt in (IDS, LONG, LONG[:150], [5]):
            assert (
                three.generate(prompt, max_new_tokens=12).token_ids == one.generate(prompt, max_new_tokens=12).token_ids
            )


def test_a_folder_that_was_cut_in_two_before_is_cut_in_three(files: ModelFiles, tmp_path: Path) -> None:
    source = recipes.scripted_split(files.folder)
    with genai.load(split_in_three(source, tmp_path / "three"), threads=1) as model:
        assert model.generate(ASKED).text == SENTENCE


def test_a_shared_prefix_is_not_evaluated_again(folder: Path) -> None:
    with genai.load(folder, threads=1) as model:
        model.generate(LONG, max_new_tokens=1)
        again = model.generate([*LONG[:-1], 8], max_new_tokens=5)
        assert again.timings.evaluated_prompt_token_count == 1
        with genai.load(folder, threads=1) as fresh:
            assert again.token_ids == fresh.generate([*LONG[:-1], 8], max_new_tokens=5).token_ids


def test_the_window_can_be_smaller_and_not_larger(folder: Path) -> None:
    with genai.load(folder, threads=1, context_length=8) as model:
        result = model.generate(IDS, max_new_tokens=9)
        assert (result.finish_reason.name, result.generated_token_count) == ("SEQUENCE_CAPACITY", 3)
    with failing(0x80070057):
        genai.load(folder, context_length=1 << 20)


def test_a_folder_for_turns_is_refused_by_name(files: ModelFiles, folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
    config["model"]["decoder"]["pipeline"][1]["decoder"]["run_on_token_gen"] = False
    copy = shutil.copytree(folder, tmp_path / "turns")
    (copy / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    with failing(0x80070032) as caught:
        genai.load(copy)
    assert "'decoder' does not run on single tokens" in str(caught.value)


# --- the long road ----------------------------------------------------------------------------------------------------


@pytest.fixture
def session(runtime: Runtime, folder: Path) -> Iterator[tuple[TextGenerationSession, Stage]]:
    """A session whose token input, output and state are three stages, and the stage with the state."""
    builder = runtime.create_pipeline_builder()
    stages, models = {}, {}
    for name in ("embedding", "decoder", "lm_head"):
        models[name] = runtime.load_model(folder / f"{name}.onnx")
        stages[name] = builder.add_model_stage(models[name], runtime.create_cpu_target(), name)
        stages[name].ort_options().set_thread_count(1)
    decoder, names = stages["decoder"], models["decoder"].ort_schema()
    for index in range(models["decoder"].schema().input_count):
        name = names.input_name(index)
        if name.startswith("past_key_values."):
            decoder.add_state_tensor_pair(index, names.find_output(name.replace("past_key_values", "present")))
    decoder.set_sequence_capacity_hint(64)
    builder.connect(stages["embedding"], 0, decoder, names.find_input("inputs_embeds"))
    builder.connect(decoder, names.find_output("hidden_states"), stages["lm_head"], 0)
    with Tasks(runtime) as tasks, Tokenizer.from_file(folder) as tokenizer:
        configuration = tasks.create_text_generation_configuration().configure_unified(
            pipeline=builder.build(),
            token_input_stage=stages["embedding"],
            token_input_index=0,
            output_stage=stages["lm_head"],
            output_index=0,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=decoder,
            token_target=runtime.create_cpu_target(),
        )
        yield tasks.create_text_generation_task(tokenizer, ()).create_session(configuration), decoder


def test_three_stages_are_one_composition(session: tuple[TextGenerationSession, Stage], files: ModelFiles) -> None:
    text, decoder = session
    with text.generate_tokens(IDS, TextGenerationOptions(8)) as stream:
        first = [update.token_id for update in stream]
    with genai.load(recipes.random_onnx(files.folder, "gqa"), threads=1) as model:
        assert first == list(model.generate(IDS, max_new_tokens=8, stop_token_ids=()).token_ids)
    assert decoder.sequence_position == 12
    with text.continue_tokens((), TextGenerationOptions(2)) as stream:
        assert len([update.token_id for update in stream]) == 2
    with text.generate_tokens([*IDS, 3], TextGenerationOptions(4)) as stream:
        assert decoder.sequence_position == 5
        stream.read_next()
        assert decoder.sequence_position == 6
    assert text.capabilities.supports_embedding_segments is False


def test_the_capacity_is_that_of_the_state_owner(session: tuple[TextGenerationSession, Stage]) -> None:
    text, _ = session
    with text.generate_tokens([5] * 60, TextGenerationOptions(9)) as stream:
        assert len(list(stream)) == 4
        assert stream.result.finish_reason is TextGenerationFinishReason.SEQUENCE_CAPACITY
    with failing(0x8007007A):
        text.generate_tokens([5] * 65)


def test_one_graph_asks_for_a_provider_that_is_not_there(files: ModelFiles, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(recipes.scripted_pipeline(files.folder), folder)
    path = folder / "genai_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    graphs = config["model"]["decoder"]["pipeline"]
    name, graph = next(iter(graphs[1].items()))
    graphs[1] = {name: {**graph, "session_options": {"provider_options": [{"qnn": {}}]}}}
    path.write_text(json.dumps(config), encoding="utf-8")
    with failing(0x80070490) as caught:
        genai.load(folder)
    assert "asks for the provider 'qnn'" in str(caught.value)
    with genai.load(folder, provider="CPUExecutionProvider") as model:
        assert "".join(model.stream(ASKED)) == SENTENCE
