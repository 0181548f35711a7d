"""A `tokenizer.json` in the format of the `tokenizers` library, with the same ids as llama.cpp gives for the GGUF.

Byte-level BPE: the merges are in the file, the rule that splits text into words is known by the name in
`tokenizer.ggml.pre`. SentencePiece-type: the merges are derived from the scores. No normalisation is added that
llama.cpp does not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .source import ModelSource, refuse
from .vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary

Json = dict[str, Any]

_SPACE = "\u2581"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _MARKS
_QWEN2 = _CONTRACTIONS + _WORDS + r"|\p{N}" + _MARKS


def _byte_level(use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split_by(pattern: str) -> list[Json]:
    split: Json = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split, _byte_level(use_regex=False)]


_PRE_TOKENIZERS: dict[str, list[Json]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)],
    "gpt-2": [_byte_level(use_regex=True)],
    "llama-bpe": _split_by(_LLAMA3),
    "llama3": _split_by(_LLAMA3),
    "llama-v3": _split_by(_LLAMA3),
    "qwen2": _split_by(_QWEN2),
}
_IGNORE_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3"})
"""Rules under which a word that is a token is taken whole, whatever the merges say."""


def tokenizer_json(vocabulary: Vocabulary, source: ModelSource) -> Json:
    """Return the content of `tokenizer.json`; a splitting rule that is not known is refused by name."""
    parts = _byte_level_parts(vocabulary, source) if vocabulary.model == "gpt2" else _sentencepiece_parts(vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        **parts,
        "post_processor": _post_processor(vocabulary),
    }


def _byte_level_parts(vocabulary: Vocabulary, source: ModelSource) -> Json:
    pre_tokenizers = _PRE_TOKENIZERS.get(vocabulary.pre)
    if pre_tokenizers is None:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise refuse(source.path, f"the text splitting {vocabulary.pre!r} is not known; known are {known}")
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "decoder": _byte_level(use_regex=True),
        "model": _bpe(
            vocabulary,
            [merge.split(" ", 1) for merge in vocabulary.merges],
            ignore_merges=vocabulary.pre in _IGNORE_MERGES,
        ),
    }


def _sentencepiece_parts(vocabulary: Vocabulary) -> Json:
    to_marks: Json = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    decoders: list[Json] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    normalizer: Json = to_marks
    if vocabulary.adds_space_prefix:
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, to_marks]}
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    model = _bpe(vocabulary, sentencepiece_merges(vocabulary), ignore_merges=False)
    model |= {"unk_token": vocabulary.text(vocabulary.unknown), "fuse_unk": True, "byte_fallback": True}
    return {
        "normalizer": normalizer,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


def _bpe(vocabulary: Vocabulary, merges: Sequence[Sequence[str]], ignore_merges: bool) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": {token: index for index, token in enumerate(vocabulary.tokens)},
        "merges": merges,
    }


def sentencepiece_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return every way to make a piece of two others, best score of the result first.

    llama.cpp joins the neighbours whose piece has the best score; as ranks of merges this is the same order. Pieces of
    the same score keep the order of their ids.
    """
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    ranked: list[tuple[float, int, int, int, str, str]] = []
    for token, (index, kind) in zip(ids, enumerate(vocabulary.types), strict=True):
        if kind != NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-vocabulary.scores[index], index, left, right, token[:cut], token[cut:]))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _added_tokens(vocabulary: Vocabulary) -> list[Json]:
    """Tokens that are found in text before anything else."""
    return [
        {
            "id": index,
            "content": vocabulary.tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != USER_DEFINED,
        }
        for index, kind in enumerate(vocabulary.types)
        if kind in (CONTROL, UNKNOWN, USER_DEFINED)
    ]


def _post_processor(vocabulary: Vocabulary) -> Json | None:
    """Put begin and end of sequence around a text, if the model wants them."""
    first = [vocabulary.bos] if vocabulary.adds_bos and vocabulary.bos is not None else []
    last = [vocabulary.eos] if vocabulary.adds_eos and vocabulary.eos is not None else []
    if not first and not last:
        return None

    def around(sequence: str, type_id: int) -> list[Json]:
        def special(token_id: int) -> Json:
            return {"SpecialToken": {"id": vocabulary.tokens[token_id], "type_id": type_id}}

        body = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(special, first), body, *map(special, last)]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            vocabulary.tokens[token_id]: {
                "id": vocabulary.tokens[token_id],
                "ids": [token_id],
                "tokens": [vocabulary.tokens[token_id]],
            }
            for token_id in [*first, *last]
        },
    }
