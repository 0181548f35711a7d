"""Damaged projector files given to libmtmd: an encoder that works, or an exception with the path; never a signal.

Run as a program, this file is the child process of its own test: `test_mutants_projector.py FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from models import media_models, projector_models, recipes
from models.gguf_writer import Tensors, write_gguf
from winml_lite import Runtime, Stage, WinMLError
from winml_lite.files.gguf import GgufFile

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

DAMAGED = 8
SECONDS_PER_MUTANT = 60
ALTERED: dict[str, dict[str, object]] = {
    "gemma3": {
        "general.architecture": "llama",
        "clip.has_vision_encoder": "text",
        "clip.projector_type": "mlp",
        "clip.vision.embedding_length": 5,
        "clip.vision.attention.head_count": 3,
        "clip.vision.attention.layer_norm_epsilon": float("nan"),
        "clip.vision.block_count": 0,
        "clip.vision.image_size": 1,
        "clip.vision.patch_size": 3,
        "clip.vision.image_mean": np.zeros(2, np.float32),
        "clip.vision.projector.scale_factor": 64,
    },
    "qwen2vl": {"clip.vision.image_size": 2**31 - 1, "clip.vision.patch_size": 0},
    "qwen2a": {
        "clip.audio.num_mel_bins": 0,
        "clip.projector_type": "gemma3nv",
        "clip.audio.block_count": 2,
        "clip.audio.attention.head_count": 0,
        "clip.audio.feed_forward_length": 2**31 - 1,
        "clip.audio.projection_dim": 0,
    },
    "both": {
        "clip.vision.projector_type": "qwen2a",
        "clip.audio.projector_type": "gemma3",
        "clip.projector_type": "qwen2.5o",
        "clip.has_audio_encoder": False,
        "clip.has_vision_encoder": False,
        "clip.vision.image_std": np.zeros(3, np.float32),
        "clip.vision.image_mean": "none",
        "clip.audio.embedding_length": 0,
    },
}
"""Values that libmtmd asserts, crashes on, or refuses."""


def test_damaged_projectors(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("74 damaged projectors, ")


def main(folder: Path) -> None:
    from fakes.mutate_files import deadline, mutants

    path = folder / "mutant.gguf"
    count = works = 0
    with Runtime() as runtime:
        stages = {kind: _decoder(runtime, recipes.random_gguf(folder)) for kind in ALTERED}
        stages["both"] = _decoder(runtime, recipes.media_gguf(folder))
        for kind, stage in stages.items():
            is_pair = kind == "both"
            whole = recipes.media_projector_gguf(folder, kind) if is_pair else recipes.projector_gguf(folder, kind)
            header, weights = _split(whole)
            files = [bytes(damaged) + weights for damaged in mutants(header, DAMAGED, len(kind))]
            files += [write_gguf(path, *model).read_bytes() for model in _impossible(kind)]
            for data in files:
                path.write_bytes(data)
                with deadline(SECONDS_PER_MUTANT):
                    works += _works(runtime, stage, path)
                count += 1
    print(f"{count} damaged projectors, {works} of them work")


def _decoder(runtime: Runtime, path: Path) -> Stage:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.llama_options().thread_count = 1
    builder.build()
    return stage


def _doubled(tensor: object) -> npt.NDArray[np.float32]:
    """A tensor with every row twice over."""
    rows = np.asarray(tensor, np.float32)
    return np.concatenate((rows, rows))


def _impossible(kind: str) -> Iterator[tuple[dict[str, object], Tensors]]:
    """Well-formed projectors with a value or a tensor that does not fit."""
    if kind == "both":
        metadata, tensors = media_models.seeing_and_hearing_projector()
    else:
        metadata, tensors = getattr(projector_models, f"{kind}_projector")(64)
    for key, value in ALTERED[kind].items():
        yield {**metadata, key: value}, tensors
    arrays: dict[str, Any] = dict(tensors)
    block = "a.blk.0" if kind == "qwen2a" else "v.blk.0"
    query, norm = f"{block}.attn_q.weight", f"{block}.ln1.weight"
    yield metadata, {name: tensor for name, tensor in tensors.items() if name != query}
    yield metadata, {**tensors, query: np.concatenate((arrays[query], arrays[query]))}
    yield metadata, {**tensors, norm: arrays[norm].astype(np.float16)}
    if kind == "qwen2vl":
        yield metadata, {**tensors, "mm.2.weight": np.concatenate((arrays["mm.2.weight"], arrays["mm.2.weight"]))}
        yield metadata, {name: tensor for name, tensor in tensors.items() if name != "v.patch_embd.weight"}
        yield metadata, {**tensors, "mm.0.weight": np.zeros((64, 64), np.float32)}


def _split(path: Path) -> tuple[bytes, bytes]:
    """Header and weights: most of a file is weights, where damage is only another number."""
    data = path.read_bytes()
    with GgufFile(path) as file:
        start = min(tensor.offset for tensor in file.tensors.values())
    return data[:start], data[start:]


def _works(runtime: Runtime, stage: Stage, path: Path) -> bool:
    """Open the projector and encode something of each kind; return whether that went well."""
    try:
        encoder = stage.create_media_encoder_from_file(path)
        for data_type, shape in encoder.media_tensor_descs:
            encoder.encode(runtime.create_tensor(data_type, [min(extent, 1600) for extent in shape]))
    except WinMLError as error:
        assert str(path) in str(error), error
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
