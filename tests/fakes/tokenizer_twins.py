"""One vocabulary in both forms: a GGUF from the recipes, and the `tokenizer.json` folder converted from it."""

from __future__ import annotations

from pathlib import Path

from genai.convert.config_files import write_tokenizer
from genai.convert.source import ModelSource
from genai.convert.vocabulary import read_vocabulary


def json_twin(gguf: Path, folder: Path) -> Path:
    """Write the tokenizer files of a GGUF into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ModelSource(gguf) as source:
        tokens = source.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        write_tokenizer(folder, source, read_vocabulary(source, len(tokens)), 512)
    return folder
