"""Bytes of tokens to text: held characters, replaced bytes, the first space."""

from __future__ import annotations

import random

import pytest

from genai.decoder import PieceTable, TokenizerDecoder, decode_bytes
from winml_lite import WinMLError

BYTES = PieceTable(lambda token_id: bytes([token_id]) if token_id < 256 else None, strips_space=False)
"""One token a byte."""
WORDS = (b"\xe2\x96\x81", b" Hello", b" world", b"!", b" ", b" leading", b" x", b"<s>", b"\xf0\x9f", b"", b"A")


def words(token_id: int) -> bytes | None:
    return WORDS[token_id] if token_id < len(WORDS) else None


SPACED = PieceTable(words, strips_space=True)


def fragments(table: PieceTable, *token_ids: int, continuation: bool = False) -> list[str]:
    decoder = TokenizerDecoder(table, continuation)
    return [decoder.decode_token(token_id) for token_id in token_ids]


def test_g23_a_character_of_four_tokens_comes_with_the_last() -> None:
    assert fragments(BYTES, 0xF0, 0x9F, 0xA6, 0x99) == ["", "", "", "🦙"]


def test_s_str_01_text_before_a_split_character_comes_at_once() -> None:
    assert fragments(BYTES, 0x41, 0xF0, 0x9F, 0xA6, 0x99) == ["A", "", "", "", "🦙"]


def test_g24_a_byte_that_cannot_continue_flushes_the_held_part() -> None:
    pieces = PieceTable({0: b"A", 1: b"\xf0\x9f", 2: b" x"}.get, strips_space=False)
    assert fragments(pieces, 0, 1, 2) == ["A", "", "\ufffd x"]


def test_g25_an_invalid_byte_is_replaced() -> None:
    assert fragments(BYTES, 0x41, 0xFF) == ["A", "\ufffd"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xe2\x82\xe2\x82\xac", "\ufffd€"),
        (b"\xf0\x9fA", "\ufffdA"),
        (b"\xc3\xa9\xc3", "é\ufffd"),
        (b"\xe0\x80A", "\ufffd\ufffdA"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xef\xbf\xbd", "\ufffd"),
        (b"a\x00b", "a\x00b"),
    ],
)
def test_s_str_02_each_maximal_invalid_part_becomes_one_replacement(data: bytes, text: str) -> None:
    assert BYTES.decode(data) == text


@pytest.mark.parametrize(
    ("data", "text", "held"),
    [
        (b"\xf0\x9f", "", b"\xf0\x9f"),
        (b"A\xe2\x82", "A", b"\xe2\x82"),
        (b"\xed\xa0", "\ufffd\ufffd", b""),
        (b"\xed\x9f", "", b"\xed\x9f"),
        (b"\xf4\x90", "\ufffd\ufffd", b""),
        (b"\xc0", "\ufffd", b""),
    ],
)
def test_only_what_may_still_become_a_character_is_held(data: bytes, text: str, held: bytes) -> None:
    assert decode_bytes(data, is_last=False) == (text, held)


def test_g26_joined_fragments_equal_the_whole_decode_on_random_bytes() -> None:
    rng = random.Random(5)
    ids = [
        [*rng.choices((0x41, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xED, 0xA0, 0xFF), k=40), 0x41]
        for _ in range(200)
    ]
    assert ["".join(fragments(BYTES, *row)) for row in ids] == [BYTES.decode(row) for row in ids]


def test_a_character_cut_at_the_end_is_not_in_the_fragments() -> None:
    assert fragments(BYTES, 0x41, 0xF0, 0x9F) == ["A", "", ""]
    assert BYTES.decode([0x41, 0xF0, 0x9F]) == "A\ufffd"


def test_g27_reset_forgets_held_bytes() -> None:
    decoder = TokenizerDecoder(BYTES, False)
    decoder.decode_token(0xF0)
    decoder.reset()
    assert [decoder.decode_token(0xC3), decoder.decode_token(0xA9)] == ["", "é"]


def test_g28_two_decoders_do_not_meet() -> None:
    one, other = TokenizerDecoder(BYTES, False), TokenizerDecoder(BYTES, False)
    one.decode_token(0xC3)
    other.decode_token(0xE2)
    other.decode_token(0x82)
    assert BYTES.decode([0x41]) == "A"
    assert one.decode_token(0xA9) == "é"
    assert other.decode_token(0xAC) == "€"


def test_s_str_03_words_keep_the_spaces_between_them() -> None:
    assert fragments(SPACED, 1, 2, 3) == ["Hello", " world", "!"]


def test_s_str_04_exactly_one_space_is_taken_away() -> None:
    assert fragments(SPACED, 4, 5, 6) == ["", " leading", " x"]
    assert SPACED.decode([4, 5, 6]) == " leading x"


def test_s_str_04_a_continuation_keeps_its_space() -> None:
    assert fragments(SPACED, 2, continuation=True) == [" world"]


def test_a_space_after_a_shown_special_token_stays() -> None:
    assert fragments(SPACED, 7, 1) == ["<s>", " Hello"]
    assert SPACED.decode([7, 1]) == "<s> Hello"


def test_a_space_after_a_hidden_special_token_is_the_first() -> None:
    hiding = PieceTable(words, strips_space=True, hidden=frozenset({7}))
    assert fragments(hiding, 7, 1) == ["", "Hello"]
    assert hiding.decode([7, 1]) == "Hello"


def test_an_empty_piece_does_not_end_the_start_of_the_text() -> None:
    assert fragments(SPACED, 9, 1) == ["", "Hello"]


def test_a_held_character_ends_the_start_of_the_text() -> None:
    assert fragments(SPACED, 8, 2) == ["", "\ufffd world"]


def test_reset_brings_back_the_start_of_the_text() -> None:
    decoder = TokenizerDecoder(SPACED, False)
    first = decoder.decode_token(1)
    decoder.reset()
    assert [first, decoder.decode_token(1)] == ["Hello", "Hello"]


def test_s_str_05_printed_text_is_never_taken_back() -> None:
    decoder = TokenizerDecoder(BYTES, False)
    printed = ["".join(decoder.decode_token(byte) for byte in data) for data in (b"A\xf0\x9f", b"\xa6\x99")]
    assert printed == ["A", "🦙"]


def test_s_str_06_a_finished_character_comes_with_its_own_token() -> None:
    pieces = PieceTable(dict(enumerate("你 好 吗 a b".encode().split())).get, strips_space=False)
    assert fragments(pieces, 0, 1, 2, 3, 4) == ["你", "好", "吗", "a", "b"]


@pytest.mark.parametrize("value", ["a", 1.0, None, True, -1, 2**32])
def test_a_token_id_must_be_a_uint32(value: object) -> None:
    with pytest.raises(ValueError):
        TokenizerDecoder(BYTES, False).decode_token(value)  # type: ignore[arg-type]


def test_a_bool_is_refused_on_the_fast_road_too() -> None:
    decoder = TokenizerDecoder(BYTES, False)
    assert decoder.decode_token(1) == "\x01"
    with pytest.raises(ValueError):
        decoder.decode_token(True)


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(WinMLError) as failure:
        TokenizerDecoder(BYTES, False).decode_token(256)
    assert failure.value.hresult == 0x80070057


def test_each_piece_is_asked_for_once() -> None:
    asked: list[int] = []

    def piece(token_id: int) -> bytes:
        asked.append(token_id)
        return b"x"

    table = PieceTable(piece, strips_space=False)
    fragments(table, 1, 1, 2, 1)
    table.decode([1, 2])
    assert asked == [1, 2]


def test_g14_a_closed_decoder_says_so() -> None:
    decoder = TokenizerDecoder(BYTES, False)
    decoder.decode_token(0x41)
    with decoder:
        pass
    decoder.close()
    with pytest.raises(RuntimeError, match="TokenizerDecoder is closed"):
        decoder.decode_token(0x41)
    with pytest.raises(RuntimeError, match="TokenizerDecoder is closed"):
        decoder.reset()
