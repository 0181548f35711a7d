"""The vocabulary of a GGUF, checked: tokens, types, special ids, what is added around a text, the ids that end
generation.

Not here: the files made from it (`tokenizer_json.py`, `config_files.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .source import ModelSource, invalid, refuse

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

_END_OF_GENERATION = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
    }
)
"""Spellings that end generation in llama.cpp, whatever the metadata says."""

_FILL_IN_THE_MIDDLE = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Marks of code models that end generation there too: one of each kind, named by the metadata or spelled like this."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, with what a tokenizer must know about them."""

    model: str
    """`"gpt2"` (byte-level BPE) or `"llama"` (SentencePiece-type)."""
    pre: str
    """Name of the rule that splits text into words; empty for SentencePiece-type."""
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    bos: int | None
    eos: int | None
    unknown: int | None
    padding: int | None
    end_of_generation: tuple[int, ...]
    """The end-of-sequence token first, then every other token that ends generation, ascending."""
    adds_bos: bool
    adds_eos: bool
    adds_space_prefix: bool
    chat_templates: dict[str, str]
    """Template by name; the unnamed one is `"default"`."""

    def text(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]


def read_vocabulary(source: ModelSource, count: int) -> Vocabulary:
    """Read the vocabulary of a model whose embedding has `count` rows; refuse kinds that cannot be converted."""
    model = source.metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise refuse(source.path, f"the tokenizer model {model!r} is not known; known are 'gpt2' and 'llama'")
    tokens, merges = _texts(source, "tokens"), _texts(source, "merges")
    if len(tokens) != count:
        raise invalid(source.path, f"the vocabulary has {len(tokens)} tokens, the embedding {count} rows")
    if len(set(tokens)) != count:
        raise invalid(source.path, "the vocabulary has the same token twice")
    scores, types = _numbers(source, "scores"), _numbers(source, "token_type") or [NORMAL] * count
    is_bpe = model == "gpt2"
    if is_bpe and not merges:
        raise invalid(source.path, "a byte-level vocabulary without tokenizer.ggml.merges")
    if not is_bpe and len(scores) < count:
        raise invalid(source.path, "a SentencePiece-type vocabulary without tokenizer.ggml.scores")
    _check_merges(source, tokens, merges)
    pre = str(source.metadata.get("tokenizer.ggml.pre", "")) if is_bpe else ""
    ids = {name: _token_id(source, name, count) for name in ("bos", "eos", "eot", "eom", "unknown", "padding")}
    adds_bos = _flag(source, "add_bos_token", not is_bpe or pre in ("llama-bpe", "llama3", "llama-v3"))
    return Vocabulary(
        model=str(model),
        pre=pre,
        tokens=tokens,
        types=[int(kind) for kind in types],
        scores=scores,
        merges=merges,
        bos=ids["bos"],
        eos=ids["eos"],
        unknown=ids["unknown"],
        padding=ids["padding"],
        end_of_generation=_ending_ids(tokens, ids["eos"], [ids["eot"], ids["eom"], *_marks(source, tokens)]),
        adds_bos=adds_bos and ids["bos"] is not None,
        adds_eos=_flag(source, "add_eos_token", False) and ids["eos"] is not None,
        adds_space_prefix=_flag(source, "add_space_prefix", not is_bpe),
        chat_templates=_chat_templates(source),
    )


def _check_merges(source: ModelSource, tokens: list[str], merges: list[str]) -> None:
    """Refuse a merge that is not two tokens which together are a third."""
    known = set(tokens)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in known or right not in known or left + right not in known:
            raise invalid(source.path, f"the merge {merge!r} does not join two tokens to a third")


def _marks(source: ModelSource, tokens: list[str]) -> list[int | None]:
    """Return the marks of code models, by kind."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    marks: list[int | None] = []
    for kind, spellings in _FILL_IN_THE_MIDDLE.items():
        named = _token_id(source, kind, len(tokens))
        spelled = min((ids[spelling] for spelling in spellings if spelling in ids), default=None)
        marks.append(spelled if named is None else named)
    return marks


def _ending_ids(tokens: list[str], eos: int | None, others: list[int | None]) -> tuple[int, ...]:
    """Return the end-of-sequence token and then all other ids that end generation."""
    known = {index for index, token in enumerate(tokens) if token in _END_OF_GENERATION}
    known |= {token_id for token_id in (eos, *others) if token_id is not None}
    known -= _false_endings(tokens, {tokens[token_id] for token_id in known})
    first = () if eos is None or eos not in known else (eos,)
    return (*first, *sorted(known.difference(first)))


def _false_endings(tokens: list[str], endings: set[str]) -> set[int]:
    """Return ids that only look like an end: formats with several channels end a part, not the turn, with them."""
    has_call = not endings.isdisjoint(("<|call|>", "<|calls|>"))
    names = set()
    if has_call and not endings.isdisjoint(("<|return|>", "<|flush|>")):
        names.add("<|end|>")
    if "<|tool_response>" in endings:
        names.add("</s>")
    return {token_id for token_id, token in enumerate(tokens) if token in names}


def _chat_templates(source: ModelSource) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    templates: dict[str, str] = {}
    for key in source.metadata:
        value = source.metadata[key] if key.startswith(prefix) else None
        if isinstance(value, str):
            _check_text(source, key, value)
            templates[key[len(prefix) + 1 :] or "default"] = value
    return templates


def _texts(source: ModelSource, key: str) -> list[str]:
    value = source.metadata.get(f"tokenizer.ggml.{key}", [])
    if not isinstance(value, list):
        raise invalid(source.path, f"tokenizer.ggml.{key} is not a list of strings")
    for text in value:
        _check_text(source, f"tokenizer.ggml.{key}", text)
    return value


def _check_text(source: ModelSource, key: str, text: str) -> None:
    """Refuse bytes that are not UTF-8, which the reader keeps as surrogates."""
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        raise invalid(source.path, f"{key} has text that is not UTF-8")


def _numbers(source: ModelSource, key: str) -> list[float]:
    value = source.metadata.get(f"tokenizer.ggml.{key}")
    return value.tolist() if isinstance(value, np.ndarray) else []


def _token_id(source: ModelSource, name: str, count: int) -> int | None:
    value = source.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return value if isinstance(value, int) and 0 <= value < count else None


def _flag(source: ModelSource, key: str, default: bool) -> bool:
    value = source.metadata.get(f"tokenizer.ggml.{key}", default)
    return value if isinstance(value, bool) else default
