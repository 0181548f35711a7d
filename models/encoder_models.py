"""A tiny encoder of sentences, the same on every run: as a `bert` GGUF, and as an ONNX model folder of the layout that
sentence-transformers writes. Both hold the same weights and the same WordPiece vocabulary.

Here: weights, GGUF metadata, the ONNX graph and the files beside it. Not here: decoders (`gguf_models.py`).
"""

from __future__ import annotations

import json
import os
import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .gguf_models import norm_weight, normal_weights
from .gguf_writer import Tensors
from .vocabularies import CONTROL, NORMAL, UNKNOWN

if TYPE_CHECKING:
    import onnx

Floats = npt.NDArray[np.float32]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("the", "cat", "dog", "sat", "ran", "on", "a", "mat", "sun", "is", "warm", "cold", "sea", ",", ".", "!")
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Extents of a tiny encoder."""

    width: int = 32
    layers: int = 2
    heads: int = 4
    hidden: int = 64
    positions: int = 64


SHAPE = EncoderShape()


def pieces() -> list[str]:
    """The vocabulary as WordPiece spells it: words, letters that begin a word, and letters that go on one."""
    letters = list(string.ascii_lowercase)
    return [*SPECIAL, *WORDS, *(c for c in letters if c not in WORDS), *(f"##{c}" for c in letters)]


def encoder_model(pooling: int | None = 1) -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of the encoder. `pooling`: 0 none, 1 mean, 2 the first token, 3 the last, 4 a rank;
    None says nothing about it.
    """
    tokens = [p if p in SPECIAL else p[2:] if p.startswith("##") else "\u2581" + p for p in pieces()]
    kinds = [UNKNOWN if p == "[UNK]" else CONTROL if p in SPECIAL else NORMAL for p in pieces()]
    values: dict[str, object] = {
        "context_length": SHAPE.positions,
        "embedding_length": SHAPE.width,
        "block_count": SHAPE.layers,
        "feed_forward_length": SHAPE.hidden,
        "attention.head_count": SHAPE.heads,
        "attention.layer_norm_epsilon": EPSILON,
        "attention.causal": False,
    }
    if pooling is not None:
        values["pooling_type"] = pooling
    ids = {"padding": 0, "unknown": 1, "bos": 2, "cls": 2, "eos": 3, "seperator": 3}
    metadata = {
        "general.architecture": "bert",
        "general.name": "tiny-random-encoder",
        "general.file_type": 0,
        **{f"bert.{key}": value for key, value in values.items()},
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        **{f"tokenizer.ggml.{name}_token_id": np.uint32(number) for name, number in ids.items()},
    }
    return metadata, encoder_weights()


def encoder_weights() -> dict[str, Floats]:
    """Return the weights under the names of a `bert` GGUF; matrices are (outputs, inputs)."""
    rng = np.random.default_rng(77)
    width, hidden = SHAPE.width, SHAPE.hidden

    def bias(size: int) -> Floats:
        return (0.1 * rng.standard_normal(size)).astype(np.float32)

    def norm(name: str) -> dict[str, Floats]:
        return {f"{name}.weight": norm_weight(rng, width, 0.1), f"{name}.bias": bias(width)}

    def linear(name: str, outputs: int, inputs: int) -> dict[str, Floats]:
        return {f"{name}.weight": normal_weights(rng, outputs, inputs, 1.5), f"{name}.bias": bias(outputs)}

    tensors = {
        "token_embd.weight": rng.standard_normal((len(pieces()), width)).astype(np.float32),
        "token_types.weight": bias(2 * width).reshape(2, width),
        "position_embd.weight": 3 * bias(SHAPE.positions * width).reshape(SHAPE.positions, width),
        **norm("token_embd_norm"),
    }
    for layer in range(SHAPE.layers):
        name = f"blk.{layer}."
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors |= linear(name + part, width, width)
        tensors |= {**norm(f"{name}attn_output_norm"), **linear(f"{name}ffn_up", hidden, width)}
        tensors |= {**linear(f"{name}ffn_down", width, hidden), **norm(f"{name}layer_output_norm")}
    return tensors


# The ONNX model folder


def write_encoder_folder(folder: str | os.PathLike[str], pooling: str = "mean", normalize: bool = True) -> Path:
    """Write `model.onnx`, a tokenizer, and the modules as sentence-transformers describes them; return the folder."""
    import onnx  # only this recipe needs it

    path = Path(folder)
    (path / "1_Pooling").mkdir(parents=True)
    onnx.save(encoder_graph(), path / "model.onnx")
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
    switches = {f"pooling_mode_{name}": name == modes[pooling] for name in modes.values()}
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    contents = {
        "1_Pooling/config.json": {"word_embedding_dimension": SHAPE.width, **switches},
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": SHAPE.positions - 8, "do_lower_case": False},
        "config.json": {"model_type": "bert", "max_position_embeddings": SHAPE.positions, "pad_token_id": 0},
        "tokenizer_config.json": {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"},
        "tokenizer.json": tokenizer_json(),
    }
    for name, content in contents.items():
        (path / name).write_text(json.dumps(content), encoding="utf-8")
    return path


def tokenizer_json() -> dict[str, Any]:
    """Return a WordPiece tokenizer in the format of the `tokenizers` library."""
    vocabulary = {piece: number for number, piece in enumerate(pieces())}
    added = [
        {"id": number, "content": piece, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for number, piece in enumerate(SPECIAL)
    ]
    frame = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}} | {
        "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("[CLS]"), _sequence("A", 0), _special("[SEP]")],
            "pair": [_special("[CLS]"), _sequence("A", 0), _special("[SEP]"), _sequence("B", 1), _special("[SEP]", 1)],
            "special_tokens": frame,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def _special(piece: str, kind: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": piece, "type_id": kind}}


def _sequence(name: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}


def encoder_graph() -> onnx.ModelProto:
    """Return the encoder as a graph: `input_ids`, `attention_mask`, `token_type_ids` in, `last_hidden_state` out."""
    from onnx import TensorProto, helper, numpy_helper

    weights = encoder_weights()
    nodes: list[Any] = []
    constants = {f"c{n}": np.array(v, np.int64) for n, v in enumerate(([0, 0, SHAPE.heads, -1], [0, 0, -1], [1, 2]))}
    numbers = {"root": np.float32(1 / np.sqrt(SHAPE.width // SHAPE.heads)), "one": np.float32(1)}
    numbers |= {"far": np.float32(-1e9), "half": np.float32(0.5), "root2": np.float32(1 / np.sqrt(2))}

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(nodes)}"
        nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def linear(value: str, name: str) -> str:
        return node("Add", node("MatMul", value, f"{name}.transposed"), f"{name}.bias")

    def norm(value: str, name: str) -> str:
        return node("LayerNormalization", value, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=EPSILON)

    def heads(value: str) -> str:
        return node("Transpose", node("Reshape", value, "c0"), perm=[0, 2, 1, 3])

    length = node("Shape", "input_ids", start=1, end=2)
    positions = node("Range", "zero", node("Squeeze", length), "step")
    words = node("Gather", "token_embd.weight", "input_ids")
    words = node("Add", words, node("Gather", "token_types.weight", "token_type_ids"))
    hidden = norm(node("Add", words, node("Gather", "position_embd.weight", positions)), "token_embd_norm")
    mask = node("Mul", node("Sub", "one", node("Cast", "attention_mask", to=TensorProto.FLOAT)), "far")
    mask = node("Unsqueeze", mask, "c2")
    for layer in range(SHAPE.layers):
        name = f"blk.{layer}."
        query, key, value = (heads(linear(hidden, f"{name}attn_{part}")) for part in "qkv")
        scores = node("Mul", node("MatMul", query, node("Transpose", key, perm=[0, 1, 3, 2])), "root")
        mixed = node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), value)
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), "c1")
        hidden = norm(node("Add", hidden, linear(mixed, f"{name}attn_output")), f"{name}attn_output_norm")
        inner = linear(hidden, f"{name}ffn_up")
        gate = node("Mul", node("Add", node("Erf", node("Mul", inner, "root2")), "one"), "half")
        inner = linear(node("Mul", inner, gate), f"{name}ffn_down")
        hidden = norm(node("Add", hidden, inner), f"{name}layer_output_norm")
    nodes.append(helper.make_node("Identity", [hidden], ["last_hidden_state"]))
    arrays: dict[str, Any] = {**constants, **numbers, "zero": np.int64(0), "step": np.int64(1)}
    for name, array in weights.items():
        is_matrix = array.ndim == 2 and name.startswith("blk.")
        arrays[name.replace(".weight", ".transposed") if is_matrix else name] = array.T if is_matrix else array
    initializers = [numpy_helper.from_array(np.array(a, order="C"), n) for n, a in arrays.items()]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    shape = ["batch", "length", SHAPE.width]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, producer_name="winml-lite", ir_version=10, opset_imports=opsets)
