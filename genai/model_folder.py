"""What lies in a model folder, and how its decoder is wired (design of `genai.load`).

Understood: `genai_config.json` as onnxruntime-genai writes it, for one decoder file or a pipeline of several, and a
plain folder with one decoder ONNX. Not here: tokenizers (`tokenizer.py`), connecting the graphs of a pipeline
(`pipeline_folder.py`), running (`loading.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winml_lite import Model, Stage, TensorDataType, WinMLError

from .codes import FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED
from .reading import read_json, read_json_if_there

_CONTEXT = "genai.load"
_COUNT_MAX = 0x7FFFFFFF
_DECODER_NAMES = ("model.onnx", "decoder_model_merged.onnx", "decoder.onnx", "model.ort")


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """What the configuration files of a folder declare; None for what they do not."""

    context_length: int | None
    head_size: int | None


def find_model_file(folder: Path) -> Path:
    """Find the decoder file of `folder`. WinMLError 0x80070002 when there is none, 0x8007000D for a broken
    genai_config.json.
    """
    config_path = folder / "genai_config.json"
    if not config_path.is_file():
        return _single_decoder(folder)
    filename = _decoder_config(config_path).get("filename")
    if not isinstance(filename, str) or not filename:
        raise WinMLError(
            NOT_SUPPORTED, _CONTEXT, f"{config_path} names no single decoder file (model.decoder.filename)"
        )
    if not (folder / filename).is_file():
        raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{config_path} names {filename}, which is not in the folder")
    return folder / filename


def read_settings(folder: Path) -> DecoderSettings:
    """Read context length and head size from genai_config.json, else from config.json. 0x8007000D for broken files."""
    config_path = folder / "genai_config.json"
    if config_path.is_file():
        model = _object(read_json(config_path, _CONTEXT), "model", config_path)
        decoder = _object(model, "decoder", config_path)
        return DecoderSettings(_count(model.get("context_length")), _count(decoder.get("head_size")))
    config = read_json_if_there(folder / "config.json", _CONTEXT)
    heads, width = _count(config.get("num_attention_heads")), _count(config.get("hidden_size"))
    head_size = _count(config.get("head_dim")) or (width // heads if heads and width else None)
    return DecoderSettings(_count(config.get("max_position_embeddings")), head_size)


def read_session_options(folder: Path) -> tuple[Path, object]:
    """Return the configuration of onnxruntime-genai, and its `model.decoder.session_options`; None where there is none.

    WinMLError 0x8007000D for a broken file.
    """
    path = folder / "genai_config.json"
    if not path.is_file():
        return path, None
    return path, _decoder_config(path).get("session_options")


@dataclass(frozen=True, slots=True)
class PipelineGraph:
    """One graph of a decoder that is a pipeline of several."""

    name: str
    file: Path
    renamed: dict[str, str]
    """Outputs that go on under another name."""
    session_options: object = None
    """What the configuration says of its session; it comes on top of those of the decoder."""


@dataclass(frozen=True, slots=True)
class DecoderPipeline:
    """A decoder in several graphs; outputs go to later inputs of the same name."""

    graphs: tuple[PipelineGraph, ...]
    token_input: str
    logits_output: str


def read_pipeline(folder: Path) -> DecoderPipeline | None:
    """Read `model.decoder.pipeline` of genai_config.json; None where there is none.

    WinMLError 0x8007000D for a broken one, 0x80070002 for a missing file, 0x80070032 for graphs that take turns.
    """
    path = folder / "genai_config.json"
    if not path.is_file():
        return None
    decoder = _decoder_config(path)
    pipeline = decoder.get("pipeline")
    if pipeline is None or pipeline == []:
        return None
    groups = pipeline if isinstance(pipeline, list) else [pipeline]
    if not all(isinstance(group, dict) for group in groups):
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{path}: model.decoder.pipeline names no graphs")
    graphs = [_pipeline_graph(folder, path, group, name) for group in groups for name in group]
    inputs, outputs = decoder.get("inputs"), decoder.get("outputs")
    return DecoderPipeline(tuple(graphs), _name(inputs, "input_ids"), _name(outputs, "logits"))


def _pipeline_graph(folder: Path, path: Path, group: dict[str, Any], name: str) -> PipelineGraph:
    graph = _object(group, name, path)
    for flag, when in (("run_on_prompt", "prompts"), ("run_on_token_gen", "single tokens")):
        if graph.get(flag, True) is not True:
            raise WinMLError(
                NOT_SUPPORTED,
                _CONTEXT,
                f"{path}: the graph {name!r} does not run on {when}; only pipelines that run whole are loaded",
            )
    filename, renamed = graph.get("filename"), graph.get("output_names_forwarder", {})
    if not isinstance(filename, str) or not filename:
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{path}: the graph {name!r} names no file")
    if not isinstance(renamed, dict) or not all(isinstance(new, str) for new in renamed.values()):
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{path}: the graph {name!r} has no valid output_names_forwarder")
    if not (folder / filename).is_file():
        raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{path} names {filename}, which is not in the folder")
    return PipelineGraph(name, folder / filename, renamed, graph.get("session_options"))


def _name(names: Any, key: str) -> str:
    """Return what a port is called; its own name unless the configuration renames it."""
    name = names.get(key) if isinstance(names, dict) else None
    return name if isinstance(name, str) and name else key


def _single_decoder(folder: Path) -> Path:
    for parent in (folder, folder / "onnx"):
        for name in _DECODER_NAMES:
            if (parent / name).is_file():
                return parent / name
        found = sorted(parent.glob("*.onnx"))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(path.name for path in found)
            raise WinMLError(NOT_SUPPORTED, _CONTEXT, f"{parent} holds several ONNX files ({names}): name one of them")
    raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{folder} holds neither genai_config.json nor an ONNX file")


def _decoder_config(path: Path) -> dict[str, Any]:
    """Return the part of a `genai_config.json` that is about the decoder."""
    return _object(_object(read_json(path, _CONTEXT), "model", path), "decoder", path)


def _object(parent: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{path} has no object {key!r}")
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _COUNT_MAX else None


@dataclass(frozen=True, slots=True)
class DecoderWiring:
    """Which inputs and outputs of an ONNX decoder are ids, logits, and state."""

    token_input: int
    logits_output: int
    state_pairs: tuple[tuple[int, int], ...]


def wire_decoder(model: Model, file: Path) -> DecoderWiring:
    """Find the endpoints of the ONNX decoder `file` by the names that exporters use: `input_ids`, `logits`, `past*` and
    `present*`.

    WinMLError 0x80070032 when the graph is not such a decoder; the message names what is missing.
    """
    schema, names = model.schema(), model.ort_schema()
    inputs = [names.input_name(index) for index in range(schema.input_count)]
    outputs = {names.output_name(index): index for index in range(schema.output_count)}
    pairs = []
    for index, name in enumerate(inputs):
        if name.startswith("past"):
            present = present_name(name, outputs)
            if present is None:
                raise WinMLError(NOT_SUPPORTED, _CONTEXT, f"{file}: the input {name!r} has no matching present output")
            pairs.append((index, outputs[present]))
    if not pairs:
        text = f"{file}: the graph is no decoder with a cache: its inputs are {inputs}"
        if {"last_hidden_state", "token_embeddings", "sentence_embedding"} & outputs.keys():
            text += "; it embeds texts: load it with genai.load_embedding"
        elif [len(dimensions) for _, dimensions in schema.inputs()] == [4]:
            text += "; if it classifies pictures, load it with genai.load_classifier"
        raise WinMLError(NOT_SUPPORTED, _CONTEXT, text)
    token_input = inputs.index("input_ids") if "input_ids" in inputs else _first_integer(model, file)
    if "logits" not in outputs:
        raise WinMLError(
            NOT_SUPPORTED, _CONTEXT, f"{file}: the decoder has no output 'logits': its outputs are {list(outputs)}"
        )
    return DecoderWiring(token_input, outputs["logits"], tuple(pairs))


def present_name(past: str, outputs: dict[str, int]) -> str | None:
    """Return the output that becomes the state input `past` of the next run."""
    candidates = (past.replace("past_key_values", "present", 1), past.replace("past", "present", 1))
    return next((name for name in candidates if name in outputs), None)


def _first_integer(model: Model, file: Path) -> int:
    for index, (data_type, _) in enumerate(model.schema().inputs()):
        if data_type in (TensorDataType.INT32, TensorDataType.INT64):
            return index
    raise WinMLError(NOT_SUPPORTED, _CONTEXT, f"{file}: the decoder has no integer input for token ids")


def declare_state(stage: Stage, wiring: DecoderWiring, head_size: int | None) -> None:
    """Declare the cache of a decoder stage before `build`."""
    for past, present in wiring.state_pairs:
        stage.add_state_tensor_pair(past, present)
    set_head_size(stage, head_size)


def set_head_size(stage: Stage, head_size: int | None) -> None:
    """Fix the last cache dimension, a symbol in models of onnxruntime-genai's builder; others ignore it."""
    if head_size is not None:
        stage.symbolic_dimensions["kv_cache_dim"] = head_size
