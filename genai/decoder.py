"""Token bytes to text that can no longer change (genai §2.3, 2.4).

The bytes of the tokens so far are decoded as UTF-8 with U+FFFD for each maximal invalid part. A trailing part that may
still become a character is held until the next token decides. Where the pieces come from is the vocabularies' concern.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Iterable

from winml_lite import WinMLError

from .closing import Closing
from .codes import E_INVALIDARG

UINT32_MAX = 0xFFFFFFFF


def decode_bytes(data: bytes, is_last: bool) -> tuple[str, bytes]:
    """Return the text that is final and the bytes to hold: at most three, none when `is_last`."""
    text, used = utf_8_decode(data, "replace", is_last)
    held = data[used:]
    if len(held) == 2 and held[0] == 0xED and held[1] >= 0xA0:
        # The codec waits here for a third byte, but no character begins like this (it would be a surrogate).
        return text + "\ufffd\ufffd", b""
    return text, held


def token_id_value(value: object) -> int:
    """Return a token id as int; everything that is not a uint32 is ValueError (genai §0.3)."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"a token id must be an integer, not {type(value).__name__}")
    try:
        token_id = int(value.__index__())
    except TypeError:  # an array of several numbers
        raise ValueError(f"a token id must be an integer, not {type(value).__name__}") from None
    if not 0 <= token_id <= UINT32_MAX:
        raise ValueError(f"a token id must be in 0..{UINT32_MAX}, not {token_id}")
    return token_id


class PieceTable:
    """The bytes of each token, asked for once and kept. Shared by all decoders of a tokenizer, in any thread.

    `piece` returns None for an id without a token. Of the ids in `hidden` nothing is shown. `strips_space` says that
    the vocabulary puts one space before a text that the decoder has to take away again.
    """

    def __init__(
        self, piece: Callable[[int], bytes | None], strips_space: bool, hidden: frozenset[int] = frozenset()
    ) -> None:
        self._piece = piece
        self._hidden = hidden
        self._pieces: dict[int, bytes] = {}
        self.strips_space = strips_space
        self.texts: dict[int, str] = {}
        """Tokens whose bytes are whole characters, as text: the fast road of a decoder."""

    def piece(self, token_id: int) -> bytes:
        """Return the bytes of a token; 0x80070057 for an id outside the vocabulary."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._piece(token_id)
            if piece is None:
                raise WinMLError(E_INVALIDARG, "token id", f"the vocabulary has no token {token_id}")
            if token_id in self._hidden:
                piece = b""
            self._pieces[token_id] = piece
            text, held = decode_bytes(piece, is_last=False)
            if not held and text.encode() == piece:
                self.texts[token_id] = text
        return piece

    def decode(self, token_ids: Iterable[object]) -> str:
        """Return the text of a whole list of ids."""
        data = b"".join([self.piece(token_id_value(token_id)) for token_id in token_ids])
        if self.strips_space and data.startswith(b" "):
            data = data[1:]
        return decode_bytes(data, is_last=True)[0]


class TokenizerDecoder(Closing):
    """Turns the tokens of one stream into text, one at a time. For a single user: callers serialize.

    The pieces it returns are append-only: joined they equal the whole decode, but for a character cut at the end.
    """

    __slots__ = ("__weakref__", "_continuation", "_held", "_is_plain", "_table", "_texts")

    def __init__(self, table: PieceTable, continuation: bool) -> None:
        self._table: PieceTable | None = table
        self._texts = table.texts
        self._continuation = continuation
        self.reset()

    def __repr__(self) -> str:
        if self._table is None:
            return "<TokenizerDecoder (closed)>"
        return f"<TokenizerDecoder that holds {len(self._held)} bytes back>"

    def decode_token(self, token_id: int) -> str:
        """Return the text that this token makes final; `""` while a character is incomplete.

        ValueError for what is not a uint32, WinMLError 0x80070057 for an id outside the vocabulary.
        """
        if self._is_plain and type(token_id) is int:
            text = self._texts.get(token_id)
            if text is not None:
                return text
        return self._decode_bytes(token_id)

    def reset(self) -> None:
        """Forget held bytes and begin a new text."""
        table = self._open_table()
        self._held = b""
        self._is_plain = self._continuation or not table.strips_space  # nothing held, and the first space is behind us

    def close(self) -> None:
        """Give up the vocabulary. Closing twice is fine."""
        self._table = None
        self._texts = {}
        self._is_plain = False

    def _check_open(self) -> PieceTable:
        return self._open_table()

    def _open_table(self) -> PieceTable:
        if self._table is None:
            raise RuntimeError("TokenizerDecoder is closed")
        return self._table

    def _decode_bytes(self, token_id: int) -> str:
        piece = self._open_table().piece(token_id_value(token_id))
        if not self._is_plain and not self._held:  # at the very start of a text
            if not piece:
                return ""
            if piece.startswith(b" "):
                piece = piece[1:]
        text, self._held = decode_bytes(self._held + piece, is_last=False)
        self._is_plain = not self._held
        return text
