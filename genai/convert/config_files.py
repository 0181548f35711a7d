"""The small files beside a converted model: what onnxruntime-genai and Hugging Face readers look for.

`genai_config.json`, `generation_config.json`, `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .architecture import DecoderArchitecture
from .operators import OperatorSet
from .source import ModelSource
from .tokenizer_json import tokenizer_json
from .vocabulary import Vocabulary

MODEL_FILE = "model.onnx"

_GENAI_TYPES = {"llama": "llama", "gemma3": "gemma3_text"}


def write_tokenizer(folder: Path, source: ModelSource, vocabulary: Vocabulary, context_length: int) -> None:
    """Write the tokenizer, its settings and the chat templates.

    A single template is written to `chat_template.jinja` and to the settings, as readers differ in where they look;
    several named ones only fit the settings.
    """
    write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, source), indent=None)
    settings: dict[str, Any] = {
        "tokenizer_class": _tokenizer_class(vocabulary),
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(vocabulary.eos),
        "unk_token": vocabulary.text(vocabulary.unknown),
        "pad_token": vocabulary.text(vocabulary.padding),
        "add_bos_token": vocabulary.adds_bos,
        "add_eos_token": vocabulary.adds_eos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
    }
    templates = vocabulary.chat_templates
    if list(templates) == ["default"]:
        settings["chat_template"] = templates["default"]
        (folder / "chat_template.jinja").write_text(templates["default"], encoding="utf-8", newline="\n")
    elif templates:
        settings["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    write_json(folder / "tokenizer_config.json", settings, indent=2)


def write_model_config(
    folder: Path, architecture: DecoderArchitecture, vocabulary: Vocabulary, operators: OperatorSet
) -> None:
    """Write `genai_config.json`, and `generation_config.json` with the ids that end generation."""
    endings = list(vocabulary.end_of_generation)
    padding = vocabulary.padding if vocabulary.padding is not None else (endings[0] if endings else 0)
    generation: dict[str, Any] = {"eos_token_id": endings, "pad_token_id": padding}
    if vocabulary.bos is not None:
        generation = {"bos_token_id": vocabulary.bos, **generation}
    model = {
        # onnxruntime-genai wants a number here even if the model has no such token.
        "bos_token_id": vocabulary.bos if vocabulary.bos is not None else padding,
        "eos_token_id": endings,
        "pad_token_id": padding,
        "context_length": architecture.context_length,
        "decoder": _decoder(architecture, operators.takes_positions),
        "type": _GENAI_TYPES[architecture.name],
        "vocab_size": architecture.vocabulary_size,
    }
    search = {
        "do_sample": False,
        "max_length": architecture.context_length,
        "min_length": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "past_present_share_buffer": operators.shares_buffers,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
    write_json(folder / "genai_config.json", {"model": model, "search": search}, indent=4)
    write_json(folder / "generation_config.json", generation, indent=2)


def _decoder(architecture: DecoderArchitecture, takes_positions: bool) -> dict[str, Any]:
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    if takes_positions:
        inputs["position_ids"] = "position_ids"
    inputs |= {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": MODEL_FILE,
        "head_size": architecture.head_size,
        "hidden_size": architecture.width,
        "inputs": inputs,
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": architecture.head_count,
        "num_hidden_layers": architecture.layer_count,
        "num_key_value_heads": architecture.kv_head_count,
    }


def _tokenizer_class(vocabulary: Vocabulary) -> str:
    """Return the class name that readers take the kind of vocabulary from."""
    if vocabulary.model == "llama":
        return "LlamaTokenizer" if vocabulary.adds_space_prefix else "GemmaTokenizer"
    return {"smollm": "GPT2Tokenizer", "gpt-2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer"}.get(
        vocabulary.pre, "PreTrainedTokenizerFast"
    )


def write_json(path: Path, content: Any, indent: int | None) -> None:
    """Write a value as a UTF-8 file of JSON, with the same line ends on every system."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(content, ensure_ascii=False, indent=indent))
        stream.write("\n")
