"""From a token of a `tokenizer.json` to its bytes, as the file's decoder defines it (genai §2.3).

Decoders are written for whole texts of characters; streaming needs the bytes of one token at a time. Every decoder in
use for language models is a rule per token, plus one space dropped at the start of the text. Those without such a form
(joining CTC repeats, trailing word marks) are refused when something is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from winml_lite import NotSupportedError

from .codes import NOT_SUPPORTED


def _byte_alphabet() -> dict[str, int]:
    """The 256 printable characters in which byte-level vocabularies spell bytes.

    Printable Latin-1 stands for itself, the other bytes take the code points from 256 up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class PieceRule:
    """How tokens become bytes."""

    piece: Callable[[str, bool, bool], bytes]
    """(token, is an added token, is a special token) to bytes."""
    strips_space: bool
    """One space at the start of a whole text belongs to the rule, not to the text."""


def piece_rule(decoder: Mapping[str, Any] | None) -> PieceRule:
    """Return the rule for the `decoder` member of a `tokenizer.json`."""
    if decoder is None:
        return PieceRule(lambda token, is_added, is_special: b" " + token.encode(), strips_space=True)
    kind = decoder["type"]
    if kind == "WordPiece":
        return _word_piece(decoder["prefix"])
    steps = decoder["decoders"] if kind == "Sequence" else [decoder]
    if any(step["type"] == "ByteLevel" for step in steps):
        return PieceRule(_byte_level, strips_space=_strips(steps))
    replacements = []
    has_bytes = False
    for step in steps:
        kind = step["type"]
        if kind == "Replace" and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "Metaspace":
            replacements.append((step["replacement"], " "))
        elif kind == "ByteFallback":
            has_bytes = True
        elif kind not in ("Fuse", "Strip"):
            return _refuse(kind)
    if not all(step.get("stop", 0) == 0 and step.get("start", 0) <= 1 for step in steps):
        return _refuse("Strip")
    return _replacing(replacements, has_bytes, _strips(steps))


def _strips(steps: list[Mapping[str, Any]]) -> bool:
    return any(
        (step["type"] == "Strip" and step["content"] == " " and step["start"] > 0)
        or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in steps
    )


def _byte_level(token: str, is_added: bool, is_special: bool) -> bytes:
    if not is_added:
        try:
            return bytes([_BYTES[character] for character in token])
        except KeyError:
            pass  # not spelled in the alphabet: it stands for itself
    return token.encode()


def _word_piece(prefix: str) -> PieceRule:
    def piece(token: str, is_added: bool, is_special: bool) -> bytes:
        return token[len(prefix) :].encode() if token.startswith(prefix) else b" " + token.encode()

    return PieceRule(piece, strips_space=True)


def _replacing(replacements: list[tuple[str, str]], has_bytes: bool, strips_space: bool) -> PieceRule:
    def piece(token: str, is_added: bool, is_special: bool) -> bytes:
        if is_special:
            return token.encode()
        if has_bytes and not is_added and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes([int(token[3:5], 16)])
            except ValueError:
                pass  # only looks like a byte
        for old, new in replacements:
            token = token.replace(old, new)
        return token.encode()

    return PieceRule(piece, strips_space)


def _refuse(kind: str) -> PieceRule:
    def piece(token: str, is_added: bool, is_special: bool) -> bytes:
        raise NotSupportedError(NOT_SUPPORTED, "decode", f"the tokenizer's decoder {kind!r} has no form for streaming")

    return PieceRule(piece, strips_space=False)
