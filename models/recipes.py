"""Models that tests and examples build for themselves: a name, and the function that builds it in a folder.

Nothing is downloaded and no weights are kept in the repository. A file that is already in the folder is taken as it
is, so a session-scoped folder builds each model once. Not here: real models (`README.md`), ONNX graphs that are not
decoders (`onnx_models.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import encoder_models, gguf_models, hybrid_models, lora_adapters, media_models, projector_models
from .gguf_models import RANDOM_SHAPE, SENTENCE, vocabulary_metadata
from .gguf_writer import Tensors, write_gguf, write_shards
from .other_vocabularies import OTHER_KINDS, other_vocabulary_metadata
from .table_decoders import TableDecoder
from .tool_models import tool_model
from .vocabularies import byte_level_vocabulary, sentencepiece_vocabulary

__all__ = [
    "RECIPES",
    "SENTENCE",
    "adapter_gguf",
    "build",
    "encoder_gguf",
    "encoder_onnx",
    "gemma3_gguf",
    "gemma3_onnx",
    "hybrid_gguf",
    "media_gguf",
    "media_projector_gguf",
    "projector_gguf",
    "qwen2vl_gguf",
    "random_gguf",
    "random_onnx",
    "random_pipeline",
    "scripted_gguf",
    "scripted_onnx",
    "scripted_pipeline",
    "scripted_split",
    "sharded_gguf",
    "table_decoder",
    "tool_gguf",
    "tool_onnx",
    "vocabulary_gguf",
]

Folder = str | os.PathLike[str]
Model = tuple[dict[str, object], Tensors]


def scripted_gguf(folder: Folder) -> Path:
    """Build `scripted.gguf` (0.8 MB): says `SENTENCE` and ends its turn after any prompt that ends in a line feed."""
    return _decoder(folder, "scripted.gguf", gguf_models.scripted_model)


def random_gguf(folder: Folder) -> Path:
    """Build `random.gguf` (0.5 MB): random weights, long greedy output that depends on the prompt."""
    return _decoder(folder, "random.gguf", gguf_models.random_model)


def tool_gguf(folder: Folder) -> Path:
    """Build `tools.gguf` (0.8 MB): calls the tools `multiply` and `population`, and answers when it has results."""
    return _decoder(folder, "tools.gguf", tool_model)


def gemma3_gguf(folder: Folder) -> Path:
    """Build `gemma3.gguf` (0.7 MB): random weights, SentencePiece-type vocabulary, sliding window of 8 tokens."""
    return _decoder(folder, "gemma3.gguf", gguf_models.gemma3_model)


def hybrid_gguf(folder: Folder) -> Path:
    """Build `hybrid.gguf` (0.6 MB): random weights, a recurrent layer, a layer of attention, and a predictor."""
    return _decoder(folder, "hybrid.gguf", hybrid_models.hybrid_model)


def qwen2vl_gguf(folder: Folder) -> Path:
    """Build `qwen2vl.gguf` (0.5 MB): random weights, rows of images are placed in height and width."""
    return _decoder(folder, "qwen2vl.gguf", gguf_models.qwen2vl_model)


def adapter_gguf(folder: Folder, base: str = "random") -> Path:
    """Build `adapter-<base>.gguf` (20 KB): a LoRA adapter of rank 3 for the `"random"` or the `"scripted"` decoder."""
    return _decoder(folder, f"adapter-{base}.gguf", lambda: lora_adapters.adapter_model(base))


def encoder_gguf(folder: Folder, pooling: int | None = 1) -> Path:
    """Build `encoder-<pooling>.gguf` (90 KB): a random bert encoder of sentences; pooling as in `encoder_model`."""
    return _decoder(folder, f"encoder-{pooling}.gguf", lambda: encoder_models.encoder_model(pooling))


def encoder_onnx(folder: Folder, pooling: str = "mean", normalize: bool = True) -> Path:
    """Build the same encoder as an ONNX model folder of sentence-transformers; `"mean"`, `"cls"`, `"max"`, `"last"`."""
    path = Path(folder) / f"encoder-{pooling}{'' if normalize else '-plain'}"
    return path if path.exists() else encoder_models.write_encoder_folder(path, pooling, normalize)


def projector_gguf(folder: Folder, kind: str = "gemma3", row_length: int = RANDOM_SHAPE.width) -> Path:
    """Build a projector for a decoder whose rows have `row_length` numbers (as the random one's): `"gemma3"` and
    `"qwen2vl"` take images, `"qwen2a"` takes sound."""
    models = {
        "gemma3": projector_models.gemma3_projector,
        "qwen2vl": projector_models.qwen2vl_projector,
        "qwen2a": projector_models.qwen2a_projector,
    }
    return _decoder(folder, f"projector-{kind}-{row_length}.gguf", lambda: models[kind](row_length))


def media_gguf(folder: Folder, architecture: str = "llama") -> Path:
    """Build `media-<architecture>.gguf` (0.5 MB): says what the last picture or sound was, see `media_models.py`;
    `"llama"` or `"qwen2vl"`."""
    return _decoder(folder, f"media-{architecture}.gguf", lambda: media_models.media_decoder(architecture))


def media_projector_gguf(folder: Folder, kind: str = "gemma3") -> Path:
    """Build the projector of that model: `"gemma3"` and `"qwen2vl"` (for the decoder of that name) for pictures,
    `"qwen2a"` for sound, `"both"` for pictures and sound."""
    models = {
        "gemma3": media_models.seeing_gemma3_projector,
        "qwen2vl": media_models.seeing_qwen2vl_projector,
        "qwen2a": media_models.hearing_projector,
        "both": media_models.seeing_and_hearing_projector,
    }
    return _decoder(folder, f"media-projector-{kind}.gguf", models[kind])


def sharded_gguf(folder: Folder) -> Path:
    """Build the scripted model as two shards and return the first; the second lies beside it."""
    path = Path(folder) / "scripted-00001-of-00002.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shards(folder, "scripted", *gguf_models.scripted_model())
    return path


def vocabulary_gguf(folder: Folder, kind: str = "smollm") -> Path:
    """Build a GGUF with a vocabulary only.

    `kind`: the text splitting of a byte-level one (`"smollm"`, `"gpt-2"`, `"llama-bpe"`, `"qwen2"`), or
    SentencePiece-type: `"spm"`, which puts a space in front of a text, and `"spm-no-prefix"`, which does not; or
    one of the kinds of `other_vocabularies.py`: `"bert"`, `"t5"`, `"rwkv"`.
    """

    def model() -> Model:
        if kind in OTHER_KINDS:
            return other_vocabulary_metadata(kind), {}
        if kind.startswith("spm"):
            vocabulary = sentencepiece_vocabulary(add_space_prefix=kind == "spm")
        else:
            vocabulary = byte_level_vocabulary(merge_count=120, pre=kind, user_defined=("<think>", "</think>"))
        return vocabulary_metadata(vocabulary), {}

    return _decoder(folder, f"vocabulary-{kind}.gguf", model)


def scripted_onnx(folder: Folder, operators: str = "gqa", weights: str = "f32", **options: Any) -> Path:
    """Build the scripted model as an ONNX model folder; options are those of `genai.convert.convert_gguf`."""
    return _converted(scripted_gguf(folder), operators, weights, options)


def scripted_split(folder: Folder, weights: str = "f32", **options: Any) -> Path:
    """Build the scripted model as an ONNX model folder that also has it in two graphs, see `split_decoder.py`."""
    from .split_decoder import split_decoder

    return split_decoder(scripted_onnx(folder, "gqa", weights, **options))


def scripted_pipeline(folder: Folder, weights: str = "f32", **options: Any) -> Path:
    """Build the scripted model as a folder of three graphs, see `split_decoder.py`."""
    return _in_three(scripted_onnx(folder, "gqa", weights, **options))


def random_pipeline(folder: Folder, weights: str = "f32", **options: Any) -> Path:
    """Build the random model as a folder of three graphs, see `split_decoder.py`."""
    return _in_three(random_onnx(folder, "gqa", weights, **options))


def _in_three(folder: Path) -> Path:
    from .split_decoder import split_in_three

    return split_in_three(folder, folder.with_name(f"{folder.name}-pipeline"))


def random_onnx(folder: Folder, operators: str = "gqa", weights: str = "f32", **options: Any) -> Path:
    """Build the random model as an ONNX model folder; options are those of `genai.convert.convert_gguf`."""
    return _converted(random_gguf(folder), operators, weights, options)


def tool_onnx(folder: Folder, operators: str = "gqa", weights: str = "f32", **options: Any) -> Path:
    """Build the model that calls tools as an ONNX model folder; options are those of `genai.convert.convert_gguf`."""
    return _converted(tool_gguf(folder), operators, weights, options)


def gemma3_onnx(folder: Folder, operators: str = "gqa", weights: str = "f32", **options: Any) -> Path:
    """Build the gemma3 model as an ONNX model folder; options are those of `genai.convert.convert_gguf`."""
    return _converted(gemma3_gguf(folder), operators, weights, options)


def table_decoder(folder: Folder, tables: TableDecoder, extension: str, context_length: int) -> Path:
    """Build a decoder that answers by tables, as `.gguf` with room for `context_length` tokens, or as `.onnx`."""
    if extension == ".gguf":
        return _decoder(folder, f"tables-{tables.key}-{context_length}.gguf", lambda: tables.gguf(context_length))
    path = Path(folder) / f"tables-{tables.key}.onnx"
    if not path.exists():
        from .onnx_models import save

        save(tables.onnx(), path)
    return path


def build(name: str, folder: Folder) -> Path:
    """Build the model called `name` in `folder`, unless it is there, and return its path."""
    return RECIPES[name](folder)


RECIPES: dict[str, Callable[[Folder], Path]] = {
    "scripted-gguf": scripted_gguf,
    "random-gguf": random_gguf,
    "tool-gguf": tool_gguf,
    "gemma3-gguf": gemma3_gguf,
    "hybrid-gguf": hybrid_gguf,
    "qwen2vl-gguf": qwen2vl_gguf,
    "projector-gguf": projector_gguf,
    "media-gguf": media_gguf,
    "media-projector-gguf": media_projector_gguf,
    "adapter-gguf": adapter_gguf,
    "encoder-gguf": encoder_gguf,
    "encoder-onnx": encoder_onnx,
    "sharded-gguf": sharded_gguf,
    "vocabulary-gguf": vocabulary_gguf,
    "scripted-onnx": scripted_onnx,
    "scripted-split": scripted_split,
    "random-onnx": random_onnx,
    "tool-onnx": tool_onnx,
    "gemma3-onnx": gemma3_onnx,
}


def _decoder(folder: Folder, name: str, model: Callable[[], Model]) -> Path:
    path = Path(folder) / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(path, *model())
    return path


def _converted(source: Path, operators: str, weights: str, options: dict[str, Any]) -> Path:
    from genai.convert import convert_gguf  # only these recipes need the converter and `onnx`

    suffix = "".join(f"-{name}={value}" for name, value in sorted(options.items()))
    target = source.with_name(f"{source.stem}-{operators}-{weights}{suffix}")
    if not target.exists():
        convert_gguf(source, target, operators=operators, weights=weights, **options)  # type: ignore[arg-type]
    return target
