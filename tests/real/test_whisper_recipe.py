"""The tiny Whisper model: what it says for tones, by ONNX Runtime alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from tokenizers import Tokenizer

from fakes.ort_whisper import OrtWhisper
from genai.log_mel import log_mel
from genai.whisper_folder import WhisperFolder, WhisperTokens
from models.whisper_models import GERMAN_WORDS, WORDS, tiny_whisper, tones

pytestmark = pytest.mark.real

Tones = Sequence[int | None]


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_whisper(tmp_path_factory.mktemp("english"))


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_whisper(tmp_path_factory.mktemp("multilingual"), multilingual=True)


def tokens_of(folder: Path) -> WhisperTokens:
    return WhisperFolder.open(folder).tokens


def said(folder: Path, heard: Tones, prompt: list[int], seconds: float = 1.0) -> str:
    settings: dict[str, Any] = json.loads((folder / "whisper.json").read_text(encoding="utf-8"))
    model = OrtWhisper(folder)
    model.hear(log_mel(tones(heard, seconds)))
    ids = model.say(prompt, settings["tokens"])
    return str(Tokenizer.from_file(str(folder / "tokenizer.json")).decode(ids))


def likeliest(folder: Path, heard: Tones, prompt: list[int], never: Sequence[int] = ()) -> int:
    model = OrtWhisper(folder)
    model.hear(log_mel(tones(heard)))
    return best(model.feed(prompt), never)


def best(logits: npt.NDArray[np.float32], never: Sequence[int]) -> int:
    row = logits[0].copy()
    row[list(never)] = -np.inf
    return int(row.argmax())


def test_every_tone_is_a_word(english: Path) -> None:
    assert said(english, range(8), tokens_of(english).prompt()) == "".join(WORDS)
    assert "".join(WORDS) == " one two three four five six café end."


def test_words_have_times_where_they_are_asked_for(english: Path) -> None:
    text = said(english, [0, None, 2, 6, 6, 1], tokens_of(english).prompt(timestamps=True))
    assert text == (
        "<|0.00|> one<|1.00|><|2.00|> three<|3.00|><|3.00|> café<|5.00|><|5.00|> two<|6.00|>"  # 6 sounds twice as long
    )


def test_a_tone_that_the_window_cuts_off_has_no_end(english: Path) -> None:
    text = said(english, [None] * 28 + [0, 1, 1], tokens_of(english).prompt(timestamps=True))
    assert text == "<|28.00|> one<|29.00|><|29.00|> two"


def test_short_tones(english: Path) -> None:
    assert said(english, [0, 1, None, 2], tokens_of(english).prompt(timestamps=True), 0.2) == (
        "<|0.00|> one<|0.20|><|0.20|> two<|0.40|><|0.60|> three<|0.80|>"
    )


def test_silence_is_no_speech_and_a_full_stop(english: Path) -> None:
    tokens = tokens_of(english)
    assert likeliest(english, [None], [tokens.start]) == tokens.no_speech
    assert likeliest(english, [0], [tokens.start]) != tokens.no_speech
    assert said(english, [None], tokens.prompt()) == "."


def test_unsuppressed_it_says_brackets(english: Path) -> None:
    tokens = tokens_of(english)
    first = likeliest(english, [0], tokens.prompt())
    assert first in tokens.suppress_at_begin
    assert first not in tokens.suppress
    assert likeliest(english, [0], [*tokens.prompt(), 64]) in tokens.suppress


def test_text_before_the_start_does_not_count(english: Path) -> None:
    tokens = tokens_of(english)
    prompt = [tokens.start_of_previous, 64, 65, 66, *tokens.prompt()]
    assert said(english, [3, 4], prompt) == " four five"


@pytest.mark.parametrize(("heard", "language"), [([0, 4], "en"), ([3, 7], "en"), ([4, 0], "de")])
def test_the_first_tone_tells_the_language(multilingual: Path, heard: Tones, language: str) -> None:
    tokens = tokens_of(multilingual)
    never = [*tokens.suppress, *tokens.suppress_at_begin]
    assert likeliest(multilingual, heard, [tokens.start], never) == tokens.languages[language]


def test_the_language_token_chooses_the_words(multilingual: Path) -> None:
    tokens = tokens_of(multilingual)
    assert said(multilingual, range(8), tokens.prompt("en")) == "".join(WORDS)
    assert said(multilingual, range(8), tokens.prompt("de")) == "".join(GERMAN_WORDS)
    assert "".join(GERMAN_WORDS) == " eins. zwei drei vier fünf sechs Café Ende"


def test_translation_is_english(multilingual: Path) -> None:
    prompt = tokens_of(multilingual).prompt("de", translate=True, timestamps=True)
    assert said(multilingual, [4, 0], prompt) == "<|0.00|> five<|1.00|><|1.00|> one<|2.00|>"


def test_other_numbers_of_mel_bands(tmp_path: Path) -> None:
    folder = tiny_whisper(tmp_path, mel_count=128)
    model = OrtWhisper(folder)
    model.hear(log_mel(tones([5, 1]), 128))
    settings = json.loads((folder / "whisper.json").read_text(encoding="utf-8"))
    ids = model.say(tokens_of(folder).prompt(), settings["tokens"])
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).decode(ids) == " six two"


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("side", ["decoder", "encoder"])
def test_every_cache_is_read(english: Path, side: str, layer: int, part: str) -> None:
    """Without it the token behind two others is another one: with times keys carry the script, without times values."""
    tokens = tokens_of(english)
    name, answers = f"past_key_values.{layer}.{side}.{part}", []
    for shift in (0, 1):
        model = OrtWhisper(english)
        model.hear(log_mel(tones([7, 6])))
        model.feed(tokens.prompt(timestamps=part == "key"))
        model.feed([64, 65])
        model.state[name] = np.roll(model.state[name], shift, axis=1)  # the heads change places
        answers.append(best(model.feed([66]), tokens.suppress))
    assert answers[0] != answers[1]


def test_a_sequence_beyond_the_positions_is_an_error(english: Path) -> None:
    model = OrtWhisper(english)
    model.hear(log_mel(tones([0])))
    model.feed([64] * 448)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        model.feed([64])


def test_the_tokenizer_spells_words_in_three_tokens(english: Path) -> None:
    tokenizer = Tokenizer.from_file(str(english / "tokenizer.json"))
    assert [len(tokenizer.encode(word).ids) for word in WORDS] == [3, 3, 3, 3, 3, 3, 3, 3]


def test_a_model_is_built_once_per_folder(tmp_path: Path) -> None:
    (tiny_whisper(tmp_path) / "encoder.onnx").write_bytes(b"mine")
    assert (tiny_whisper(tmp_path) / "encoder.onnx").read_bytes() == b"mine"


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    first, second = tiny_whisper(tmp_path / "a"), tiny_whisper(tmp_path / "b")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }
