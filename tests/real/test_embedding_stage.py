"""Stages of llama.cpp that compute embeddings: against NumPy, against llama-cpp-python, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.model_files import ModelFiles
from fakes.reference_encoder import hidden_states
from fakes.rig import failing
from models.recipes import encoder_gguf
from winml_lite import NotSupportedError, Pipeline, Runtime, Stage, TensorDataType

TOLERANCE = 3e-3  # the engine looks GELU up in a table of half precision
TEXTS = ([2, 4, 5, 7, 9, 10, 11, 18, 3], [2, 4, 6, 8, 3], [2, 44, 49, 46, 62, 45, 19, 3])
"""The cat sat on a mat. / the dog ran / zebra!"""

pytestmark = pytest.mark.usefixtures("llama")
Rows = npt.NDArray[np.float32]


def embedding_stage(
    runtime: Runtime, path: str | Path, pooling: str | None = None, limit: int = 0, threads: int = 1
) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path), runtime.create_cpu_target())
    options = stage.llama_options()
    options.embeddings, options.pooling, options.thread_count = True, pooling, threads
    options.key_type = options.value_type = "f32"
    if limit:
        stage.set_sequence_capacity_hint(limit)
    stage.request_output(0)
    return stage, builder.build()


def embed(runtime: Runtime, built: tuple[Stage, Pipeline], *texts: list[int]) -> Rows:
    """One run over all texts."""
    stage, pipeline = built
    stage.bind_input(0, runtime.tensor_from_tokens([token for text in texts for token in text]))
    stage.bind_input(1, runtime.tensor_from_tokens([len(text) for text in texts]))
    pipeline.run()
    rows: Rows = stage.output(0).to_numpy()
    return rows


@pytest.fixture
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder whose file says mean."""
    return str(encoder_gguf(tmp_path_factory.getbasetemp() / "encoders"))


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        (None, lambda states: states.mean(0)),
        ("mean", lambda states: states.mean(0)),
        ("cls", lambda states: states[0]),
        ("last", lambda states: states[-1]),
    ],
)
def test_rows_equal_those_of_numpy(runtime: Runtime, encoder: str, pooling: str | None, wanted: object) -> None:
    assert callable(wanted)
    rows = embed(runtime, embedding_stage(runtime, encoder, pooling), *TEXTS)
    assert rows.shape == (3, 32)
    assert rows.dtype == np.float32
    for row, text in zip(rows, TEXTS, strict=True):
        np.testing.assert_allclose(row, wanted(hidden_states(text)), rtol=0, atol=TOLERANCE)


def test_without_pooling_there_is_a_row_for_each_token(runtime: Runtime, encoder: str) -> None:
    rows = embed(runtime, embedding_stage(runtime, encoder, "none"), *TEXTS)
    wanted = np.concatenate([hidden_states(text) for text in TEXTS])
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE)


def test_a_file_that_says_nothing_pools_nothing(runtime: Runtime, tmp_path: Path) -> None:
    rows = embed(runtime, embedding_stage(runtime, encoder_gguf(tmp_path, None)), TEXTS[1])
    assert rows.shape == (5, 32)


def test_more_texts_than_a_batch_holds(runtime: Runtime, encoder: str) -> None:
    built = embedding_stage(runtime, encoder)
    alone = [embed(runtime, built, text)[0] for text in TEXTS]
    rows = embed(runtime, built, *TEXTS * 40)
    np.testing.assert_allclose(rows, np.array(alone * 40), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none"])
def test_decoders_equal_llama_cpp_python(runtime: Runtime, files: ModelFiles, pooling: str) -> None:
    import llama_cpp

    texts = [[5, 9, 33, 120, 7], [250, 8, 91], list(range(40))]
    rows = embed(runtime, embedding_stage(runtime, files.gguf, pooling), *texts)
    kind = getattr(llama_cpp, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
    exact = {"type_k": 0, "type_v": 0, "flash_attn": False, "verbose": False}
    peer = llama_cpp.Llama(files.gguf, embedding=True, pooling_type=kind, n_ctx=64, n_threads=1, **exact)
    wanted = []
    for text in texts:
        batch = llama_cpp.llama_batch_init(64, 0, 1)
        batch.n_tokens = len(text)
        for place, token in enumerate(text):
            batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
            batch.seq_id[place][0], batch.logits[place] = 0, 1
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(peer.ctx), True)
        assert llama_cpp.llama_decode(peer.ctx, batch) == 0
        view = (
            np.ctypeslib.as_array(llama_cpp.llama_get_embeddings(peer.ctx), (len(text), 64))
            if pooling == "none"
            else np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(peer.ctx, 0), (1, 64))
        )
        wanted.append(view.copy())
        llama_cpp.llama_batch_free(batch)
    np.testing.assert_allclose(rows, np.concatenate(wanted), rtol=0, atol=TOLERANCE)


def test_recurrent_layers_take_one_text_at_a_time(runtime: Runtime, files: ModelFiles) -> None:
    built = embedding_stage(runtime, files.hybrid_gguf, "mean")
    texts = [[5, 9, 33, 120, 7], [250, 8, 91], list(range(40))]
    alone = np.concatenate([embed(runtime, built, text) for text in texts])
    np.testing.assert_allclose(embed(runtime, built, *texts), alone, rtol=0, atol=TOLERANCE)


def test_a_text_longer_than_the_first_batch(runtime: Runtime, files: ModelFiles) -> None:
    built = embedding_stage(runtime, files.long_gguf, "last", limit=1500)
    text = [place % 250 for place in range(1400)]
    rows = embed(runtime, built, text, text[:10], text)
    np.testing.assert_array_equal(rows[0], rows[2])
    assert np.abs(rows[0] - rows[1]).max() > 0.01
    with failing(0x8007007A):
        embed(runtime, built, [1] * 1501)


def test_rows_go_into_a_bound_tensor(runtime: Runtime, encoder: str) -> None:
    stage, pipeline = embedding_stage(runtime, encoder)
    room = runtime.create_tensor(TensorDataType.FLOAT32, (3, 32))
    wanted = embed(runtime, (stage, pipeline), *TEXTS)
    stage.bind_output(0, room)
    pipeline.run()
    np.testing.assert_array_equal(room.to_numpy(), wanted)
    stage.bind_output(0, runtime.create_tensor(TensorDataType.FLOAT32, (2, 32)))
    with failing(0x80070057):
        pipeline.run()


def test_the_schema_tells_two_inputs_and_one_output(runtime: Runtime, encoder: str) -> None:
    schema = embedding_stage(runtime, encoder)[0].schema()
    assert (schema.input_count, schema.output_count) == (2, 1)
    assert schema.output_desc(0) == (TensorDataType.FLOAT32, (2**64 - 1, 32))


def test_an_embedding_stage_keeps_no_sequence(runtime: Runtime, encoder: str) -> None:
    stage, _ = embedding_stage(runtime, encoder)
    with failing(0x80070032, NotSupportedError):
        _ = stage.sequence_position
    with failing(0x80070032, NotSupportedError):
        _ = stage.speculative_capabilities


# Refusals


@pytest.mark.parametrize(
    ("ids", "lengths", "code"),
    [
        ([2, 4, 3], [2], 0x80070057),
        ([2, 4, 3], [4], 0x80070057),
        ([2, 4, 3], [3, 0], 0x80070057),
        ([2, 4, 1000], [3], 0x80070057),
        ([2] * 65, [65], 0x8007007A),
    ],
)
def test_inputs_that_do_not_fit(runtime: Runtime, encoder: str, ids: list[int], lengths: list[int], code: int) -> None:
    stage, pipeline = embedding_stage(runtime, encoder)
    stage.bind_input(0, runtime.tensor_from_tokens(ids))
    stage.bind_input(1, runtime.tensor_from_tokens(lengths))
    with failing(code):
        pipeline.run()


def test_lengths_must_be_bound(runtime: Runtime, encoder: str) -> None:
    stage, pipeline = embedding_stage(runtime, encoder)
    stage.bind_input(0, runtime.tensor_from_tokens([2, 3]))
    with failing(0x80070057):
        pipeline.run()


def test_a_limit_beyond_the_positions_of_the_model_is_lowered(runtime: Runtime, encoder: str) -> None:
    with failing(0x8007007A):
        embed(runtime, embedding_stage(runtime, encoder, limit=5000), [2] * 65)


def test_a_model_that_ranks_has_no_embeddings(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x80070032) as caught:
        embedding_stage(runtime, encoder_gguf(tmp_path, 4))
    assert "ranks" in str(caught.value)


def test_an_encoder_does_not_generate(runtime: Runtime, encoder: str) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(runtime.load_model(encoder))
    with failing(0x80070032):
        builder.build()


def test_an_embedding_stage_drafts_nothing(runtime: Runtime, encoder: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(encoder))
    stage.llama_options().embeddings = True
    stage.draft_token_limit_hint = 3
    with failing(0x80070032) as caught:
        builder.build()
    assert "drafts" in str(caught.value)


def test_pooling_has_four_names(runtime: Runtime, encoder: str) -> None:
    stage = runtime.create_pipeline_builder().add_model_stage(runtime.load_model(encoder))
    with pytest.raises(ValueError, match="mean, cls, last, none"):
        stage.llama_options().pooling = "max"
    assert stage.llama_options().pooling is None
