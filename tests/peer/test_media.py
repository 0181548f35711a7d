"""Images and sound in a prompt: our segments against the helper functions of libmtmd, on tiny random models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import recipes
from winml_lite import Pipeline, Runtime, Stage, Vocabulary

pytestmark = [pytest.mark.peer, pytest.mark.real, pytest.mark.usefixtures("llama")]

PEER = Path(__file__).parents[1] / "fakes" / "media_peer.py"
rng = np.random.default_rng(1)
IMAGE = rng.integers(0, 256, (24, 40, 3), np.uint8)
SOUND = (0.1 * rng.standard_normal(1600)).astype(np.float32)
DECODERS: dict[str, Callable[[Path], Path]] = {
    "gemma3": recipes.random_gguf,  # rows that see each other
    "qwen2vl": recipes.qwen2vl_gguf,  # rows in a grid
    "qwen2a": recipes.random_gguf,  # sound
}


def feed(runtime: Runtime, stage: Stage, pipeline: Pipeline, tokens: list[int]) -> None:
    stage.bind_input(0, runtime.tensor_from_tokens(tokens))
    pipeline.run()


@pytest.mark.parametrize("batch_size", [7, 512])
@pytest.mark.parametrize("kind", ["gemma3", "qwen2vl", "qwen2a"])
def test_logits_after_media(runtime: Runtime, tmp_path: Path, kind: str, batch_size: int) -> None:
    path, projector = DECODERS[kind](tmp_path), recipes.projector_gguf(tmp_path, kind)
    media = SOUND if kind == "qwen2a" else IMAGE
    np.save(tmp_path / "media.npy", media)
    names = [str(path), str(projector), str(tmp_path / "media.npy"), str(tmp_path / "peer.npz")]
    subprocess.run([sys.executable, str(PEER), *names], check=True, capture_output=True)
    expected = np.load(tmp_path / "peer.npz")

    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.set_sequence_capacity_hint(1024)
    options = stage.llama_options()
    options.key_type = options.value_type = "f32"
    options.thread_count = 1
    options.batch_size = batch_size
    stage.request_output(0)
    pipeline = builder.build()
    encoder = stage.create_media_encoder_from_file(projector)
    rows, layout = encoder.encode(runtime.tensor_from_numpy(media[None]))
    with Vocabulary.from_file(path) as vocabulary:
        before, after = (vocabulary.encode(text, False) for text in (b"before ", b" after"))
    feed(runtime, stage, pipeline, before)
    stage.bind_embedding_segment(0, rows, layout)
    pipeline.run()
    feed(runtime, stage, pipeline, after)
    assert np.allclose(stage.output(0).to_numpy()[0], expected["logits"], atol=1e-3)
    assert stage.sequence_position == expected["position"]
