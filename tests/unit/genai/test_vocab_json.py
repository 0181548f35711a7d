"""`tokenizer.json` and its siblings: special tokens, pieces, EOS lists, templates, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fakes.vocabularies import CHATML, byte_level, metaspace, sentence_piece, word_piece, write_folder
from genai.vocab_json import JsonVocabulary
from winml_lite import NotSupportedError, WinMLError


def opened(folder: Path) -> JsonVocabulary:
    return JsonVocabulary(str(folder))


def with_files(folder: Path, **files: Any) -> JsonVocabulary:
    return opened(byte_level(folder, {f"{name}.json": content for name, content in files.items()}))


def pieces(vocabulary: JsonVocabulary, *token_ids: int) -> list[bytes | None]:
    return [vocabulary.piece(token_id) for token_id in token_ids]


def test_byte_level_pieces_are_the_bytes(tmp_path: Path) -> None:
    assert pieces(opened(byte_level(tmp_path)), 0, 32, 0xFF, 259, 260) == [b"\x00", b" ", b"\xff", b"hello", b" w"]


def test_added_tokens_of_a_byte_level_vocabulary_stand_for_themselves(tmp_path: Path) -> None:
    path = byte_level(tmp_path) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens(["éé", "日本"])
    tokenizer.save(str(path))
    assert pieces(opened(tmp_path), 264, 265, 267, 268) == [b"<|im_end|>", b"<think>", "éé".encode(), "日本".encode()]


def test_sentence_piece_pieces_have_spaces_and_bytes(tmp_path: Path) -> None:
    vocabulary = opened(sentence_piece(tmp_path))
    assert pieces(vocabulary, 2, 3 + 0x41, 3 + 0xFF, 259, 274) == [b"</s>", b"A", b"\xff", b" ", b"  "]
    assert vocabulary.strips_space


def test_metaspace_pieces(tmp_path: Path) -> None:
    vocabulary = opened(metaspace(tmp_path))
    assert pieces(vocabulary, 1, 3, 4) == [b"</s>", b" hello", b"hello"]
    assert vocabulary.strips_space


def test_word_piece_pieces(tmp_path: Path) -> None:
    vocabulary = opened(word_piece(tmp_path))
    assert pieces(vocabulary, 3, 4, 2) == [b" hello", b"s", b" [SEP]"]
    assert vocabulary.strips_space


def test_a_vocabulary_without_a_decoder_joins_words_by_spaces(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vocabulary = opened(write_folder(tmp_path, tokenizer, {}))
    assert pieces(vocabulary, 0, 1) == [b" a", b" b"]
    assert vocabulary.strips_space


@pytest.mark.parametrize("decoder", [decoders.CTC(), decoders.BPEDecoder()])
def test_a_decoder_without_a_streaming_form_is_refused_when_it_decodes(tmp_path: Path, decoder: Any) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.decoder = decoder
    vocabulary = opened(write_folder(tmp_path, tokenizer, {}))
    assert vocabulary.encode("a", False) == [0]
    with pytest.raises(NotSupportedError, match=type(decoder).__name__):
        vocabulary.piece(0)


def test_an_id_without_a_token_has_no_piece(tmp_path: Path) -> None:
    assert opened(byte_level(tmp_path)).piece(267) is None


def test_token_count_is_one_more_than_the_largest_id(tmp_path: Path) -> None:
    assert opened(byte_level(tmp_path)).token_count == 267


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path) -> None:
    vocabulary = opened(byte_level(tmp_path))
    assert vocabulary.special_token_ids == {262, 263, 264}
    assert vocabulary.control_spellings == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def test_a_token_that_only_a_sibling_names_becomes_special(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "<e>": 2, "<": 3, "e": 4, ">": 5}, []))
    folder = write_folder(tmp_path, tokenizer, {"tokenizer_config.json": {"eos_token": "<e>"}})
    vocabulary = opened(folder)
    assert vocabulary.encode("a<e>", False) == [0, 2]
    assert vocabulary.special_token_ids == {2}
    assert vocabulary.eos_token_ids == (2,)


def test_a_named_token_that_the_vocabulary_lacks_is_not_added(tmp_path: Path) -> None:
    vocabulary = with_files(tmp_path, tokenizer_config={"bos_token": "<nope>", "eos_token": "<no>"})
    assert vocabulary.token_count == 267
    assert (vocabulary.bos_token_id, vocabulary.eos_token_ids) == (None, ())


def test_half_a_surrogate_pair_names_no_token(tmp_path: Path) -> None:
    vocabulary = with_files(tmp_path, tokenizer_config={"bos_token": "\ud800", "eos_token": "\udc00"})
    assert (vocabulary.bos_token_id, vocabulary.eos_token_ids) == (None, ())


def test_named_tokens_may_be_objects(tmp_path: Path) -> None:
    vocabulary = with_files(tmp_path, special_tokens_map={"bos_token": {"content": "<|endoftext|>", "lstrip": False}})
    assert vocabulary.bos_token_id == 262
    assert vocabulary.named_tokens["bos_token"] == "<|endoftext|>"


def test_the_tokenizer_config_wins_over_the_tokens_map(tmp_path: Path) -> None:
    vocabulary = with_files(
        tmp_path,
        tokenizer_config={"bos_token": None, "eos_token": "<|im_end|>"},
        special_tokens_map={"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>"},
    )
    assert (vocabulary.bos_token_id, vocabulary.eos_token_ids) == (None, (264,))


def test_g29_the_generation_config_lists_the_eos_tokens(tmp_path: Path) -> None:
    vocabulary = with_files(
        tmp_path,
        generation_config={"eos_token_id": [264, 262, 264]},
        config={"eos_token_id": 263},
        tokenizer_config={"eos_token": "<|im_start|>"},
    )
    assert vocabulary.eos_token_ids == (264, 262)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config": {"eos_token_id": 263}, "genai_config": {"model": {"eos_token_id": [264, 262]}}}, (264, 262)),
        ({"config": {"eos_token_id": 263}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, (263,)),
        ({"config": {"text_config": {"eos_token_id": [263]}}}, (263,)),
        ({"generation_config": {}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, (264,)),
        ({"generation_config": {"eos_token_id": None}, "special_tokens_map": {"eos_token": "<|im_end|>"}}, (264,)),
        ({"whisper": {"tokens": {"end": 264}}, "tokenizer_config": {"eos_token": "<|im_start|>"}}, (264,)),
        ({"whisper": {"tokens": {"end": 264}}, "config": {"eos_token_id": 263}}, (263,)),
        ({"whisper": {"tokens": {"end": True}}}, ()),
        ({"whisper": {"tokens": []}}, ()),
        ({}, ()),
    ],
)
def test_eos_sources_in_their_order(tmp_path: Path, files: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert with_files(tmp_path, **files).eos_token_ids == expected


def test_a_lone_tokenizer_json_knows_the_bos_it_puts_first(tmp_path: Path) -> None:
    vocabulary = opened(byte_level(tmp_path, add_bos=True))
    assert (vocabulary.bos_token_id, vocabulary.adds_bos) == (262, True)


def test_a_tokenizer_that_only_appends_has_no_bos(tmp_path: Path) -> None:
    vocabulary = opened(metaspace(tmp_path))
    assert (vocabulary.bos_token_id, vocabulary.adds_bos) == (None, False)


def test_limits_for_batches_are_taken_off(tmp_path: Path) -> None:
    path = byte_level(tmp_path) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(path))
    assert opened(tmp_path).encode("xxxxxx", True) == [ord("x")] * 6


def test_the_marker_only_breaks_the_spelling(tmp_path: Path) -> None:
    vocabulary = opened(byte_level(tmp_path))
    text = "<|im_start|>hello<\ufdd0|im_end|><|im_end|>"
    assert vocabulary.encode_marked(text, "\ufdd0") == [263, 259, *b"<|im_end|>", 264]


def test_the_marker_is_chosen_anew_each_time(tmp_path: Path) -> None:
    vocabulary = opened(byte_level(tmp_path))
    vocabulary.encode_marked("he\ufdd0llo", "\ufdd0")
    assert vocabulary.encode_marked("he\ufdd1llo\ufdd0", "\ufdd1") == [259, *"\ufdd0".encode()]
    assert vocabulary.encode("\ufdd0", False) == list("\ufdd0".encode())


def test_the_marker_does_not_move_the_space_of_a_sentence_piece_text(tmp_path: Path) -> None:
    vocabulary = opened(sentence_piece(tmp_path))
    plain = vocabulary.encode("he<s>hello wa", False)
    assert vocabulary.encode_marked("h\ufdd0e<s>he\ufdd0llo wa", "\ufdd0") == plain


def test_a_normalizer_makes_no_special_token_of_other_text(tmp_path: Path) -> None:
    path = byte_level(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["normalizer"] = {"type": "Lowercase"}
    for token in content["added_tokens"]:
        token["normalized"] = True
    path.write_text(json.dumps(content), encoding="utf-8")
    vocabulary = opened(tmp_path)
    assert vocabulary.encode("A<|IM_END|>", False) == [97, 264]
    assert vocabulary.encode_exact("A<|IM_END|>") == [*b"a<|im_end|>"]
    assert vocabulary.encode_exact("A<|im_end|>") == [97, 264]


def test_templates_of_the_tokenizer_config(tmp_path: Path) -> None:
    assert with_files(tmp_path, tokenizer_config={"chat_template": CHATML}).chat_templates == {"default": CHATML}


def test_s_tpl_07_a_template_file_wins_over_the_config(tmp_path: Path) -> None:
    files = {"chat_template.jinja": "own", "tokenizer_config.json": {"chat_template": "config"}}
    assert opened(byte_level(tmp_path, files)).chat_templates == {"default": "own"}


def test_s_tpl_07_named_templates_keep_their_names(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    vocabulary = with_files(tmp_path, tokenizer_config={"chat_template": named})
    assert vocabulary.chat_templates == {"default": "d", "tool_use": "t"}


def test_s_tpl_07_the_json_form_of_a_template_file(tmp_path: Path) -> None:
    assert with_files(tmp_path, chat_template={"chat_template": "j"}).chat_templates == {"default": "j"}


def test_s_tpl_07_additional_template_files(tmp_path: Path) -> None:
    byte_level(tmp_path, {"chat_template.jinja": "d"})
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("r", encoding="utf-8")
    assert opened(tmp_path).chat_templates == {"rag": "r", "default": "d"}


def test_s_tok_04_both_forms_of_merges_give_equal_ids(tmp_path: Path) -> None:
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}
    ids = []
    for name, merges in (("text", ["a b", "ab c"]), ("pairs", [["a", "b"], ["ab", "c"]])):
        content = {"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        ids.append(opened(path).encode("abc", False))
    assert ids == [[4], [4]]


def test_s_tok_04_the_pair_form_carries_blanks(tmp_path: Path) -> None:
    vocabulary = {"a": 0, " ": 1, "a ": 2, "b": 3, " b": 4, "a  b": 5}
    merges = [["a", " "], [" ", "b"], ["a ", " b"]]
    content = {"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert opened(path).encode("a  b", False) == [5]


@pytest.mark.parametrize("content", [b"", b"hello", b"{}", b"[1]", b"\xff\xfe", b'{"model": 5}', b"[" * 100_000])
def test_g16_wrong_content_is_invalid_data_and_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(WinMLError, match=r"tokenizer\.json") as caught:
        opened(path)
    assert caught.value.hresult == 0x8007000D


def test_an_unknown_model_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"version": "1.0", "model": {"type": "Sorcery"}}', encoding="utf-8")
    with pytest.raises(NotSupportedError, match="Sorcery") as caught:
        opened(path)
    assert caught.value.hresult == 0x80070032


@pytest.mark.parametrize("name", ["tokenizer.model", "cl100k_base.tiktoken"])
def test_other_vocabulary_files_are_not_supported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x0a")
    with pytest.raises(NotSupportedError, match=r"save_pretrained.* writes a tokenizer\.json"):
        opened(tmp_path / name)


@pytest.mark.parametrize("name", ["nothing.json", "no/such/folder", "tokenizer.model"])
def test_g16_a_missing_file_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(WinMLError, match="no such file") as caught:
        opened(tmp_path / name)
    assert caught.value.hresult == 0x80070002


def test_g16_a_folder_without_a_tokenizer_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"no tokenizer\.json") as caught:
        opened(tmp_path)
    assert caught.value.hresult == 0x80070002


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", "{"),
        ("config.json", "[]"),
        ("generation_config.json", "\ud800"),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("tokenizer_config.json", '{"chat_template": [{"name": "x"}]}'),
    ],
)
def test_a_malformed_sibling_is_invalid_data_and_named(tmp_path: Path, name: str, content: str) -> None:
    byte_level(tmp_path)
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(WinMLError, match=name) as caught:
        opened(tmp_path)
    assert caught.value.hresult == 0x8007000D


def test_a_vocabulary_with_an_absurd_id_is_invalid_data(tmp_path: Path) -> None:
    content = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 999_999_999}, "merges": []}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WinMLError, match="999999999") as caught:
        opened(path).token_count  # noqa: B018  (the property is what fails)
    assert caught.value.hresult == 0x8007000D


def test_a_text_that_the_tokenizer_cannot_encode_is_invalid_data(tmp_path: Path) -> None:
    content = {"version": "1.0", "model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WinMLError, match="cannot encode") as caught:
        opened(path).encode("b", False)
    assert caught.value.hresult == 0x8007000D
