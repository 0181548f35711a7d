"""The public tokenizer class: arguments, closing, metadata, templates."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.vocabularies import BYTE_LEVEL_CHAT, CHATML, byte_level
from genai.tokenizer import Tokenizer
from winml_lite import NotSupportedError, WinMLError


@pytest.fixture
def chat(tmp_path: Path) -> Tokenizer:
    """A byte-level chat tokenizer."""
    return Tokenizer.from_file(byte_level(tmp_path, BYTE_LEVEL_CHAT))


@pytest.fixture
def base(tmp_path: Path) -> Tokenizer:
    """A byte-level tokenizer without a template."""
    return Tokenizer.from_file(byte_level(tmp_path))


@pytest.mark.parametrize("path", ["", None, 5, b"tokenizer.json"])
def test_a_path_must_be_a_text_or_a_path(path: Any) -> None:
    with pytest.raises(ValueError):
        Tokenizer.from_file(path)


def test_path_likes_are_paths(tmp_path: Path) -> None:
    folder = byte_level(tmp_path)
    for path in (folder, str(folder), folder / "tokenizer.json", os.fspath(folder)):
        assert Tokenizer.from_file(path).path == str(folder / "tokenizer.json")


def test_wrong_arguments_of_encode_and_decode_are_value_errors(base: Tokenizer) -> None:
    for call in (
        lambda: base.encode(5),  # type: ignore[arg-type]
        lambda: base.encode(b"a"),  # type: ignore[arg-type]
        lambda: base.encode("a", 1),  # type: ignore[arg-type]
        lambda: base.decode(5),  # type: ignore[arg-type]
        lambda: base.decode([True]),
        lambda: base.decode([1.0]),  # type: ignore[list-item]
        lambda: base.decode([-1]),
        lambda: base.find_token_id(5),  # type: ignore[arg-type]
        lambda: base.token_bytes("a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError):
            call()


def test_numpy_ids_are_ids(base: Tokenizer) -> None:
    assert base.decode(np.array([104, 105], np.int64)) == "hi"


def test_half_surrogates_become_replacement_characters(base: Tokenizer) -> None:
    assert base.decode(base.encode("a\ud800b\udc00")) == "a\ufffdb\ufffd"


def test_surrogate_pairs_become_their_character(base: Tokenizer) -> None:
    assert base.decode(base.encode("\ud83e\udd99")) == "🦙"


def test_nul_is_ordinary_text(base: Tokenizer) -> None:
    assert base.encode("a\x00b") == [97, 0, 98]


def test_find_token_id_takes_the_stored_spelling(base: Tokenizer) -> None:
    assert (base.find_token_id("hello"), base.find_token_id("Ġw"), base.find_token_id("nope")) == (259, 260, None)


def test_token_bytes_and_counts(base: Tokenizer) -> None:
    assert (base.token_bytes(260), base.token_bytes(264), base.token_count) == (b" w", b"<|im_end|>", 267)
    assert base.special_token_ids == {262, 263, 264}


def test_eos_token_ids_are_a_fresh_list(chat: Tokenizer) -> None:
    chat.eos_token_ids.clear()
    assert chat.eos_token_ids == [264, 262]


def test_special_tokens_are_skipped_on_request(chat: Tokenizer) -> None:
    ids = chat.encode("<|im_start|>hello<|im_end|>")
    assert chat.decode(ids) == "<|im_start|>hello<|im_end|>"
    assert chat.decode(ids, skip_special_tokens=True) == "hello"


def test_s_str_08_control_tokens_are_hidden_or_shown(chat: Tokenizer) -> None:
    hiding, showing = chat.create_decoder(skip_special_tokens=True), chat.create_decoder()
    assert [hiding.decode_token(i) for i in (104, 264, 105)] == ["h", "", "i"]
    assert [showing.decode_token(i) for i in (104, 264, 105)] == ["h", "<|im_end|>", "i"]


def test_user_defined_tokens_are_shown_always(chat: Tokenizer) -> None:
    assert chat.decode(chat.encode("<think>"), skip_special_tokens=True) == "<think>"


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.encode("a"),
        lambda t: t.decode([1]),
        lambda t: t.decode([]),
        lambda t: t.create_decoder(),
        lambda t: t.bos_token_id,
        lambda t: t.eos_token_ids,
        lambda t: t.token_count,
        lambda t: t.vocabulary_identity,
        lambda t: t.has_chat_template,
        lambda t: t.chat_template,
        lambda t: t.encode_conversation([("user", "hi")]),
        lambda t: t.underlying_object,
        lambda t: t.__enter__(),
    ],
)
def test_g14_every_member_of_a_closed_tokenizer_raises(chat: Tokenizer, use: Any) -> None:
    chat.close()
    chat.close()
    with pytest.raises(RuntimeError, match="Tokenizer is closed"):
        use(chat)


def test_a_decoder_outlives_its_tokenizer(base: Tokenizer) -> None:
    with base:
        decoder = base.create_decoder()
    assert decoder.decode_token(104) == "h"


def test_threads_may_share_a_tokenizer(chat: Tokenizer) -> None:
    results: list[list[int]] = []

    def work() -> None:
        for _ in range(20):
            results.append(chat.encode_conversation([("user", "hello <|im_end|> 你")]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(ids == results[0] for ids in results)


def test_s_tpl_06_without_a_template_the_error_says_how_to_give_one(base: Tokenizer) -> None:
    with pytest.raises(NotSupportedError, match=r"no chat template.*chat_template=") as caught:
        base.encode_conversation([("user", "hi")])
    assert caught.value.hresult == 0x80004002
    assert (base.has_chat_template, base.chat_template) == (False, None)


def test_s_tpl_06_a_given_template_works(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(byte_level(tmp_path), chat_template=CHATML)
    assert tokenizer.has_chat_template
    assert tokenizer.encode_conversation([("user", "x")])[0] == 263


def test_s_tpl_07_a_given_template_wins(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(byte_level(tmp_path, BYTE_LEVEL_CHAT), chat_template="mine")
    assert tokenizer.chat_template == "mine"


def test_a_broken_given_template_is_not_blamed_on_the_model(tmp_path: Path) -> None:
    path = byte_level(tmp_path)
    with pytest.raises(WinMLError, match="chat template 'default' given for") as caught:
        Tokenizer.from_file(path, chat_template="Hello\n{% for")
    assert caught.value.hresult == 0x8007000D
    assert str(caught.value.native_message).startswith("line 2: ")


def test_a_template_must_be_a_text(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        Tokenizer.from_file(byte_level(tmp_path), chat_template=5)  # type: ignore[arg-type]


def test_s_tpl_07_an_unknown_template_name_lists_the_known(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    tokenizer = Tokenizer.from_file(byte_level(tmp_path, {"tokenizer_config.json": {"chat_template": named}}))
    assert tokenizer.chat_template_names == ("default", "tool_use")
    assert (tokenizer.chat_template, tokenizer.get_chat_template("tool_use")) == ("d", "t")
    with pytest.raises(NotSupportedError, match="'default', 'tool_use'"):
        tokenizer.get_chat_template("rag")


def test_conversations_must_be_pairs(chat: Tokenizer) -> None:
    for messages in ([], [("user",)], [("user", "a", "b")]):
        with pytest.raises(ValueError):
            chat.encode_conversation(messages)  # type: ignore[arg-type]


def test_a_request_must_be_a_request(chat: Tokenizer) -> None:
    with pytest.raises(TypeError):
        chat.format_conversation([("user", "hi")])  # type: ignore[arg-type]


def test_a_broken_template_names_the_file(tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"chat_template": "{% if %}"}}
    tokenizer = Tokenizer.from_file(byte_level(tmp_path, files))  # of a file, it is only told when it is used
    with pytest.raises(WinMLError, match=r"tokenizer\.json") as caught:
        tokenizer.encode_conversation([("user", "hi")])
    assert caught.value.hresult == 0x8007000D


def test_a_path_goes_to_from_file() -> None:
    with pytest.raises(TypeError, match="from_file"):
        Tokenizer("tokenizer.json")  # type: ignore[arg-type]


def test_a_chat_tokenizer_shows_its_template(chat: Tokenizer) -> None:
    assert repr(chat) == "<Tokenizer of 267 tokens, with chat template>"


def test_a_base_tokenizer_shows_that_it_has_none(base: Tokenizer) -> None:
    assert repr(base) == "<Tokenizer of 267 tokens, no chat template>"
    base.close()
    assert repr(base) == "<Tokenizer (closed)>"


def test_rows_of_tokens_are_refused(base: Tokenizer) -> None:
    with pytest.raises(ValueError, match="must be an integer, not ndarray"):
        base.decode(np.array([[1, 2]]))
