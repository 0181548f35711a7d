"""What the start of a model costs, in counts: how often its header is read, what of it is decoded, what is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from models.recipes import random_gguf
from rules.project import ROOT
from winml_lite import Runtime, Vocabulary
from winml_lite.files import gguf
from winml_lite.files.gguf_header import GgufHeader, read_header
from winml_lite.files.gguf_metadata import Metadata, Span

pytestmark = pytest.mark.perf

LOAD = """
import sys
import genai
with genai.load(sys.argv[1], threads=1) as model:
    model.generate("a b", max_new_tokens=2)
print(*sys.modules)
"""
NOT_FOR_PLAIN_TEXT = {
    "genai.catalog",
    "genai.download",
    "genai.messages",
    "genai.conversation_result",
    "genai.template",
    "importlib.metadata",
    "llama_cpp.llama",
    "jinja2",
}


@pytest.fixture
def model_path(files: ModelFiles) -> Path:
    require_engine("llama")
    return random_gguf(files.folder)


def test_a_header_is_read_once_for_model_and_tokenizer(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers: list[GgufHeader] = []

    def read(data: bytes, file_size: int) -> GgufHeader:
        headers.append(read_header(data, file_size))
        return headers[-1]

    monkeypatch.setattr(gguf, "read_header", read)
    with genai.load(model_path, threads=1):
        assert len(headers) == 1


def test_loading_decodes_no_token_texts(model_path: Path) -> None:
    with Runtime() as runtime, runtime.load_model(model_path) as model, runtime.create_pipeline_builder() as builder:
        builder.add_model_stage(model)
        with builder.build(), Vocabulary.from_file(model_path) as vocabulary:
            assert vocabulary.encode(b"a b", add_special=False)
            metadata = vocabulary.metadata
            assert isinstance(metadata, Metadata)
            assert isinstance(metadata._values["tokenizer.ggml.tokens"], Span)


def test_plain_text_from_a_path_imports_only_what_it_needs(model_path: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(model_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=500)
    assert NOT_FOR_PLAIN_TEXT & set(done.stdout.split()) == set()
