"""The special tokens of a Whisper vocabulary, with settings beside it and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.rig import failing
from fakes.scripted import write_tokenizer
from genai import Tokenizer
from genai.whisper_folder import WhisperTokens
from genai.whisper_tokens import find_tokens
from models.whisper_models import tiny_whisper, tokenizer_json, whisper_vocabulary

INVALID_DATA = 0x8007000D


def found(folder: Path, no_speech: str = "<|nospeech|>", **settings: object) -> WhisperTokens:
    """The tokens of the tiny vocabulary, whose special tokens begin at 300."""
    vocabulary = whisper_vocabulary(no_speech=no_speech)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(vocabulary, with_times=False)), encoding="utf-8")
    if settings:
        (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with Tokenizer.from_file(folder) as tokenizer:
        return find_tokens(tokenizer)


def first_special() -> int:
    return whisper_vocabulary().special.start


def test_ids_by_their_spellings(tmp_path: Path) -> None:
    tokens, first = found(tmp_path), first_special()
    assert (tokens.end, tokens.start) == (first, first + 1)
    assert dict(tokens.languages) == {"en": first + 2, "zh": first + 3, "de": first + 4, "es": first + 5}
    assert (tokens.translate, tokens.transcribe) == (first + 6, first + 7)
    assert (tokens.start_of_lm, tokens.start_of_previous) == (first + 8, first + 9)
    assert (tokens.no_speech, tokens.no_timestamps, tokens.timestamp_begin) == (first + 10, first + 11, first + 12)


def test_an_older_spelling_of_no_speech(tmp_path: Path) -> None:
    assert found(tmp_path, no_speech="<|nocaptions|>").no_speech == first_special() + 10


def test_marks_and_control_tokens_are_never_said(tmp_path: Path) -> None:
    tokens, first = found(tmp_path), first_special()
    marks = sorted(b'"#()*+/:;<=>@[\\]^_`{|}~')
    assert list(tokens.suppress) == [*marks, first + 1, *range(first + 6, first + 11)]


def test_a_space_alone_and_the_end_are_not_said_first(tmp_path: Path) -> None:
    assert found(tmp_path).suppress_at_begin == (ord(" "), first_special())


def test_the_generation_settings_of_a_folder_count(tmp_path: Path) -> None:
    tokens = found(tmp_path, suppress_tokens=[1, -1, 7], begin_suppress_tokens=[220], is_multilingual=False)
    assert (tokens.suppress, tokens.suppress_at_begin, tokens.is_multilingual) == ((1, 7), (220,), False)


def test_language_tokens_make_a_model_multilingual(tmp_path: Path) -> None:
    assert found(tmp_path).is_multilingual is True


def test_whisper_json_says_everything(tmp_path: Path) -> None:
    folder = tiny_whisper(tmp_path / "model")
    with Tokenizer.from_file(folder) as tokenizer:
        tokens = find_tokens(tokenizer)
    assert tokens.is_multilingual is False
    assert len(tokens.suppress) == 9


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with Tokenizer.from_file(write_tokenizer(tmp_path)) as tokenizer, failing(INVALID_DATA) as caught:
        find_tokens(tokenizer)
    assert "is no Whisper vocabulary: it has no <|endoftext|>" in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "generation_config.json").write_bytes(content)
    with failing(INVALID_DATA):
        found(tmp_path)
