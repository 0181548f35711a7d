"""Decoding windows of sound with a tiny Whisper model: languages, times, prompts, limits, what a model thinks of it.

On the fake and on ONNX Runtime. Expected words and times are those of `models/whisper_models.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fakes.engines import spoil
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.speech import Recognizer, recognizing
from genai.log_mel import log_mel
from genai.whisper_decoding import WhisperDecoder
from genai.whisper_rules import WhisperRules
from models.whisper_models import tones
from winml_lite import WinMLError

TIMES = WhisperRules(timestamps=True)
E_FAIL = 0x80004005


@contextmanager
def decoding(files: ModelFiles, multilingual: bool) -> Iterator[tuple[WhisperDecoder, Recognizer]]:
    """A decoder of the tiny model, and what it is made of."""
    with recognizing(files.folder, multilingual=multilingual) as recognizer:
        yield recognizer.configuration()._compose(), recognizer


@pytest.fixture
def model(onnx_engine: str, files: ModelFiles) -> Iterator[tuple[WhisperDecoder, Recognizer]]:
    """The English-only decoder with its parts."""
    with decoding(files, multilingual=False) as model:
        yield model


@pytest.fixture
def decoder(model: tuple[WhisperDecoder, Recognizer]) -> WhisperDecoder:
    return model[0]


@pytest.fixture
def multilingual(onnx_engine: str, files: ModelFiles) -> Iterator[WhisperDecoder]:
    with decoding(files, multilingual=True) as (decoder, _):
        yield decoder


def said(token_ids: list[int], recognizer: Recognizer) -> str:
    """The text of tokens, with times as they are spelled."""
    return recognizer.tokenizer.decode(token_ids)


# --- what is heard ----------------------------------------------------------------------------------------------------


def test_samples_and_their_features_are_heard_alike(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0, 1]))
    first = list(decoder.decode(decoder.tokens.prompt()))
    decoder.encode(log_mel(tones([0, 1])))
    assert list(decoder.decode(decoder.tokens.prompt())) == first
    assert said(first, recognizer) == " one two"


def test_an_english_only_model_hears_english(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([5]))
    assert decoder.detect_language() == "en"


@pytest.mark.parametrize(("word", "language"), [(0, "en"), (3, "en"), (4, "de"), (7, "de")])
def test_the_language_is_that_of_the_likeliest_token(multilingual: WhisperDecoder, word: int, language: str) -> None:
    multilingual.encode_samples(tones([word]))
    assert multilingual.detect_language() == language
    probabilities = multilingual.language_probabilities()
    assert list(probabilities) == ["en", "zh", "de", "es"]
    assert sum(probabilities.values()) == pytest.approx(1)
    assert probabilities[language] == pytest.approx(1, abs=1e-6)  # 10 against three times -10


def test_logits_that_are_no_numbers_tell_no_language(
    multilingual: WhisperDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.full(100_000, np.nan, np.float32)
    monkeypatch.setattr(multilingual, "_after_start", lambda prompt: rows)
    with failing(0x8007000D):
        multilingual.detect_language()


def test_a_translation_is_another_task(multilingual: WhisperDecoder) -> None:
    multilingual.encode_samples(tones([4]))
    prompts = [multilingual.tokens.prompt("de", translate=translate) for translate in (False, True)]
    original, english = (multilingual.decode(prompt) for prompt in prompts)
    assert tuple(original) == (260, 195, 278)  # fünf
    assert tuple(english) == (260, 262, 101)  # five


def test_no_speech_is_likely_in_silence(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([None]))
    assert decoder.no_speech_probability() > 0.99
    decoder.encode_samples(tones([0]))
    assert decoder.no_speech_probability() < 1e-6
    assert decoder.no_speech_probability(decoder.tokens.prompt()) < 1e-6


def test_what_is_known_of_the_start_is_evaluated_once(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0]))
    decoder.no_speech_probability()
    decoder.no_speech_probability(decoder.tokens.prompt())
    assert recognizer.decoder[0].run_count == 1
    list(decoder.decode(decoder.tokens.prompt()))
    assert recognizer.decoder[0].run_count == 5  # the rest of the prompt, and three tokens


# --- times and prompts ------------------------------------------------------------------------------------------------


def test_times_frame_each_word(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0, None, 6]))
    token_ids = list(decoder.decode(decoder.tokens.prompt(timestamps=True), rules=TIMES))
    assert said(token_ids, recognizer) == "<|0.00|> one<|1.00|><|2.00|> café<|3.00|>"


def test_a_late_start_is_moved_to_the_first_second(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([None, None, 0]))
    prompt = decoder.tokens.prompt(timestamps=True)
    limited = list(decoder.decode(prompt, rules=TIMES))
    assert decoder.tokens.seconds(limited[0]) <= 1.0
    free = list(decoder.decode(prompt, rules=WhisperRules(timestamps=True, max_initial_timestamp=None)))
    assert said(free, recognizer) == "<|2.00|> one<|3.00|>"


def test_text_before_the_start_is_a_hint_only(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([1]))
    before = [decoder.tokens.start_of_previous, *recognizer.tokenizer.encode(" one two", False)]
    prompt = [*before, *decoder.tokens.prompt()]
    assert said(list(decoder.decode(prompt)), recognizer) == " two"
    assert decoder.no_speech_probability(prompt) < 1e-6


def test_a_long_prompt_runs_in_pieces(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([1]))
    before = [decoder.tokens.start_of_previous, *[ord("x")] * 220]
    decoding = decoder.decode([*before, *decoder.tokens.prompt()])
    next(decoding)
    assert recognizer.decoder[0].run_count == 3  # 128 and 94 tokens without a row, then the last one
    assert said([*decoding.token_ids, *decoding], recognizer) == " two"


def test_an_empty_prompt_is_refused(decoder: WhisperDecoder) -> None:
    with pytest.raises(ValueError, match="prompt_ids"):
        decoder.decode([])


# --- limits and chances -----------------------------------------------------------------------------------------------


def test_the_end_and_its_reason(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0]))
    decoding = decoder.decode(decoder.tokens.prompt())
    assert decoding.end is None
    token_ids = list(decoding)
    assert (decoding.end, list(decoding)) == ("end", [])
    assert decoding.token_ids == tuple(token_ids)


def test_a_limit_of_new_tokens(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0]))
    decoding = decoder.decode(decoder.tokens.prompt(), rules=WhisperRules(max_new_tokens=2))
    assert len(list(decoding)) == 2
    assert decoding.end == "limit"


def test_the_last_position_of_the_model(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0]))
    prompt = [*[ord("x")] * 444, *decoder.tokens.prompt()]
    decoding = decoder.decode(prompt)
    assert len(list(decoding)) == 2
    assert decoding.end == "capacity"


def test_the_mean_log_probability_counts_the_end(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0]))
    decoding = decoder.decode(decoder.tokens.prompt())
    assert decoding.average_log_probability == 0.0
    list(decoding)
    # The chosen token has 10, the fallback 0, and about 1,790 tokens have -10.
    expected = -np.log(1 + np.exp(-10.0) + 1788 * np.exp(-20.0))
    assert decoding.average_log_probability == pytest.approx(expected, abs=1e-6)


def test_a_temperature_draws_by_a_seed(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0, 1, 2, 3]))
    prompt = decoder.tokens.prompt()
    greedy = list(decoder.decode(prompt))
    hot = WhisperRules(temperature=20.0, seed=7, max_new_tokens=30)
    first, second = (list(decoder.decode(prompt, rules=hot)) for _ in range(2))
    assert first == second != greedy
    fresh = decoder.decode(prompt, rules=WhisperRules(temperature=1.0))
    assert fresh.seed != 0
    assert list(decoder.decode(prompt)) == greedy


def test_suppressed_tokens_are_not_drawn(decoder: WhisperDecoder) -> None:
    decoder.encode_samples(tones([0]))
    hot = WhisperRules(temperature=50.0, seed=3, max_new_tokens=60)
    drawn = set(decoder.decode(decoder.tokens.prompt(), rules=hot))
    assert len(drawn) > 30
    assert not drawn & set(decoder.tokens.suppress)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), WinMLError(E_FAIL, "the test", "spoilt")])
def test_a_step_that_fails_can_be_taken_again(
    model: tuple[WhisperDecoder, Recognizer], failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0, 1]))
    decoding = decoder.decode(decoder.tokens.prompt())
    token_ids = [next(decoding)]
    spoil(recognizer.decoder[1], monkeypatch, failure)
    with pytest.raises(type(failure)):
        next(decoding)
    assert said([*token_ids, *decoding], recognizer) == " one two"


def test_one_decoding_after_the_other_starts_over(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0, 1]))
    first = decoder.decode(decoder.tokens.prompt())
    next(first)
    next(first)
    second = list(decoder.decode(decoder.tokens.prompt()))
    assert said(second, recognizer) == " one two"
    assert [*first.token_ids, *first] == second


def test_a_state_that_was_moved_behind_its_back_is_mended(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0, 1]))
    decoding = decoder.decode(decoder.tokens.prompt())
    token_ids = [next(decoding), next(decoding)]
    recognizer.decoder[0].reset()
    assert said([*token_ids, *decoding], recognizer) == " one two"


def test_resetting_forgets_what_was_said(model: tuple[WhisperDecoder, Recognizer]) -> None:
    decoder, recognizer = model
    decoder.encode_samples(tones([0]))
    next(decoder.decode(decoder.tokens.prompt()))
    decoder.reset()
    assert recognizer.decoder[1].sequence_position == 0


def test_no_codes_for_errors_are_lost(
    model: tuple[WhisperDecoder, Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, recognizer = model
    spoil(recognizer.encoder[1], monkeypatch, WinMLError(E_FAIL, "the test", "spoilt"))
    with failing(E_FAIL):
        decoder.encode_samples(tones([0]))
    decoder.encode_samples(tones([0]))
    assert said(list(decoder.decode(decoder.tokens.prompt())), recognizer) == " one"
