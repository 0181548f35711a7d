"""Small vocabularies for tokenizer tests and for the tiny models: byte-level BPE and SentencePiece-type, both trained
here.

Here: token lists, types, merges and scores, and the GGUF metadata that holds them. Deterministic, only the standard
library and NumPy. Not here: files (`gguf_models.py`), tokenization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Token types as GGUF numbers them."""

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CORPUS = (
    "the cat sat on the mat and the dog ran to the man in the hat what is the capital of france hello world "
    "this is a test of the tiny model zażółć gęślą jaźń naïve café 12 345 2026 it's we're don't они 你好 "
)
"""Words that the trained vocabularies know pieces of: several scripts, digits, contractions."""


_BYTES_ONLY = "你好"  # the SentencePiece-type vocabulary spells these with byte tokens


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """Tokens with their types, and what one tokenizer family needs beside them."""

    model: str
    """`tokenizer.ggml.model`: `"gpt2"` or `"llama"`."""
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    pre: str | None = None
    bos: str | None = None
    eos: str | None = None
    unknown: str | None = None
    padding: str | None = None
    add_bos: bool = False
    add_space_prefix: bool = False
    chat_template: str | None = None

    def id(self, token: str) -> int:
        """Return the id of a token by its stored text."""
        return self.tokens.index(token)

    def metadata(self) -> dict[str, object]:
        """Return the `tokenizer.*` keys of a GGUF file with this vocabulary."""
        values: dict[str, object] = {"tokenizer.ggml.model": self.model}
        if self.pre is not None:
            values["tokenizer.ggml.pre"] = self.pre
        values["tokenizer.ggml.tokens"] = list(self.tokens)
        if self.scores:
            values["tokenizer.ggml.scores"] = np.array(self.scores, np.float32)
        values["tokenizer.ggml.token_type"] = np.array(self.types, np.int32)
        if self.merges:
            values["tokenizer.ggml.merges"] = list(self.merges)
        for key, token in (("bos", self.bos), ("eos", self.eos), ("unknown", self.unknown), ("padding", self.padding)):
            if token is not None:
                values[f"tokenizer.ggml.{key}_token_id"] = self.id(token)
        values["tokenizer.ggml.add_bos_token"] = self.add_bos
        values["tokenizer.ggml.add_space_prefix"] = self.add_space_prefix
        if self.chat_template is not None:
            values["tokenizer.chat_template"] = self.chat_template
        return values


def byte_characters() -> dict[int, str]:
    """Return the printable stand-in of every byte, as byte-level BPE vocabularies spell them (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in characters)
    characters.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return characters


def spell(text: str) -> str:
    """Return `text` in the stand-in characters of a byte-level vocabulary."""
    characters = byte_characters()
    return "".join(characters[byte] for byte in text.encode("utf-8"))


def scripted_vocabulary(pieces: Iterable[str]) -> TinyVocabulary:
    """Return a byte-level vocabulary in which each of `pieces` is one token; ids 0..255 are the bytes, ChatML tokens
    last."""
    characters = byte_characters()
    tokens = [characters[byte] for byte in range(256)]
    merges: list[str] = []
    for piece in pieces:
        symbols = spell(piece)
        for length in range(1, len(symbols)):
            joined = symbols[: length + 1]
            if joined not in tokens:
                tokens.append(joined)
                merges.append(f"{symbols[:length]} {symbols[length]}")
    return _chatml(tokens, merges, "smollm")


def byte_level_vocabulary(
    merge_count: int = 44, pre: str = "smollm", user_defined: Sequence[str] = ()
) -> TinyVocabulary:
    """Return a byte-level BPE vocabulary trained on `CORPUS`, with the ChatML tokens and `user_defined` ones at the
    end."""
    characters = byte_characters()
    words = [[characters[byte] for byte in (" " + word).encode("utf-8")] for word in CORPUS.split()]
    pairs = train_pairs(words, merge_count)
    tokens = [characters[byte] for byte in range(256)] + [left + right for left, right in pairs]
    return _chatml(tokens, [f"{left} {right}" for left, right in pairs], pre, user_defined)


def sentencepiece_vocabulary(piece_count: int = 120, add_space_prefix: bool = True) -> TinyVocabulary:
    """Return a SentencePiece-type vocabulary trained on `CORPUS`: byte tokens, scores, control and user-defined
    tokens."""
    words = [list("\u2581" + word) for word in CORPUS.split() if not set(word) & set(_BYTES_ONLY)]
    letters = sorted({letter for word in words for letter in word})
    pieces = [left + right for left, right in train_pairs(words, piece_count)]
    special = {"<pad>": CONTROL, "</s>": CONTROL, "<s>": CONTROL, "<unk>": UNKNOWN, "<think>": USER_DEFINED}
    rows = [(token, kind, 0.0) for token, kind in special.items()]
    rows += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
    rows += [(piece, NORMAL, -float(rank)) for rank, piece in enumerate(pieces)]
    rows += [(letter, NORMAL, -float(len(pieces) + rank)) for rank, letter in enumerate(letters)]
    rows = list({row[0]: row for row in rows}.values())
    return TinyVocabulary(
        model="llama",
        tokens=tuple(row[0] for row in rows),
        types=tuple(row[1] for row in rows),
        scores=tuple(row[2] for row in rows),
        bos="<s>",
        eos="</s>",
        unknown="<unk>",
        padding="<pad>",
        add_bos=True,
        add_space_prefix=add_space_prefix,
    )


def train_pairs(words: Sequence[list[str]], count: int) -> list[tuple[str, str]]:
    """Return the `count` merges that byte-pair encoding learns from `words`; ties go to the smaller pair."""
    words = [list(word) for word in words]
    pairs: list[tuple[str, str]] = []
    known: set[str] = set()
    for _ in range(count):
        frequency = Counter(pair for word in words for pair in pairwise(word))
        candidates = [(-number, pair) for pair, number in frequency.items() if "".join(pair) not in known]
        if not candidates:
            break
        pair = min(candidates)[1]
        pairs.append(pair)
        known.add("".join(pair))
        words = [_join(word, pair) for word in words]
    return pairs


def _join(word: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for symbol in word:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return joined


def _chatml(tokens: Sequence[str], merges: Sequence[str], pre: str, user_defined: Sequence[str] = ()) -> TinyVocabulary:
    types = [NORMAL] * len(tokens) + [CONTROL] * len(CHATML_TOKENS) + [USER_DEFINED] * len(user_defined)
    return TinyVocabulary(
        model="gpt2",
        tokens=(*tokens, *CHATML_TOKENS, *user_defined),
        types=tuple(types),
        merges=tuple(merges),
        pre=pre,
        bos="<|im_start|>",
        eos="<|im_end|>",
        unknown="<|endoftext|>",
        padding="<|im_end|>",
        chat_template=CHATML,
    )
