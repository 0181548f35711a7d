"""The vocabulary of a `tokenizer.json`, run by the `tokenizers` library (genai §2.1 to 2.5).

Not here: the files beside it (`vocab_files.py`), the bytes of its tokens (`pieces.py`).
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tokenizers
from tokenizers import normalizers

from winml_lite import NotSupportedError, WinMLError

from .codes import FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED
from .pieces import PieceRule, piece_rule
from .reading import read_bytes
from .vocab_files import VocabularyFiles

_LARGEST_VOCABULARY = 1 << 24  # tokens; a larger id is damage, and no list of all ids could be made
_MEND = "transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes a tokenizer.json"
_MODEL_TYPES = ("BPE", "WordPiece", "WordLevel", "Unigram")


class JsonVocabulary:
    """A `tokenizer.json` with the files beside it; `path` is the file or its folder.

    Safe to use from several threads.
    """

    def __init__(self, path: str) -> None:
        self.path = _tokenizer_file(path)
        self._tokenizer = _open(self.path)
        # Limits for training batches: they would cut or pad a prompt.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        files = VocabularyFiles(os.path.dirname(self.path))
        self.chat_templates: Mapping[str, str] = files.chat_templates()
        named = files.named_tokens()
        self._register(named)
        self._added: dict[int, Any] = self._tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(token_id for token_id, token in self._added.items() if token.special)
        self.strips_space = self._rule.strips_space
        self.bos_token_id: int | None = self._bos(files, named)
        self.eos_token_ids: tuple[int, ...] = files.eos_token_ids() or self._ids_of(named.get("eos_token"))
        if self.bos_token_id is not None:
            named.setdefault("bos_token", self._tokenizer.id_to_token(self.bos_token_id) or "")
        self.named_tokens: Mapping[str, str] = named
        """Special tokens by the names that templates use: `bos_token`, `eos_token`, ..."""
        self.warnings: tuple[str, ...] = ()
        self._normalizes_special = self._tokenizer.normalizer is not None and any(
            token.special and token.normalized for token in self._added.values()
        )
        self._copy_lock = threading.Lock()
        self._copied: Any = None

    @functools.cached_property
    def token_count(self) -> int:
        """One more than the largest id."""
        count = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if count > _LARGEST_VOCABULARY:
            raise WinMLError(INVALID_DATA, self.path, f"a token has the id {count - 1}")
        return count

    @functools.cached_property
    def adds_bos(self) -> bool:
        """Whether encoding with special tokens begins with BOS."""
        if self.bos_token_id is None or self._tokenizer.num_special_tokens_to_add(False) == 0:
            return False
        return self.encode("", True)[:1] == [self.bos_token_id]

    @functools.cached_property
    def control_spellings(self) -> frozenset[str]:
        """What a text must spell to make a special token."""
        return frozenset(self._added[token_id].content for token_id in self.special_token_ids)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the ids of `text`, which must hold no surrogates."""
        with _library_errors(self.path, "the tokenizer cannot encode this text"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encode_exact(self, text: str) -> list[int]:
        """Encode without added special tokens; none is made of a text that only a normalizer turns into its spelling.

        Special tokens may ask to be found in the normalized text. Where that finds more of them than the text spells,
        they are found in the text as it is.
        """
        ids = self.encode(text, False)
        if not self._normalizes_special:
            return ids
        exact = self._encode_copy(text, self._tokenizer.normalizer)
        spelled = (token_id for token_id in exact if token_id in self.special_token_ids)
        found = [token_id for token_id in ids if token_id in self.special_token_ids]
        return ids if all(token_id in spelled for token_id in found) else exact

    def encode_marked(self, text: str, marker: str) -> list[int]:
        """Encode without added special tokens; the character `marker` only breaks spellings and leaves no trace.

        Special tokens are found before a normalizer runs, so a normalizer that removes the marker does just that.
        """
        removal = normalizers.Replace(marker, "")
        own = self._tokenizer.normalizer
        return self._encode_copy(text, removal if own is None else normalizers.Sequence([removal, own]))

    def _encode_copy(self, text: str, normalizer: Any) -> list[int]:
        """Encode with another normalizer, by a copy whose special tokens are found in the text as it is."""
        with self._copy_lock, _library_errors(self.path, "the tokenizer cannot encode this text"):
            if self._copied is None:
                self._copied = self._copy()
            self._copied.normalizer = normalizer
            ids: list[int] = self._copied.encode(text, add_special_tokens=False).ids
            return ids

    def piece(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, None when there is none of this id."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return None
        return self._rule.piece(token, token_id in self._added, token_id in self.special_token_ids)

    def find(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it."""
        try:
            token_id: int | None = self._tokenizer.token_to_id(token)
        except UnicodeEncodeError:  # half of a pair of surrogates, which no vocabulary has
            return None
        return token_id

    @functools.cached_property
    def _rule(self) -> PieceRule:
        decoder = self._tokenizer.decoder
        return piece_rule(None if decoder is None else json.loads(decoder.__getstate__()))

    def _register(self, named: Mapping[str, str]) -> None:
        """Make tokens special that only the files beside the tokenizer name so."""
        known = {token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special}
        missing = [spelling for spelling in dict.fromkeys(named.values()) if spelling not in known]
        self._tokenizer.add_special_tokens([token for token in missing if self.find(token) is not None])

    def _ids_of(self, spelling: str | None) -> tuple[int, ...]:
        token_id = self.find(spelling) if spelling is not None else None
        return () if token_id is None else (token_id,)

    def _bos(self, files: VocabularyFiles, named: Mapping[str, str]) -> int | None:
        if "bos_token" in named:
            return self.find(named["bos_token"])
        if files.names_tokens:
            return None
        return files.bos_token_id() if files.bos_token_id() is not None else self._leading_special_token()

    def _leading_special_token(self) -> int | None:
        """What the tokenizer itself puts first, for a `tokenizer.json` on its own."""
        if self._tokenizer.num_special_tokens_to_add(False) == 0:
            return None
        whole, bare = self.encode("a", True), self.encode("a", False)
        if not bare or whole[: len(bare)] == bare:
            return None
        return whole[0]

    def _copy(self) -> Any:
        text = self._tokenizer.to_str()
        if any(token.special and token.normalized for token in self._added.values()):
            content = json.loads(text)
            for token in content["added_tokens"]:
                token["normalized"] = token["normalized"] and not token["special"]
            text = json.dumps(content)
        return tokenizers.Tokenizer.from_str(text)


def _tokenizer_file(path: str) -> str:
    if not os.path.isdir(path):
        return os.path.abspath(path)
    file = os.path.join(os.path.abspath(path), "tokenizer.json")
    if not os.path.isfile(file):
        raise WinMLError(FILE_NOT_FOUND, file, "the folder has no tokenizer.json")
    return file


def _open(path: str) -> Any:
    data = read_bytes(path)
    if path.lower().endswith((".model", ".tiktoken")):
        raise NotSupportedError(NOT_SUPPORTED, path, f"only tokenizer.json and .gguf vocabularies can be read; {_MEND}")
    try:
        with _library_errors(path, "not a tokenizer.json"):
            return tokenizers.Tokenizer.from_buffer(data)
    except WinMLError as error:
        kind = _model_type(data)
        if isinstance(kind, str) and kind not in _MODEL_TYPES:
            raise NotSupportedError(NOT_SUPPORTED, path, f"unknown tokenizer model type {kind!r}") from error
        raise


@contextmanager
def _library_errors(path: str, problem: str) -> Iterator[None]:
    """Turn failures of the library into 0x8007000D: bare Exceptions, and panics that are no Exception at all."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WinMLError(INVALID_DATA, path, f"{problem}: {error}") from error


def _model_type(data: bytes) -> object:
    try:
        return json.loads(data)["model"]["type"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
