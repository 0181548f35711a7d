"""Tokenising with a GGUF vocabulary through libllama; the public class is `winml_lite.Vocabulary`."""

from __future__ import annotations

import ctypes
from itertools import compress, repeat

import numpy as np

from ...errors import ARITHMETIC_OVERFLOW, INVALID_DATA, WinMLError
from . import guard
from .api import retyped
from .model import load_vocabulary
from .stack import with_stack_for

_INT32_MAX = 0x7FFFFFFF


class LlamaVocabulary:
    """The vocabulary of one model file. Safe to use from several threads; calls on one model take turns."""

    def __init__(self, path: str) -> None:
        model = load_vocabulary(path)
        api = model.library.api
        self.file = model.file
        self._model = model
        self._api = api
        self._vocab = model.vocab
        self._tokenize = retyped(
            api.llama_tokenize,
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_bool,
            ctypes.c_bool,
        )
        self._unspellable = guard.lacks_byte_tokens(model.file)
        self._unframed = guard.lacks_frame(model.file, model.vocabulary_size)
        self._splits = guard.splits_by_regex(model.file)
        self._pieces: list[bytes | None] = [None] * model.vocabulary_size
        self._ids: dict[str, int] | None = None
        self._ends: tuple[int, ...] | None = None
        self.token_count = model.vocabulary_size
        self.bos_token_id = self._optional(api.llama_vocab_bos(model.vocab))
        self.eos_token_id = self._optional(api.llama_vocab_eos(model.vocab))
        self.adds_bos = bool(api.llama_vocab_get_add_bos(model.vocab))
        self.adds_eos = bool(api.llama_vocab_get_add_eos(model.vocab))

    def _optional(self, token: int) -> int | None:
        return token if 0 <= token < self.token_count else None

    def encode(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]:
        """Return the token ids of `text`, which may hold NUL bytes."""
        if self._unspellable:
            problem = "the vocabulary cannot spell every byte (it lacks tokens such as <0x0A>)"
            raise WinMLError(INVALID_DATA, "Vocabulary.encode", f"{self.file.path}: {problem}")
        if add_special and self._unframed:
            problem = "the vocabulary lacks the token that the file puts before or after each text"
            raise WinMLError(INVALID_DATA, "Vocabulary.encode", f"{self.file.path}: {problem}")
        self._model.check()
        if self._splits:
            return with_stack_for(text, lambda: self._encode(text, add_special, parse_special))
        return self._encode(text, add_special, parse_special)

    def _encode(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]:
        room = len(text) + 16  # enough, unless one byte becomes several tokens
        while room <= _INT32_MAX:
            ids = np.empty(room, np.int32)
            arguments = text, len(text), ids.ctypes.data, room, add_special, parse_special
            count = self._model.call(self._tokenize, self._vocab, *arguments)
            if count >= 0:
                return [int(token) for token in ids[:count].tolist()]
            room = -count  # the number of tokens there are
        raise WinMLError(ARITHMETIC_OVERFLOW, "Vocabulary.encode", f"a text of {len(text)} bytes has too many tokens")

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, special tokens as they are spelled."""
        found = self._pieces[token]
        if found is None:
            found = self._pieces[token] = self._read_piece(token, 64)
        return found

    def pieces(self) -> list[bytes]:
        """Return the bytes of every token, by id."""
        return [self.piece(token) for token in range(self.token_count)]

    def _read_piece(self, token: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        count = self._model.call(self._api.llama_token_to_piece, self._vocab, token, buffer, size, 0, True)
        if count < 0:
            return self._read_piece(token, -count)
        return buffer.raw[:count]

    @property
    def end_of_generation_ids(self) -> tuple[int, ...]:
        """Every token that ends a generation, as llama.cpp sees it, ascending."""
        if self._ends is None:
            tokens = range(self.token_count)
            is_end = self._api.llama_vocab_is_eog
            self._ends = self._model.call(lambda: tuple(compress(tokens, map(is_end, repeat(self._vocab), tokens))))
        return self._ends

    def token_text(self, token: int) -> str:
        """Return the token as the file spells it, before any decoding."""
        text = self._model.call(self._api.llama_vocab_get_text, self._vocab, token)
        return text.decode("utf-8", "surrogateescape")

    def find(self, text: str) -> int | None:
        """Return the token that the file spells so."""
        if self._ids is None:
            tokens = self.file.metadata["tokenizer.ggml.tokens"]
            self._ids = {token: index for index, token in enumerate(tokens)} if isinstance(tokens, list) else {}
        return self._ids.get(text)

    def is_control(self, token: int) -> bool:
        return self._has(token, self._api.LLAMA_TOKEN_ATTR_CONTROL)

    def is_user_defined(self, token: int) -> bool:
        return self._has(token, self._api.LLAMA_TOKEN_ATTR_USER_DEFINED)

    def _has(self, token: int, attribute: int) -> bool:
        return bool(self._model.call(self._api.llama_vocab_get_attr, self._vocab, token) & attribute)
