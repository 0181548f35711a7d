"""Decoding a window: hotter attempts, guesses, silence, what the model sees before a window, cancelling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from genai import TranscriptionOptions, WinMLError
from genai.cancellation import CancellationLatch
from genai.whisper_folder import WhisperTokens
from genai.whisper_rules import WhisperRules
from genai.window_hearing import Hearing, compression_ratio

ENGLISH = WhisperTokens(
    end=100,
    start=101,
    translate=102,
    transcribe=103,
    start_of_lm=104,
    start_of_previous=105,
    no_speech=106,
    no_timestamps=107,
    timestamp_begin=200,
    languages={"en": 108, "de": 109},
)
SOUND = np.zeros(1600, np.float32)
CANCELLED = 0x800704C7


@dataclass(frozen=True)
class Attempt:
    """What comes of one decoding."""

    token_ids: tuple[int, ...] = (200, 1, 2, 250)
    average: float = -0.3
    end: str = "end"


class Decoding(Iterator[int]):
    def __init__(self, attempt: Attempt) -> None:
        self.average_log_probability = attempt.average
        self.token_ids = attempt.token_ids
        self.end = attempt.end
        self._rest = iter(attempt.token_ids)

    def __next__(self) -> int:
        return next(self._rest)


class Decoder:
    """Follows a script, and remembers what it was asked."""

    positions = 16

    def __init__(self, *script: Attempt, no_speech: float = 0.1, multilingual: bool = False) -> None:
        self.tokens = replace(ENGLISH, is_multilingual=multilingual)
        self._script = iter(script)
        self._no_speech = no_speech
        self.prompts: list[list[int]] = []
        self.rules: list[WhisperRules] = []
        self.detections = 0

    def encode_samples(self, samples: Any) -> None: ...

    def detect_language(self) -> str:
        self.detections += 1
        return "de"

    def no_speech_probability(self, prompt_ids: Sequence[int]) -> float:
        return self._no_speech

    def decode(self, prompt_ids: Sequence[int], *, rules: WhisperRules) -> Decoding:
        self.prompts.append(list(prompt_ids))
        self.rules.append(rules)
        return Decoding(next(self._script))


class Letters:
    """Token 1 is "a", 2 is "b" ..."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) - 96 if letter != " " else 50 for letter in text]

    def decode(self, token_ids: Iterable[int]) -> str:
        return "".join(" " if token_id == 50 else chr(token_id + 96) for token_id in token_ids)


def hearing(
    decoder: Decoder, latch: CancellationLatch | None = None, is_spoken: bool = False, **options: Any
) -> Hearing:
    tools: tuple[Any, Any] = decoder, Letters()
    return Hearing(*tools, TranscriptionOptions(**options), latch or CancellationLatch(), lambda: is_spoken)


def temperatures(decoder: Decoder) -> list[float]:
    return [rules.temperature for rules in decoder.rules]


class TestAttempts:
    def test_a_good_text_is_taken_at_once(self) -> None:
        decoder = Decoder(Attempt())
        heard = hearing(decoder)(SOUND)
        assert (heard.token_ids, heard.temperature, heard.is_speech, heard.is_whole) == (
            (200, 1, 2, 250),
            0,
            True,
            True,
        )
        assert (heard.average_log_probability, heard.no_speech_probability) == (-0.3, 0.1)
        assert temperatures(decoder) == [0.0]

    def test_a_text_that_repeats_itself_is_tried_hotter(self) -> None:
        decoder = Decoder(Attempt((1,) * 60), Attempt((1, 2) * 40), Attempt((7,)))
        heard = hearing(decoder)(SOUND)
        assert (heard.token_ids, heard.temperature) == ((7,), 0.4)
        assert temperatures(decoder) == [0.0, 0.2, 0.4]

    def test_a_guess_is_no_better_than_what_really_repeats_itself(self) -> None:
        decoder = Decoder(Attempt((1,) * 60, -0.3), Attempt((7,), -4.1), Attempt((1,) * 60, -0.5))
        heard = hearing(decoder, temperatures=(0.0, 0.2, 0.4))(SOUND)
        assert (len(heard.token_ids), heard.temperature) == (60, 0.0)

    @pytest.mark.parametrize(("is_spoken", "heard_is"), [(True, (60, 0.0, True)), (False, (1, 0.2, False))])
    def test_where_somebody_speaks_a_guess_does_not_make_silence_of_a_text(
        self, is_spoken: bool, heard_is: tuple[int, float, bool]
    ) -> None:
        decoder = Decoder(Attempt((1,) * 60, -0.3), Attempt((7,), -4.1), Attempt((8,), -3.0), no_speech=0.9)
        heard = hearing(decoder, is_spoken=is_spoken, temperatures=(0.0, 0.2, 0.4))(SOUND)
        assert (len(heard.token_ids), heard.temperature, heard.is_speech) == heard_is

    def test_a_guess_is_tried_hotter(self) -> None:
        decoder = Decoder(Attempt(average=-1.1), Attempt((7,), average=-0.9))
        assert hearing(decoder)(SOUND).token_ids == (7,)

    def test_of_guesses_the_likeliest_that_does_not_repeat_itself_is_taken(self) -> None:
        script = Attempt((1,) * 60, average=-1.1), Attempt((3,), average=-2.0), Attempt((4,), average=-1.5)
        decoder = Decoder(*script)
        heard = hearing(decoder, temperatures=(0, 0.5, 1))(SOUND)
        assert (heard.token_ids, heard.temperature) == ((4,), 1.0)

    def test_thresholds_can_be_switched_off(self) -> None:
        decoder = Decoder(Attempt((1,) * 60, average=-5.0))
        off: dict[str, Any] = {"compression_ratio_threshold": None, "log_probability_threshold": None}
        assert len(hearing(decoder, **off)(SOUND).token_ids) == 60

    def test_a_guess_where_nothing_is_said_is_dropped(self) -> None:
        decoder = Decoder(Attempt(average=-1.5), no_speech=0.7)
        assert not hearing(decoder)(SOUND).is_speech
        assert temperatures(decoder) == [0.0]

    def test_a_text_that_is_no_guess_is_kept_though_nothing_seems_to_be_said(self) -> None:
        assert hearing(Decoder(Attempt(average=-0.5), no_speech=0.9))(SOUND).is_speech

    def test_every_text_is_speech_where_that_threshold_is_off(self) -> None:
        decoder = Decoder(Attempt(average=-1.5), no_speech=1.0)
        assert hearing(decoder, no_speech_threshold=None, temperatures=0)(SOUND).is_speech

    def test_tokens_that_ran_out(self) -> None:
        assert not hearing(Decoder(Attempt(end="limit")))(SOUND).is_whole

    def test_rules(self) -> None:
        decoder = Decoder(Attempt())
        hearing(decoder, timestamps=False, seed=5)(SOUND)
        assert decoder.rules == [WhisperRules(timestamps=False, seed=5, max_new_tokens=8)]


class TestPrompt:
    def test_an_english_model_is_told_to_begin(self) -> None:
        decoder = Decoder(Attempt(), Attempt())
        hearing(decoder)(SOUND)
        hearing(decoder, timestamps=False)(SOUND)
        assert decoder.prompts == [[101], [101, 107]]

    def test_the_language_is_found_once(self) -> None:
        decoder = Decoder(Attempt(), Attempt(), multilingual=True)
        listening = hearing(decoder)
        listening(SOUND)
        listening(SOUND)
        assert decoder.prompts == [[101, 109, 103]] * 2
        assert (decoder.detections, listening.language) == (1, "de")

    def test_the_language_of_silence_does_not_count(self) -> None:
        decoder = Decoder(Attempt(average=-2), no_speech=0.9, multilingual=True)
        listening = hearing(decoder)
        listening(SOUND)
        assert listening.language is None

    def test_a_language_and_a_task_that_are_said(self) -> None:
        decoder = Decoder(Attempt(), multilingual=True)
        hearing(decoder, language="en", translate=True)(SOUND)
        assert decoder.prompts == [[101, 108, 102]]
        assert decoder.detections == 0

    def test_a_prompt_stands_before_every_window(self) -> None:
        decoder = Decoder(Attempt(), Attempt())
        listening = hearing(decoder, prompt=" ab ")
        listening(SOUND)
        listening(SOUND)
        assert decoder.prompts == [[105, 50, 1, 2, 101]] * 2

    def test_the_text_before_stands_behind_the_prompt(self) -> None:
        decoder = Decoder(Attempt((200, 3, 4, 250)), Attempt())
        listening = hearing(decoder, prompt="a", condition_on_previous_text=True)
        listening(SOUND)
        listening(SOUND)
        assert decoder.prompts[1] == [105, 50, 1, 3, 4, 101]

    def test_what_stands_before_takes_at_most_half_of_the_positions(self) -> None:
        decoder = Decoder(Attempt(tuple(range(1, 8))), Attempt((8, 9)), Attempt())
        listening = hearing(decoder, prompt="z", condition_on_previous_text=True)
        for _ in range(3):
            listening(SOUND)
        assert decoder.prompts[2] == [105, 50, 26, 5, 6, 7, 8, 9, 101]  # 7 of 16, and the two marks

    def test_a_hot_text_is_no_example(self) -> None:
        decoder = Decoder(Attempt(average=-3), Attempt((5,)), Attempt())
        listening = hearing(decoder, condition_on_previous_text=True, temperatures=(0, 0.6))
        listening(SOUND)
        listening(SOUND)
        assert decoder.prompts[2] == [101]


class TestCancelling:
    def test_before_a_window(self) -> None:
        latch = CancellationLatch()
        latch.cancel()
        with pytest.raises(WinMLError) as caught:
            hearing(Decoder(Attempt()), latch)(SOUND)
        assert caught.value.hresult == CANCELLED

    def test_between_two_tokens(self) -> None:
        latch = CancellationLatch()
        decoder = Decoder(Attempt())
        listening = hearing(decoder, latch)

        def cancelling(prompt_ids: Sequence[int]) -> float:
            latch.cancel()
            return 0.1

        decoder.no_speech_probability = cancelling  # type: ignore[method-assign]
        with pytest.raises(WinMLError) as caught:
            listening(SOUND)
        assert caught.value.hresult == CANCELLED
        assert listening.token_count == 0

    def test_a_late_cancel_of_another_transcription_is_passed_over(self) -> None:
        decoder = Decoder(Attempt())
        failures = [WinMLError(CANCELLED, "run", "late")]

        def encode(samples: Any) -> None:
            if failures:
                raise failures.pop()

        decoder.encode_samples = encode  # type: ignore[method-assign]
        assert hearing(decoder)(SOUND).is_speech


def test_what_was_done_is_counted() -> None:
    listening = hearing(Decoder(Attempt(average=-2), Attempt((7,)), Attempt()))
    listening(SOUND)
    listening(SOUND)
    assert (listening.window_count, listening.token_count) == (2, 4 + 1 + 4)
    assert listening.encode_seconds > 0
    assert listening.decode_seconds > 0


@pytest.mark.parametrize(("text", "lowest", "highest"), [("", 0, 0), (" a ", 0, 1), ("na " * 100, 10, 100)])
def test_compression_ratio(text: str, lowest: float, highest: float) -> None:
    assert lowest <= compression_ratio(text) <= highest
