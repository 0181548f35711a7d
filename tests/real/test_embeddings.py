"""Embedding models on both engines: against NumPy, against each other, and against llama-cpp-python."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from fakes.reference_encoder import hidden_states
from fakes.rig import failing
from genai import loading
from genai.embedding import Pooling
from models.onnx_models import add, save
from models.recipes import adapter_gguf, encoder_gguf, encoder_onnx, random_onnx

TOLERANCE = 3e-3
TEXTS = ("The cat sat on a mat.", "the dog ran", "zebra!")
IDS = ([2, 4, 5, 7, 9, 10, 11, 18, 3], [2, 4, 6, 8, 3], [2, 44, 49, 46, 62, 45, 19, 3])
Rows = npt.NDArray[np.float32]


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows of length 1."""
    scaled: npt.NDArray[Any] = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return scaled


def wanted(pool: str) -> npt.NDArray[Any]:
    """What NumPy says."""
    poolings = {
        "mean": lambda states: states.mean(0),
        "cls": lambda states: states[0],
        "last": lambda states: states[-1],
        "max": lambda states: states.max(0),
    }
    return np.stack([poolings[pool](hidden_states(ids)) for ids in IDS])


@pytest.fixture(params=["llama", "ort"])
def model(request: pytest.FixtureRequest, files: ModelFiles) -> Any:
    """The encoder, pooled by the mean, on each engine."""
    require_engine(request.param)
    path = encoder_gguf(files.folder) if request.param == "llama" else encoder_onnx(files.folder)
    with genai.load_embedding(path, threads=1) as model:
        yield model


@pytest.fixture
def folder(files: ModelFiles, tmp_path: Path) -> Path:
    """An ONNX folder of its own."""
    require_engine("ort")
    return encoder_onnx(tmp_path)


# Both engines


def test_embeddings_equal_those_of_numpy(model: genai.EmbeddingModel) -> None:
    rows = model.embed(TEXTS)
    assert (rows.shape, rows.dtype) == ((3, 32), np.float32)
    np.testing.assert_allclose(rows, unit(wanted("mean")), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_each_pooling(model: genai.EmbeddingModel, pooling: Pooling) -> None:
    rows = model.embed(TEXTS, pooling=pooling, normalize=False)
    np.testing.assert_allclose(rows, wanted(pooling), rtol=0, atol=2 * TOLERANCE)


def test_without_pooling_each_text_has_its_tokens(model: genai.EmbeddingModel) -> None:
    rows = model.embed(TEXTS, pooling="none", normalize=False)
    assert [row.shape for row in rows] == [(9, 32), (5, 32), (8, 32)]
    np.testing.assert_allclose(rows[1], hidden_states(IDS[1]), rtol=0, atol=3 * TOLERANCE)
    alone = model.embed(TEXTS[1], pooling="none")
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=0, atol=1e-6)


def test_one_text_is_one_vector(model: genai.EmbeddingModel) -> None:
    assert model.embed("the cat").shape == (32,)
    assert model.embed([]).shape == (0, 32)


def test_token_ids_are_taken_as_they_are(model: genai.EmbeddingModel) -> None:
    np.testing.assert_allclose(model.embed([IDS[0]]), model.embed([TEXTS[0]]), rtol=0, atol=1e-6)


def test_batches_change_nothing(model: genai.EmbeddingModel) -> None:
    alone = np.stack([model.embed(text) for text in TEXTS])
    np.testing.assert_allclose(model.embed(TEXTS * 30), np.concatenate([alone] * 30), rtol=0, atol=TOLERANCE)


def test_tasks_share_the_model(model: genai.EmbeddingModel) -> None:
    async def run() -> list[Rows]:
        async with model:
            return list(await asyncio.gather(*(model.aembed(text) for text in TEXTS)))

    wanted_rows = model.embed(TEXTS)
    np.testing.assert_allclose(np.stack(asyncio.run(run())), wanted_rows, rtol=0, atol=TOLERANCE)


def test_a_run_that_is_cancelled_leaves_the_model_usable(model: genai.EmbeddingModel) -> None:
    wanted_row = model.embed(TEXTS[0])

    async def run() -> Rows:
        task = asyncio.create_task(model.aembed(TEXTS * 400))
        await asyncio.sleep(0.002)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await model.aembed(TEXTS[0])

    for _ in range(5):
        np.testing.assert_array_equal(asyncio.run(run()), wanted_row)


def test_what_a_model_says_of_itself(model: genai.EmbeddingModel) -> None:
    assert (model.dimension, model.pooling) == (32, "mean")
    assert model.max_tokens == (64 if model.engine == "llama.cpp" else 56)
    assert "encoder" in repr(model)


def test_a_long_text_is_an_error_unless_it_may_be_cut(model: genai.EmbeddingModel) -> None:
    text = "the cat ran " * 30
    with failing(0x8007007A) as caught:
        model.embed(["the cat", text])
    assert "text 1 has 92 tokens" in str(caught.value)
    middle = [2, *[4, 5, 8] * 30][: model.max_tokens - 1]
    row = model.embed(text, truncate=True, normalize=False)
    np.testing.assert_allclose(row, hidden_states([*middle, 3]).mean(0), rtol=0, atol=2 * TOLERANCE)


def test_a_closed_model_embeds_nothing(model: genai.EmbeddingModel) -> None:
    model.close()
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.embed("the cat")
    assert "closed" in repr(model)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(5, TypeError), ([b"the"], TypeError), ([5], TypeError), ([[]], ValueError)],
)
def test_what_is_no_text(model: genai.EmbeddingModel, texts: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        model.embed(texts)


def test_unknown_poolings(model: genai.EmbeddingModel) -> None:
    with pytest.raises(ValueError, match="mean, cls, last, max, none"):
        model.embed("the cat", pooling="sum")  # type: ignore[call-overload]


# llama.cpp


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("normalize", [True, False])
def test_it_equals_llama_cpp_python(files: ModelFiles, normalize: bool) -> None:
    import llama_cpp

    path = str(encoder_gguf(files.folder))
    peer = llama_cpp.Llama(path, embedding=True, n_ctx=64, n_threads=1, verbose=False)
    with genai.load_embedding(path, threads=1) as model:
        rows = model.embed(TEXTS, normalize=normalize)
    np.testing.assert_allclose(rows, np.array(peer.embed(list(TEXTS), normalize=normalize)), rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(("number", "name"), [(2, "cls"), (3, "last"), (0, "mean"), (None, "mean")])
def test_the_file_says_how_to_pool(files: ModelFiles, number: int | None, name: str) -> None:
    with genai.load_embedding(encoder_gguf(files.folder, number), threads=1) as model:
        assert model.pooling == name
        np.testing.assert_allclose(model.embed(TEXTS), unit(wanted(name)), rtol=0, atol=TOLERANCE)
        with failing(0x80070032, genai.NotSupportedError):
            model.embed(TEXTS, pooling="max")


@pytest.mark.usefixtures("llama")
def test_a_generative_model_embeds_beside_generating(files: ModelFiles) -> None:
    with genai.load(files.gguf, threads=1) as model, genai.load_embedding(files.gguf, threads=1) as other:
        text = model.generate("Once", max_new_tokens=6).text
        rows = model.embed(["Once upon", "a time"])
        np.testing.assert_allclose(rows, other.embed(["Once upon", "a time"]), rtol=0, atol=1e-6)
        assert model.generate("Once", max_new_tokens=6).text == text
    with pytest.raises(RuntimeError, match="closed"):
        model.embed("Once")


@pytest.mark.usefixtures("llama")
def test_tasks_embed_with_a_generative_model(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = loading._make_embedder

    def counted(*parts: Any) -> genai.EmbeddingModel:
        made.append(parts)
        return make(*parts)

    monkeypatch.setattr(loading, "_make_embedder", counted)

    async def run() -> tuple[Any, ...]:
        async with genai.load(files.gguf, threads=1) as model, model.astream("Once", max_new_tokens=6) as stream:
            await anext(stream)  # embeddings do not wait for the end of a generation
            return await asyncio.gather(
                model.aembed("Once upon"), model.aembed("a time", pooling="none"), model.aembed(["a"], timeout=100)
            )

    one, tokens, several = asyncio.run(run())
    assert len(made) == 1
    with genai.load_embedding(files.gguf, threads=1) as other:
        np.testing.assert_allclose(one, other.embed("Once upon"), rtol=0, atol=1e-6)
        np.testing.assert_allclose(tokens, other.embed("a time", pooling="none"), rtol=0, atol=1e-6)
        np.testing.assert_allclose(several, other.embed(["a"]), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("llama")
def test_embedding_with_a_generative_model_can_be_cancelled(files: ModelFiles) -> None:
    source = genai.CancellationSource()
    source.cancel()
    with genai.load(files.gguf, threads=1) as model:
        with failing(0x800704C7):
            model.embed("Once", cancellation=source)
        with failing(0x800704C7):
            asyncio.run(model.aembed("Once", cancellation=source))
        with pytest.raises(ValueError, match="timeout"):
            model.embed("Once", timeout=-1)
        assert model.embed("Once", timeout=100).shape == (64,)


@pytest.mark.usefixtures("llama")
def test_a_model_that_is_closed_while_its_embedder_is_made(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[genai.EmbeddingModel] = []
    make = loading._make_embedder

    def closing(*parts: Any) -> genai.EmbeddingModel:
        generative.close()
        made.append(make(*parts))
        return made[0]

    monkeypatch.setattr(loading, "_make_embedder", closing)
    with genai.load(files.gguf, threads=1) as generative:
        with pytest.raises(RuntimeError, match="LanguageModel is closed"):
            asyncio.run(generative.aembed("Once"))
    assert "closed" in repr(made[0])


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("context_length", [1, 33, 100])
def test_any_context_length_will_do(files: ModelFiles, context_length: int) -> None:
    with genai.load(files.gguf, context_length=context_length, threads=1) as model:
        assert model.embed("a").shape == (64,)


@pytest.mark.usefixtures("llama")
def test_adapters_change_embeddings(files: ModelFiles) -> None:
    with genai.load_embedding(files.gguf, adapters=[adapter_gguf(files.folder)], threads=1) as adapted:
        changed = adapted.embed("Once upon")
    with genai.load_embedding(files.gguf, threads=1) as plain:
        assert float(plain.embed("Once upon") @ changed) < 0.999


@pytest.mark.usefixtures("llama", "ort")
@pytest.mark.parametrize("recipe", [encoder_gguf, encoder_onnx])
def test_an_encoder_is_not_loaded_to_generate(files: ModelFiles, recipe: Callable[[Path], Path]) -> None:
    with failing(0x80070032) as caught:
        genai.load(recipe(files.folder))
    assert "load_embedding" in str(caught.value)


# ONNX Runtime


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_the_folder_says_how_to_pool(files: ModelFiles, pooling: str) -> None:
    with genai.load_embedding(encoder_onnx(files.folder, pooling), threads=1) as model:
        assert model.pooling == pooling
        np.testing.assert_allclose(model.embed(TEXTS, normalize=False), wanted(pooling), rtol=0, atol=1e-4)


@pytest.mark.usefixtures("ort")
def test_a_decoder_graph_has_no_embeddings(files: ModelFiles) -> None:
    with genai.load(random_onnx(files.folder), threads=1) as model:
        with failing(0x80070032, genai.NotSupportedError):
            model.embed("Once")
        with failing(0x80070032, genai.NotSupportedError):
            asyncio.run(model.aembed("Once"))


def test_the_graph_may_lie_in_a_folder_of_its_own(folder: Path) -> None:
    before = genai.load_embedding(folder, threads=1).embed(TEXTS)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    for source in (folder, folder / "onnx" / "model.onnx"):
        with genai.load_embedding(source, threads=1) as model:
            np.testing.assert_array_equal(model.embed(TEXTS), before)


def rewrite(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_a_plain_folder_is_pooled_by_the_mean(folder: Path) -> None:
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        (folder / name).unlink()
    with genai.load_embedding(folder, threads=1) as model:
        assert (model.pooling, model.max_tokens) == ("mean", 64)
        np.testing.assert_allclose(model.embed(TEXTS), unit(wanted("mean")), rtol=0, atol=1e-4)


def test_positions_behind_the_padding_token(folder: Path) -> None:
    rewrite(folder / "config.json", model_type="xlm-roberta", pad_token_id=1, max_position_embeddings=40)
    with genai.load_embedding(folder, threads=1) as model:
        assert model.max_tokens == 38


def test_a_shorter_limit_may_be_asked_for(folder: Path) -> None:
    with genai.load_embedding(folder, context_length=8) as model:
        assert model.max_tokens == 8
    with genai.load_embedding(folder, context_length=5000) as model:
        assert model.max_tokens == 56


def test_the_newer_spelling_of_the_pooling(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    with genai.load_embedding(folder, threads=1) as model:
        assert model.pooling == "last"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("1_Pooling/config.json", '{"pooling_mode_weightedmean_tokens": true}', "weightedmean"),
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}', "and"),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]', "Dense"),
    ],
)
def test_modules_that_are_not_run(folder: Path, name: str, content: str, words: str) -> None:
    (folder / name).write_text(content)
    with failing(0x80070032, genai.NotSupportedError) as caught:
        genai.load_embedding(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "modules.json", "1_Pooling/config.json"])
def test_broken_files_are_named(folder: Path, name: str) -> None:
    (folder / name).write_text("{]")
    with failing(0x8007000D) as caught:
        genai.load_embedding(folder)
    assert Path(name).name in str(caught.value)


def test_a_graph_of_another_kind(folder: Path) -> None:
    save(add(), folder / "model.onnx")
    with failing(0x80070032, genai.NotSupportedError) as caught:
        genai.load_embedding(folder)
    assert "no encoder of texts" in str(caught.value)


@pytest.mark.usefixtures("ort")
def test_an_onnx_encoder_takes_no_adapter(folder: Path, files: ModelFiles) -> None:
    with failing(0x80070032, genai.NotSupportedError):
        genai.load_embedding(folder, adapters=[adapter_gguf(files.folder)])


def test_an_engine_that_does_not_fit(folder: Path, files: ModelFiles) -> None:
    with failing(0x80070057):
        genai.load_embedding(folder, engine="llama")
    with failing(0x80070057):
        genai.load_embedding(encoder_gguf(files.folder), engine="ort")
