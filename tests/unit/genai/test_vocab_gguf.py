"""GGUF vocabularies over a stand-in for llama.cpp: special tokens, templates, marked text, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genai import vocab_gguf
from genai.vocab_gguf import GgufVocabulary
from winml_lite import NotSupportedError, WinMLError

TOKENS = (b"<unk>", b"<s>", b"</s>", b"a", b"b", b"<", b"s", b">", b"<eot>", b"/")
CONTROL = {1, 2, 8}


class SpelledVocabulary:
    """One token a character, or a control token where its spelling is parsed."""

    token_count = len(TOKENS)
    bos_token_id = 1
    eos_token_id = 2
    end_of_generation_ids = (2, 8)
    adds_bos = True
    adds_eos = False
    model = "llama"
    pre: str | None = None
    failure: WinMLError | None = None

    def __init__(self, **metadata: Any) -> None:
        self.metadata = metadata
        self.calls: list[tuple[bytes, bool, bool]] = []

    def encode(self, text: bytes, add_special: bool, parse_special: bool = True) -> list[int]:
        self.calls.append((text, add_special, parse_special))
        ids = [1] if add_special else []
        while text:
            names = [i for i in CONTROL if parse_special and text.startswith(TOKENS[i])]
            names += [i for i, token in enumerate(TOKENS) if text.startswith(token) and i not in CONTROL]
            token_id, size = (names[0], len(TOKENS[names[0]])) if names else (0, 1)
            ids.append(token_id)
            text = text[size:]
        return ids

    def piece(self, token_id: int) -> bytes:
        return TOKENS[token_id]

    def find(self, text: str) -> int | None:
        return TOKENS.index(text.encode()) if text.encode() in TOKENS else None

    def is_control(self, token_id: int) -> bool:
        return token_id in CONTROL


@pytest.fixture
def open_fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Open a GGUF vocabulary whose native half is the given stand-in."""

    def opened(native: SpelledVocabulary) -> GgufVocabulary:
        class Opener:
            @staticmethod
            def from_file(path: str) -> SpelledVocabulary:
                if native.failure is not None:
                    raise native.failure
                return native

        monkeypatch.setattr(vocab_gguf, "Vocabulary", Opener)
        path = tmp_path / "model.gguf"
        path.write_bytes(b"GGUF")
        return GgufVocabulary(str(path))

    return opened


def test_special_tokens_come_from_the_token_types_and_the_end_tokens(open_fake: Any) -> None:
    native = SpelledVocabulary(**{"tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 1, 4]})
    assert open_fake(native).special_token_ids == {0, 1, 2, 8}


def test_without_token_types_every_token_is_asked(open_fake: Any) -> None:
    assert open_fake(SpelledVocabulary()).special_token_ids == CONTROL


def test_the_ends_of_generation_are_the_eos_tokens(open_fake: Any) -> None:
    assert open_fake(SpelledVocabulary()).eos_token_ids == (2, 8)


def test_named_tokens_are_spelled_out(open_fake: Any) -> None:
    native = SpelledVocabulary(**{"tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 99})
    assert open_fake(native).named_tokens == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def test_text_is_encoded_as_utf_8(open_fake: Any) -> None:
    native = SpelledVocabulary()
    open_fake(native).encode("é\x00", True)
    assert native.calls == [(b"\xc3\xa9\x00", True, True)]


def test_a_broken_spelling_becomes_plain_text(open_fake: Any) -> None:
    vocabulary = open_fake(SpelledVocabulary())
    assert vocabulary.encode_marked("<s>a<Ms>b<eot>a</s>", "M") == [1, 3, 5, 6, 7, 4, 8, 3, 2]


def test_only_the_text_with_a_marker_is_encoded_again(open_fake: Any) -> None:
    native = SpelledVocabulary()
    open_fake(native).encode_marked("ab<s>a<Ms><eot>b", "M")
    assert native.calls[1:] == [(b"a<s>", False, False)]


def test_an_unknown_token_that_stands_for_text_is_no_border(open_fake: Any) -> None:
    native = SpelledVocabulary(**{"tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 3, 1]})
    assert open_fake(native).encode_marked("<s>?<Ms>?", "M") == [1, 0, 5, 6, 7, 0]


def test_templates_by_name(open_fake: Any) -> None:
    native = SpelledVocabulary(
        **{
            "tokenizer.chat_template": "d",
            "tokenizer.chat_template.tool_use": "t",
            "tokenizer.chat_templates": ["tool_use"],
        }
    )
    assert open_fake(native).chat_templates == {"default": "d", "tool_use": "t"}


@pytest.mark.parametrize(
    ("model", "metadata", "strips"),
    [
        ("llama", {}, True),
        ("llama", {"tokenizer.ggml.add_space_prefix": False}, False),
        ("gpt2", {}, False),
        ("gpt2", {"tokenizer.ggml.add_space_prefix": True}, False),
        ("bert", {}, True),
        ("t5", {"tokenizer.ggml.add_space_prefix": True}, True),
        ("t5", {}, False),
    ],
)
def test_which_vocabularies_put_a_space_first(
    open_fake: Any, model: str, metadata: dict[str, Any], strips: bool
) -> None:
    native = SpelledVocabulary(**metadata)
    native.model = model
    assert open_fake(native).strips_space is strips


def test_an_id_outside_has_no_piece(open_fake: Any) -> None:
    assert open_fake(SpelledVocabulary()).piece(len(TOKENS)) is None


def test_s_tok_05_an_unknown_pre_tokenizer_is_refused_by_name(open_fake: Any) -> None:
    native = SpelledVocabulary()
    native.failure = WinMLError(0x80070570, "load", "unknown pre-tokenizer type: 'no-such-pre'")
    with pytest.raises(NotSupportedError, match="no-such-pre") as caught:
        open_fake(native)
    assert caught.value.hresult == 0x80070032


def test_s_tok_05_a_missing_pre_tokenizer_is_an_inspectable_warning(open_fake: Any) -> None:
    native = SpelledVocabulary()
    native.model = "gpt2"
    (warning,) = open_fake(native).warnings
    assert "tokenizer.ggml.pre" in warning


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", "plamo2"])
def test_a_kind_that_was_never_compared_is_said_to_be_unverified(open_fake: Any, kind: str) -> None:
    native = SpelledVocabulary()
    native.model = kind
    (warning,) = open_fake(native).warnings
    assert repr(kind) in warning
    assert "unverified" in warning


def test_a_named_pre_tokenizer_needs_no_warning(open_fake: Any) -> None:
    native = SpelledVocabulary()
    native.model, native.pre = "gpt2", "smollm"
    assert open_fake(native).warnings == ()


def test_a_damaged_file_is_invalid_data(open_fake: Any) -> None:
    native = SpelledVocabulary()
    native.failure = WinMLError(0x80070570, "x", "bad magic")
    with pytest.raises(WinMLError, match="bad magic") as caught:
        open_fake(native)
    assert caught.value.hresult == 0x8007000D


def test_a_missing_engine_passes_with_its_mend(open_fake: Any) -> None:
    native = SpelledVocabulary()
    native.failure = WinMLError(0x8007007E, "x", "pip install winml-lite[gguf]")
    with pytest.raises(WinMLError, match="pip install") as caught:
        open_fake(native)
    assert caught.value.hresult == 0x8007007E


def test_g16_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(WinMLError) as caught:
        GgufVocabulary(str(tmp_path / "no.gguf"))
    assert caught.value.hresult == 0x80070002
