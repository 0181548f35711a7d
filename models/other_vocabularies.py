"""Metadata of small vocabularies of the kinds that only llama.cpp runs here: WordPiece, Unigram and RWKV.

Not here: byte-level BPE and SentencePiece-type (`vocabularies.py`).
"""

from __future__ import annotations

import numpy as np

from .vocabularies import CONTROL, NORMAL, UNKNOWN, sentencepiece_vocabulary

OTHER_KINDS = ("bert", "t5", "rwkv")


def other_vocabulary_metadata(kind: str) -> dict[str, object]:
    """Return the metadata of a file with a vocabulary of `kind` and no tensors."""
    values = {"bert": _word_piece, "t5": _unigram, "rwkv": _rwkv}[kind]()
    return {"general.architecture": "llama", "general.name": "vocabulary", "tokenizer.ggml.model": kind, **values}


def _word_piece() -> dict[str, object]:
    words = ("\u2581hello", "s", "\u2581world", "\u2581!", "\u2581a", "a", "b", "1", "\u25811")
    ids = {"padding": 0, "unknown": 1, "bos": 2, "cls": 2, "seperator": 3}
    return {
        "tokenizer.ggml.tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words],
        "tokenizer.ggml.token_type": np.array([CONTROL, UNKNOWN, CONTROL, CONTROL] + [NORMAL] * len(words), np.int32),
        **{f"tokenizer.ggml.{name}_token_id": np.uint32(number) for name, number in ids.items()},
    }


def _unigram() -> dict[str, object]:
    values = sentencepiece_vocabulary().metadata()
    del values["tokenizer.ggml.model"]
    return {**values, "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True}


def _rwkv() -> dict[str, object]:
    tokens = ["<s>", *(f"\\x{byte:02x}" for byte in range(256)), "the", " cat", "at"]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([CONTROL] + [NORMAL] * (len(tokens) - 1), np.int32),
    }
