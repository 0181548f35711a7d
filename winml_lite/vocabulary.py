"""The vocabulary of a GGUF file: tokenising as llama.cpp does it (an addition to the facade).

Bytes in, ids out, and back, token by token. Not here: text streams, chat templates, tokenizers of other formats; they
are the business of `genai.Tokenizer`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self

from .checks import flag_value, index_value, path_value
from .handles import Closeable
from .native.llama.vocabulary import LlamaVocabulary


class Vocabulary(Closeable[LlamaVocabulary]):
    """Tokens of a GGUF model. Reads the vocabulary only, no weights; any thread may call.

    A token id outside `0..token_count - 1` is ValueError, anything but an integer TypeError.
    """

    __slots__ = ()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Open the vocabulary of a `.gguf` file (of the first shard, for a model in several files).

        Raises WinMLError: 0x80070002 and the like when the file cannot be opened, 0x80070570 when it is damaged,
        0x80070032 when it holds no vocabulary, 0x8007007E when llama.cpp is not installed.
        """
        return cls(LlamaVocabulary(path_value(path)))

    @property
    def token_count(self) -> int:
        """Number of tokens; the length of a row of logits of the same model."""
        return self._core.token_count

    @property
    def bos_token_id(self) -> int | None:
        """Token that begins a text, or None."""
        return self._core.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """Token that ends a text, or None."""
        return self._core.eos_token_id

    @property
    def end_of_generation_ids(self) -> tuple[int, ...]:
        """All tokens that end a generation (end of text, of turn, of message), ascending."""
        return self._core.end_of_generation_ids

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` with `add_special` puts `bos_token_id` in front."""
        return self._core.adds_bos

    @property
    def adds_eos(self) -> bool:
        """Whether `encode` with `add_special` puts `eos_token_id` behind."""
        return self._core.adds_eos

    @property
    def model(self) -> str:
        """Kind of tokenizer, `tokenizer.ggml.model`: `"gpt2"` is byte-level BPE, `"llama"` SentencePiece."""
        return str(self._core.file.metadata["tokenizer.ggml.model"])

    @property
    def pre(self) -> str | None:
        """How text is split before the merges, `tokenizer.ggml.pre`, or None."""
        value = self._core.file.metadata.get("tokenizer.ggml.pre")
        return value if isinstance(value, str) else None

    @property
    def metadata(self) -> Mapping[str, object]:
        """All key-value pairs of the file, as `GgufFile.metadata` gives them."""
        return self._core.file.metadata

    def encode(self, text: bytes, add_special: bool, parse_special: bool = True) -> list[int]:
        """Turn UTF-8 text into token ids. What is not UTF-8 is read as U+FFFD; NUL is a character like others.

        add_special: put the tokens around the text that the file asks for.
        parse_special: recognise special tokens by their spelling; else their characters are plain text.
        """
        if not isinstance(text, bytes):
            raise TypeError(f"text must be bytes, not {type(text).__name__}; use text.encode('utf-8')")
        flag_value(add_special, "add_special")
        flag_value(parse_special, "parse_special")
        return self._core.encode(text, add_special, parse_special)

    def piece(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; special tokens as they are spelled. A leading space is kept."""
        core = self._core
        return core.piece(index_value(token_id, "token_id", core.token_count - 1))

    def pieces(self) -> list[bytes]:
        """Return the bytes of every token, by id."""
        return self._core.pieces()

    def token_text(self, token_id: int) -> str:
        """Return a token as the file spells it (`Ġ` or `▁` for a space); what is not UTF-8 becomes surrogates."""
        core = self._core
        return core.token_text(index_value(token_id, "token_id", core.token_count - 1))

    def find(self, text: str) -> int | None:
        """Return the token that the file spells exactly so, or None."""
        return self._core.find(text)

    def is_control(self, token_id: int) -> bool:
        """Whether a token steers the model (`<|im_end|>`) instead of being text."""
        core = self._core
        return core.is_control(index_value(token_id, "token_id", core.token_count - 1))

    def is_user_defined(self, token_id: int) -> bool:
        """Whether a token is a spelling added to the vocabulary that counts as text (`<think>`)."""
        core = self._core
        return core.is_user_defined(index_value(token_id, "token_id", core.token_count - 1))

    def chat_template(self, name: str | None = None) -> str | None:
        """Return the chat template of the file, or the one of that name (`"tool_use"`), or None."""
        key = "tokenizer.chat_template" if name is None else f"tokenizer.chat_template.{name}"
        value = self._core.file.metadata.get(key)
        return value if isinstance(value, str) else None
