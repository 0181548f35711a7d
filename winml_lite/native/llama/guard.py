"""Checks of a GGUF file that llama.cpp itself answers by ending the process (runtime §2.1: a bad file is an exception).

The reader in `files/` has proved that every string, array and tensor lies inside the file. Here follow rules between
the values: those that libllama asserts instead of reporting. What it reports by itself (missing tensors, wrong shapes,
unknown names) is left to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from ...errors import FILE_CORRUPT, WinMLError
from ...files.artifact import GgufArtifact
from ...files.gguf import GgufFile
from .guard_architectures import check_architecture

_MAX_LAYERS = 512
_MAX_EXPERTS = 1024
_MAX_HEADS = 1 << 16
_MAX_POOLING = 4  # none, mean, cls, last, rank
_INT32_MAX = 0x7FFFFFFF
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_BYTE_TOKEN = 6  # a value of tokenizer.ggml.token_type
_WITHOUT_TOKENS = ("no_vocab", "none", "test")
_RWKV_NEWLINES = frozenset(("\n", "\\n", "\\x0a", "\\x0A"))
_WITH_BYTE_TOKENS = ("llama", "t5", "plamo2")
_TOKENS_ONLY = ("granite-switch",)
_ROWS_WITH_AXES_ONLY = ("glm4", "glm4moe")
_FRAMES = {"llama": (1, 2), "gpt2": (11, 11), "bert": (101, 102), "t5": (None, 1), "plamo2": (1, 2)}
"""Tokens around a text, by kind of vocabulary: those without a key in the file."""
_WITHOUT_BEGIN = ("chatglm-bpe", "glm4", "glm5")
_WITHOUT_REGEX = ("llama", "t5", "plamo2", "bert", "rwkv")


def check_model(artifact: GgufArtifact) -> None:
    """Refuse, with 0x80070570 and the path, a model that would end the process while it is loaded or run."""
    header = Header(artifact.file)
    architecture = artifact.file.architecture
    if not architecture:
        header.refuse("general.architecture is missing")
    _check_shape(header)
    _check_experts(header)
    _check_numbers(header)
    check_architecture(header, architecture)
    _check_vocabulary(header)


def has_vocabulary(file: GgufFile) -> bool:
    """Whether a file holds tokens to tokenise with."""
    model = file.metadata.get("tokenizer.ggml.model")
    return isinstance(model, str) and model not in _WITHOUT_TOKENS and "tokenizer.ggml.tokens" in file.metadata


def lacks_byte_tokens(file: GgufFile) -> bool:
    """Whether text outside the vocabulary cannot be spelled in bytes although the engine relies on it.

    libllama throws through its C interface then. Byte-level vocabularies skip such text instead.
    """
    if file.metadata.get("tokenizer.ggml.model") not in _WITH_BYTE_TOKENS:
        return False
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    spelled = set(tokens) if isinstance(tokens, list) else set()
    return any(f"<0x{byte:02X}>" not in spelled and not (byte < 128 and chr(byte) in spelled) for byte in range(256))


def lacks_frame(file: GgufFile, token_count: int) -> bool:
    """Whether a token that the file asks for around each text is not in the vocabulary; libllama asserts that it is.

    The ids that a kind of vocabulary has without a key are those of libllama.
    """
    values = file.metadata
    model = values.get("tokenizer.ggml.model")
    begin, end = _FRAMES.get(model, (None, None)) if isinstance(model, str) else (None, None)
    if values.get("tokenizer.ggml.pre") in _WITHOUT_BEGIN:
        begin = None

    def lacks(name: str, default: int | None) -> bool:
        ids = values.get(f"tokenizer.ggml.{name}_token_id"), default
        return not any(isinstance(number, int) and 0 <= number < token_count for number in ids)

    if model == "bert":
        return lacks("bos", begin) or lacks("seperator", end)
    adds_begin = values.get("tokenizer.ggml.add_bos_token", model == "llama")
    adds_end = values.get("tokenizer.ggml.add_eos_token", False)
    return bool((adds_begin and lacks("bos", begin)) or (adds_end and lacks("eos", end)))


def takes_rows(file: GgufFile, has_row_axes: bool) -> bool:
    """Whether a decoder takes embedding rows; some end the process over them, glm4 only in files without M-RoPE."""
    architecture = file.architecture
    return architecture not in _TOKENS_ONLY and (has_row_axes or architecture not in _ROWS_WITH_AXES_ONLY)


def splits_by_regex(file: GgufFile) -> bool:
    """Whether text is split by regular expressions before it is tokenised."""
    return file.metadata.get("tokenizer.ggml.model") not in _WITHOUT_REGEX


class Header:
    """One header, and how to refuse it."""

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self.values: Mapping[str, object] = file.metadata
        self.prefix = f"{file.architecture}."

    def refuse(self, problem: str) -> NoReturn:
        raise WinMLError(FILE_CORRUPT, "IWinMLPipelineBuilder.Build", f"{self.path}: {problem}")

    def counts(self, key: str, lowest: int, highest: int) -> tuple[int, ...]:
        """Return the integers of a hyper-parameter, one or one per layer; () when it is absent or no integer."""
        value = self.values.get(self.prefix + key)
        found: tuple[int, ...] = ()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            found = tuple(value.tolist())
        elif isinstance(value, int) and not isinstance(value, bool):
            found = (value,)
        for number in found:
            if not lowest <= number <= highest:
                self.refuse(f"{self.prefix}{key} is {number}, not in {lowest}..{highest}")
        return found

    def count(self, key: str, lowest: int, highest: int) -> int:
        """Return the only or largest value of a hyper-parameter; 0 when it is absent."""
        return max(self.counts(key, lowest, highest), default=0)


def _check_shape(header: Header) -> None:
    layers = header.count("block_count", 1, _MAX_LAYERS)
    header.count("nextn_predict_layers", 0, layers)
    header.count("context_length", 1, _INT32_MAX)
    header.count("vocab_size", 1, _INT32_MAX)
    header.count("attention.sliding_window", 0, _INT32_MAX)
    header.count("pooling_type", 0, _MAX_POOLING)
    heads = header.counts("attention.head_count", 0, _MAX_HEADS)
    shared = header.counts("attention.head_count_kv", 0, _MAX_HEADS)
    for layer in range(max(len(heads), len(shared)) if heads and shared else 0):
        query = heads[layer % len(heads)]
        pair = shared[layer % len(shared)]
        if pair and query % pair:
            header.refuse(f"{pair} key/value heads do not divide {query} attention heads")


def _check_experts(header: Header) -> None:
    experts = header.count("expert_count", 0, _MAX_EXPERTS)
    used = header.count("expert_used_count", 0, _MAX_EXPERTS)
    groups = header.count("expert_group_count", 0, _MAX_EXPERTS)
    group_used = header.count("expert_group_used_count", 0, _MAX_EXPERTS)
    if used > experts or (experts and not used):
        header.refuse(f"{used} of {experts} experts are used per token")
    if groups and (groups >= experts or experts % groups):
        header.refuse(f"{experts} experts do not form {groups} groups")
    if groups > 1 and not 0 < group_used < groups:
        header.refuse(f"{group_used} of {groups} expert groups are used per token")


def _check_numbers(header: Header) -> None:
    for key in header.values:  # not items(): that would decode every token of the vocabulary
        value = header.values[key] if key.startswith(header.prefix) and key.endswith("epsilon") else None
        if isinstance(value, float) and not value >= 0:
            header.refuse(f"{key} is {value}, not a number from 0 up")  # NaN included
    scaling = header.values.get(header.prefix + "rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        header.refuse(f"rope.scaling.type is {scaling!r}, not one of {', '.join(_ROPE_SCALINGS)}")
    head_size = header.count("attention.key_length", 1, _MAX_HEADS)
    heads = header.counts("attention.head_count", 0, _MAX_HEADS)
    if not head_size and len(heads) == 1 and heads[0]:
        head_size = header.count("embedding_length", 1, _INT32_MAX) // heads[0]
    window_head_size = header.count("attention.key_length_swa", 1, _MAX_HEADS) or head_size
    for key, size in (("rope.dimension_count", head_size), ("rope.dimension_count_swa", window_head_size)):
        for dimensions in header.counts(key, 0, size or _MAX_HEADS):
            if dimensions % 2:
                header.refuse(f"{header.prefix}{key} is {dimensions}, not an even number")


def _check_vocabulary(header: Header) -> None:
    model = header.values.get("tokenizer.ggml.model")
    types = header.values.get("tokenizer.ggml.token_type") if model == "bert" else None
    if isinstance(types, np.ndarray) and (types == _BYTE_TOKEN).any():
        header.refuse("a WordPiece vocabulary holds byte tokens")
    tokens = header.values.get("tokenizer.ggml.tokens") if model == "rwkv" else None
    if isinstance(tokens, list) and not _RWKV_NEWLINES & set(tokens):
        header.refuse("an RWKV vocabulary has no token for a line feed")
