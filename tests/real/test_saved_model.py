"""`model.save_state` and `model.load_state` on both engines: what was known before is not evaluated again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from fakes.rig import failing
from models.recipes import (
    hybrid_gguf,
    random_gguf,
    random_onnx,
    random_pipeline,
    scripted_gguf,
    scripted_onnx,
    scripted_pipeline,
)

Recipe = Callable[[Path], Path]
PROMPT = "It was a bright cold day in April, and the clocks were striking thirteen."
KINDS = ["llama", "ort-plain", "ort-gqa", "ort-pipeline"]


def load(path: Path, **options: object) -> genai.LanguageModel:
    return genai.load(path, threads=1, **options)  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    require_engine("llama" if kind == "llama" else "ort")
    return kind


@pytest.fixture
def random(kind: str, files: ModelFiles) -> Path:
    """A model with long output."""
    return built(kind, files.folder, random_gguf, random_pipeline, random_onnx)


@pytest.fixture
def scripted(kind: str, files: ModelFiles) -> Path:
    """A model that chats."""
    return built(kind, files.folder, scripted_gguf, scripted_pipeline, scripted_onnx)


def built(kind: str, folder: Path, gguf: Recipe, pipeline: Recipe, onnx: Callable[..., Path]) -> Path:
    """A model of one kind: one file, three graphs, or one graph."""
    if kind == "llama":
        return gguf(folder)
    return pipeline(folder) if kind == "ort-pipeline" else onnx(folder, kind.removeprefix("ort-"))


def test_a_prompt_is_known_in_another_process(random: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.state"
    with load(random) as model:
        whole = model.generate(PROMPT, max_new_tokens=12)
        model.generate(PROMPT, max_new_tokens=1)
        model.save_state(path)
    with load(random) as model:
        model.load_state(path)
        stream = model.stream(PROMPT, max_new_tokens=12)
        assert stream.read().token_ids == whole.token_ids
        assert stream.reused_token_count == whole.prompt_token_count - 1


def test_a_chat_goes_on_with_its_own_history(scripted: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.state"
    with load(scripted) as model:
        chat = model.chat(system="Be short.")
        chat.send("What?")
        history = chat.messages
        model.save_state(path)
        undisturbed = chat.stream("Where?")
        wanted = undisturbed.read().text
        known = undisturbed.reused_token_count
    with load(scripted) as model:
        model.load_state(path)
        stream = model.chat("Be short.", messages=history).stream("Where?")
        assert stream.read().text == wanted
        assert stream.reused_token_count == known > 30


def test_a_state_of_another_context_length_fits(random: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.state"
    with load(random, context_length=128) as model:
        model.generate(PROMPT, max_new_tokens=1)
        model.save_state(path)
    with load(random, context_length=256) as model:
        model.load_state(path)
        stream = model.stream(PROMPT, max_new_tokens=2)
        stream.read()
        assert stream.reused_token_count > 20
    with load(random, context_length=16) as small, failing(0x8007007A):
        small.load_state(path)


def test_another_model_refuses_it_and_stays_as_it_is(random: Path, scripted: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.state"
    with load(random) as model:
        model.generate(PROMPT, max_new_tokens=1)
        model.save_state(path)
    with load(scripted) as other:
        answer = other.generate("What?\n", max_new_tokens=3).text
        with failing(0x8007000D):
            other.load_state(path)
        stream = other.stream("What?\n", max_new_tokens=3)
        assert stream.read().text == answer
        assert stream.reused_token_count > 0


def test_a_fresh_model_has_nothing_to_save(random: Path, tmp_path: Path) -> None:
    with load(random) as model, failing(0x8007139F):
        model.save_state(tmp_path / "model.state")


def test_an_open_stream_is_in_the_way(random: Path, tmp_path: Path) -> None:
    with load(random) as model, model.stream(PROMPT, max_new_tokens=4) as stream:
        next(stream)
        with failing(0x8007139F):
            model.save_state(tmp_path / "model.state")
        assert len("".join(stream)) > 0
    with pytest.raises(RuntimeError, match="closed"):
        model.save_state(tmp_path / "model.state")


@pytest.mark.usefixtures("llama")
def test_recurrent_models_go_on_too(files: ModelFiles, tmp_path: Path) -> None:
    path = tmp_path / "model.state"
    with load(hybrid_gguf(files.folder)) as model:
        ids = model.tokenizer.encode(PROMPT)
        answer = model.generate(ids, max_new_tokens=4).token_ids
        longer = [*ids, *answer, *ids]
        model.save_state(path)
        wanted = model.generate(longer, max_new_tokens=8).token_ids
    with load(hybrid_gguf(files.folder)) as model:
        model.load_state(path)
        stream = model.stream(longer, max_new_tokens=8)
        assert stream.read().token_ids == wanted
        assert stream.reused_token_count == len(ids) + 3
