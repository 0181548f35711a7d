"""Small `tokenizer.json` folders, one per tokenizer family, written with the `tokenizers` library.

`byte_level` can spell every text; `sentence_piece` puts one space before a text and falls back to bytes; `metaspace` is
the Unigram kind that puts the space before the first word only; `word_piece` marks what goes on a word by `##`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BYTES = {chr(byte): byte for byte in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))}
BYTES |= {chr(256 + index): byte for index, byte in enumerate(b for b in range(256) if b not in set(BYTES.values()))}
"""How byte-level vocabularies spell the 256 bytes."""
SPELLING = {byte: character for character, byte in BYTES.items()}


def spelled(text: str) -> str:
    """Return how a byte-level vocabulary stores a token for `text`."""
    return "".join(SPELLING[byte] for byte in text.encode())


def write_folder(folder: Path, tokenizer: Tokenizer, files: Mapping[str, Any]) -> Path:
    """Write `tokenizer.json` and its siblings: texts as they are, everything else as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def byte_level(folder: Path, files: Mapping[str, Any] | None = None, add_bos: bool = False) -> Path:
    """256 bytes (id = byte), a few merged pieces, 3 control tokens (262 to 264), `<think>` and `</think>` as text."""
    vocabulary = {SPELLING[byte]: byte for byte in range(256)}
    ni = spelled("你")  # three bytes; the first two merge
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (SPELLING[32], "w"), (ni[0], ni[1])]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 262)]
        )
    return write_folder(folder, tokenizer, files or {})


BYTE_LEVEL_CHAT: dict[str, Any] = {
    "tokenizer_config.json": {"bos_token": None, "eos_token": "<|im_end|>", "chat_template": CHATML},
    "generation_config.json": {"eos_token_id": [264, 262]},
}
"""Siblings that make `byte_level` a chat model."""


def sentence_piece(folder: Path, files: Mapping[str, Any] | None = None) -> Path:
    """Llama-like: `<unk>` 0, `<s>` 1 (put first), `</s>` 2, bytes from 3, then pieces with `▁` for a space."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", *"abdehlorwx", "▁h", "▁w", "▁a", "▁he", "▁▁"]
    merges = [("▁", "h"), ("▁", "w"), ("▁", "a"), ("▁h", "e"), ("▁", "▁")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return write_folder(folder, tokenizer, files or {})


def metaspace(folder: Path, files: Mapping[str, Any] | None = None) -> Path:
    """Unigram over whole words, with the space before the first word of a text only; `</s>` is put last."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -5.0), ("▁hello", -1.0), ("hello", -2.0), ("▁world", -1.0)]
    pieces += [(letter, -8.0) for letter in "!abcdefghijklmnopqrstuvwxyz<>/|_"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return write_folder(folder, tokenizer, files or {})


def word_piece(folder: Path, files: Mapping[str, Any] | None = None) -> Path:
    """BERT-like: words and `##` endings, `[CLS]` first and `[SEP]` last."""
    tokens = ["[UNK]", "[CLS]", "[SEP]", "hello", "##s", "world", "!"]
    tokenizer = Tokenizer(models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return write_folder(folder, tokenizer, files or {})


def chat_folder(folder: Path, template: str, **config: Any) -> Path:
    """`byte_level` with a chat template of its own."""
    settings = {"eos_token": "<|im_end|>", "chat_template": template, **config}
    return byte_level(folder, {"tokenizer_config.json": settings})
