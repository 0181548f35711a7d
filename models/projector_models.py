"""Tiny projector files for libmtmd, the same on every run: encoders of images and sound for the tiny decoders.

Here: metadata and weights, one function for each type of projector. Only NumPy. Not here: the decoders
(`gguf_models.py`), the file format (`gguf_writer.py`), names and caching (`recipes.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .gguf_writer import Tensors

Floats = npt.NDArray[np.float32]
Model = tuple[dict[str, object], Tensors]

WIDTH = 16
HIDDEN = 32
HEADS = 2
IMAGE_SIZE = 16
PATCH_SIZE = 4
MEL_BINS = 8
SOUND_FRAMES = 3000
"""Frames of 10 ms in the 30 seconds that the sound encoder takes at a time."""


def gemma3_projector(row_length: int) -> Model:
    """Return a projector of type gemma3: any image becomes 4 rows that attend to each other, framing text around."""
    rng = np.random.default_rng(31)
    patches = (IMAGE_SIZE // PATCH_SIZE) ** 2
    metadata = _image_metadata("gemma3", row_length) | {"clip.vision.projector.scale_factor": 2}
    tensors = {
        "v.patch_embd.weight": _normal(rng, WIDTH, 3, PATCH_SIZE, PATCH_SIZE),
        "v.patch_embd.bias": _normal(rng, WIDTH),
        "v.position_embd.weight": _normal(rng, patches, WIDTH),
        **_block(rng, "v"),
        "v.post_ln.weight": np.ones(WIDTH, np.float32),
        "v.post_ln.bias": np.zeros(WIDTH, np.float32),
        "mm.soft_emb_norm.weight": np.ones(WIDTH, np.float32),
        "mm.input_projection.weight": _normal(rng, WIDTH, row_length),
    }
    return metadata, tensors


def qwen2vl_projector(row_length: int) -> Model:
    """Return a projector of type qwen2vl: rows in a grid, one for 8 x 8 pixels, between two framing tokens."""
    rng = np.random.default_rng(32)
    metadata = _image_metadata("qwen2vl_merger", row_length)
    tensors = {
        "v.patch_embd.weight": _normal(rng, WIDTH, 3, PATCH_SIZE, PATCH_SIZE),
        "v.patch_embd.weight.1": _normal(rng, WIDTH, 3, PATCH_SIZE, PATCH_SIZE),
        **_block(rng, "v"),
        "v.post_ln.weight": np.ones(WIDTH, np.float32),
        "v.post_ln.bias": np.zeros(WIDTH, np.float32),
        "mm.0.weight": _normal(rng, 4 * WIDTH, 4 * WIDTH),
        "mm.0.bias": np.zeros(4 * WIDTH, np.float32),
        "mm.2.weight": _normal(rng, row_length, 4 * WIDTH),
        "mm.2.bias": np.zeros(row_length, np.float32),
    }
    return metadata, tensors


def qwen2a_projector(row_length: int) -> Model:
    """Return a projector of type qwen2a: 30 seconds of sound become 750 rows, framing text around them."""
    rng = np.random.default_rng(33)
    metadata = {
        "general.architecture": "clip",
        "clip.has_audio_encoder": True,
        "clip.projector_type": "qwen2a",
        **_encoder_metadata("audio", row_length),
        "clip.audio.num_mel_bins": MEL_BINS,
    }
    tensors = {
        "a.conv1d.1.weight": _normal(rng, WIDTH, MEL_BINS, 3),
        "a.conv1d.1.bias": np.zeros((WIDTH, 1), np.float32),
        "a.conv1d.2.weight": _normal(rng, WIDTH, WIDTH, 3),
        "a.conv1d.2.bias": np.zeros((WIDTH, 1), np.float32),
        "a.position_embd.weight": _normal(rng, SOUND_FRAMES // 2, WIDTH),
        **_block(rng, "a"),
        "a.post_ln.weight": np.ones(WIDTH, np.float32),
        "a.post_ln.bias": np.zeros(WIDTH, np.float32),
        "mm.a.fc.weight": _normal(rng, row_length, WIDTH),
        "mm.a.fc.bias": np.zeros(row_length, np.float32),
    }
    del tensors["a.blk.0.attn_k.bias"]  # this encoder has none
    return metadata, tensors


def _image_metadata(kind: str, row_length: int) -> dict[str, object]:
    return {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.use_gelu": True,
        **_encoder_metadata("vision", row_length),
        "clip.vision.image_size": IMAGE_SIZE,
        "clip.vision.patch_size": PATCH_SIZE,
        "clip.vision.image_mean": np.full(3, 0.5, np.float32),
        "clip.vision.image_std": np.full(3, 0.5, np.float32),
    }


def _encoder_metadata(sense: str, row_length: int) -> dict[str, object]:
    values: dict[str, object] = {
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "block_count": 1,
        "projection_dim": row_length,
        "attention.head_count": HEADS,
        "attention.layer_norm_epsilon": 1e-6,
    }
    return {f"clip.{sense}.{key}": value for key, value in values.items()}


def _normal(rng: np.random.Generator, *shape: int) -> Floats:
    """Normal weights that keep the size of what they are applied to."""
    inputs = int(np.prod(shape[1:])) or 1
    weights: Floats = (rng.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)
    return weights


def _block(rng: np.random.Generator, prefix: str) -> dict[str, Floats]:
    """Return the weights of one encoder block."""
    name = f"{prefix}.blk.0"
    weights = {
        "attn_q": _normal(rng, WIDTH, WIDTH),
        "attn_k": _normal(rng, WIDTH, WIDTH),
        "attn_v": _normal(rng, WIDTH, WIDTH),
        "attn_out": _normal(rng, WIDTH, WIDTH),
        "ffn_up": _normal(rng, HIDDEN, WIDTH),
        "ffn_down": _normal(rng, WIDTH, HIDDEN),
        "ln1": np.ones(WIDTH, np.float32),
        "ln2": np.ones(WIDTH, np.float32),
    }
    tensors: dict[str, Floats] = {}
    for part, weight in weights.items():
        tensors[f"{name}.{part}.weight"] = weight
        tensors[f"{name}.{part}.bias"] = np.zeros(len(weight), np.float32)
    return tensors
