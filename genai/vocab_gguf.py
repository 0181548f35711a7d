"""The vocabulary of a GGUF file, run by llama.cpp through `winml_lite.Vocabulary` (genai §2.1 to 2.5).

llama.cpp refuses names of pre-tokenizers that it does not know; for a file without such a name it splits text in its
default way, and the vocabulary here says so in `warnings`. It also says there which kinds of vocabulary are passed
through as llama.cpp runs them, without a comparison with their original tokenizers.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from winml_lite import NotSupportedError, Vocabulary, WinMLError

from .codes import FILE_CORRUPT, FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED
from .vocabulary import DEFAULT_TEMPLATE

_TEMPLATE_KEY = "tokenizer.chat_template"
_COMPARED = ("gpt2", "llama")  # kinds whose ids were compared with those of another library
_UNKNOWN, _CONTROL = 2, 3  # token types that text does not make
_TOKEN_KEYS = {
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    "sep_token": "tokenizer.ggml.seperator_token_id",
    "cls_token": "tokenizer.ggml.cls_token_id",
    "mask_token": "tokenizer.ggml.mask_token_id",
}


class GgufVocabulary:
    """A GGUF file's tokenizer; weights are not loaded. Safe to use from several threads."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._vocabulary = _open(self.path)
        self._metadata = self._vocabulary.metadata
        self.token_count = self._vocabulary.token_count
        self.bos_token_id = self._vocabulary.bos_token_id
        self.eos_token_ids = tuple(self._vocabulary.end_of_generation_ids)
        self.adds_bos = self._vocabulary.adds_bos
        self.strips_space = self._strips_space()
        self.chat_templates: Mapping[str, str] = self._chat_templates()
        self.named_tokens: Mapping[str, str] = self._named_tokens()
        """Special tokens by the names that templates use: `bos_token`, `eos_token`, ..."""
        self.warnings = self._warnings()

    @functools.cached_property
    def special_token_ids(self) -> frozenset[int]:
        """Control tokens, and the token for unknown text."""
        types = self._metadata.get("tokenizer.ggml.token_type")
        if types is None:
            return frozenset(filter(self._vocabulary.is_control, range(self.token_count)))
        marked = {token_id for token_id, kind in enumerate(_as_list(types)) if kind in (_UNKNOWN, _CONTROL)}
        # llama.cpp also makes tokens control by their spelling, those that end a generation above all.
        return frozenset(marked | set(filter(self._vocabulary.is_control, self.eos_token_ids)))

    @functools.cached_property
    def control_spellings(self) -> frozenset[str]:
        """What a text must spell to make a special token."""
        return frozenset(map(self._spelling, self.special_token_ids)) - {""}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the ids of `text`, which must hold no surrogates."""
        return self._vocabulary.encode(text.encode(), add_special_tokens)

    def encode_exact(self, text: str) -> list[int]:
        """Encode without added special tokens; those in the text count only as they are spelled."""
        return self.encode(text, False)

    def encode_marked(self, text: str, marker: str) -> list[int]:
        """Encode without added special tokens; the character `marker` only breaks spellings and leaves no trace.

        Between two special tokens that were really found lies plain text. Where a marker is in it, that text is encoded
        again, as text in which nothing is special.
        """
        token_ids = self.encode(text, False)
        result: list[int] = []
        plain: list[int] = []
        start = 0
        for token_id in token_ids:
            if token_id not in self.special_token_ids:
                plain.append(token_id)
                continue
            spelling = self._spelling(token_id)
            end = text.find(spelling, start)
            if end < 0:  # the unknown token stands for text that has no token; it is part of the plain text
                plain.append(token_id)
                continue
            result += self._encode_plain(text[start:end], marker, plain)
            result.append(token_id)
            plain = []
            start = end + len(spelling)
        return result + self._encode_plain(text[start:], marker, plain)

    def piece(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, None when there is none of this id."""
        return self._vocabulary.piece(token_id) if token_id < self.token_count else None

    def find(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it."""
        return self._vocabulary.find(token)

    def _encode_plain(self, text: str, marker: str, token_ids: list[int]) -> list[int]:
        if marker not in text:
            return token_ids
        return self._vocabulary.encode(text.replace(marker, "").encode(), add_special=False, parse_special=False)

    def _spelling(self, token_id: int) -> str:
        return self._vocabulary.piece(token_id).decode("utf-8", "replace")

    def _strips_space(self) -> bool:
        kind = self._vocabulary.model
        has_prefix = bool(self._metadata.get("tokenizer.ggml.add_space_prefix", kind == "llama"))
        return kind == "bert" or (kind in ("llama", "t5") and has_prefix)

    def _chat_templates(self) -> dict[str, str]:
        templates = {}
        for key in self._metadata:  # not items(): that would decode every token of the vocabulary
            if key == _TEMPLATE_KEY or key.startswith(_TEMPLATE_KEY + "."):
                name = key.removeprefix(_TEMPLATE_KEY + ".") if key != _TEMPLATE_KEY else DEFAULT_TEMPLATE
                value = self._metadata[key]
                if isinstance(value, str):
                    templates[name] = value
        return templates

    def _named_tokens(self) -> dict[str, str]:
        ids = {name: self._metadata.get(key) for name, key in _TOKEN_KEYS.items()}
        ids |= {"bos_token": self.bos_token_id, "eos_token": self._vocabulary.eos_token_id}
        return {
            name: self._spelling(token_id)
            for name, token_id in ids.items()
            if isinstance(token_id, int) and 0 <= token_id < self.token_count
        }

    def _warnings(self) -> tuple[str, ...]:
        kind = self._vocabulary.model
        if kind not in _COMPARED:
            return (
                f"vocabularies of the kind {kind!r} (tokenizer.ggml.model) are passed through to llama.cpp unverified; "
                "compare some ids with those of the tokenizer the model was trained with",
            )
        if kind != "gpt2" or self._vocabulary.pre:
            return ()
        return (
            "the file does not name its pre-tokenizer (tokenizer.ggml.pre), so llama.cpp splits text in its default "
            "way; ids may differ from those the model was trained on",
        )


def _as_list(values: Any) -> list[int]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _open(path: str) -> Vocabulary:
    if not os.path.isfile(path):
        raise WinMLError(FILE_NOT_FOUND, path, "there is no such file")
    try:
        return Vocabulary.from_file(path)
    except WinMLError as error:
        reason = error.native_message or ""
        if "unknown pre-tokenizer" in reason or "unknown tokenizer" in reason:
            raise NotSupportedError(NOT_SUPPORTED, path, reason) from error
        if error.hresult == FILE_CORRUPT:
            raise WinMLError(INVALID_DATA, path, reason) from error
        raise
