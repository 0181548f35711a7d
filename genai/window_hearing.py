"""What a Whisper model writes about one window of a recording: decoded again, hotter, where the text is no good.

Algorithm: the published Whisper decoding. A text that repeats itself or is a guess is decoded anew at the next
temperature; a guess about a window that is no speech is dropped. Not here: the rules of a decoding
(`whisper_rules.py`), windows (`speech_windows.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import CANCELLED
from .operation_failures import past_late_cancel
from .speech_windows import Heard
from .tokenizer import Tokenizer
from .transcription_options import TranscriptionOptions
from .whisper_decoding import WhisperDecoder, WhisperDecoding
from .whisper_rules import WhisperRules

T = TypeVar("T")

_HOT = 0.5
"""Above this temperature a text is no good example for what follows."""


class Hearing:
    """Decodes window after window of one recording. `language` is known after the first one with speech.

    A cancelled `latch` ends a decoding with WinMLError 0x800704C7. `is_spoken` tells whether somebody speaks in the
    window for sure: then a text that the model was sure of is not taken back for silence.
    """

    def __init__(
        self,
        decoder: WhisperDecoder,
        tokenizer: Tokenizer,
        options: TranscriptionOptions,
        latch: CancellationLatch,
        is_spoken: Callable[[], bool],
    ) -> None:
        self._decoder = decoder
        self._tokenizer = tokenizer
        self._options = options
        self._latch = latch
        self._is_spoken = is_spoken
        # As in the published decoding: half of the positions for the text, the rest for what stands before it.
        self._most_tokens = decoder.positions // 2
        prompt = (options.prompt or "").strip()
        self._prompt = tokenizer.encode(f" {prompt}", add_special_tokens=False) if prompt else []
        self._written: list[int] = []
        self.language = options.language
        if not decoder.tokens.is_multilingual:
            self.language = "en"
        self.encode_seconds = self.decode_seconds = 0.0
        self.window_count = self.token_count = 0

    def __call__(self, samples: npt.NDArray[np.float32]) -> Heard:
        """Write about a window of at most 480,000 samples."""
        begun = perf_counter()
        self._step(lambda: self._decoder.encode_samples(samples))
        encoded = perf_counter()
        heard = self._decoded()
        self.encode_seconds += encoded - begun
        self.decode_seconds += perf_counter() - encoded
        self.window_count += 1
        return heard

    def text(self, token_ids: Iterable[int]) -> str:
        """Return the text of tokens, with the space before the first word; timestamps are none."""
        end = self._decoder.tokens.end
        return self._tokenizer.decode([token_id for token_id in token_ids if token_id < end])

    def _decoded(self) -> Heard:
        options, decoder = self._options, self._decoder
        language = self.language or self._step(decoder.detect_language)
        start = decoder.tokens.prompt(language, translate=options.translate, timestamps=options.timestamps)
        prompt = [*self._before(), *start]
        no_speech = self._step(lambda: decoder.no_speech_probability(prompt))
        heard = self._best(prompt, no_speech)
        if heard.is_speech:
            self.language = language
            text = [token_id for token_id in heard.token_ids if token_id < decoder.tokens.end]
            self._written = [] if heard.temperature > _HOT else [*self._written, *text][-self._most_tokens :]
        return heard

    def _before(self) -> list[int]:
        """Return what the model sees before the window."""
        written = self._written if self._options.condition_on_previous_text else []
        room = self._most_tokens - 1
        prompt = self._prompt[-room:]
        rest = room - len(prompt)
        before = [*prompt, *(written[-rest:] if rest else [])]
        return [self._decoder.tokens.start_of_previous, *before] if before else []

    def _best(self, prompt: list[int], no_speech: float) -> Heard:
        """Decode at one temperature after the other until a text is good; else return the best of them.

        What really was said three times repeats itself, too: a guess is no better than that, and where somebody speaks
        for sure no sign of silence either.
        """
        best: Heard | None = None
        highest = (False, False, 0.0)
        for temperature in self._options.temperatures:
            heard = self._judged(self._run(prompt, temperature), no_speech, temperature)
            is_sure, is_varied = not self._is_guess(heard), not self._repeats(heard.token_ids)
            is_wanted = best is not None and highest[0] and self._is_spoken()
            if (is_sure and is_varied) if heard.is_speech else not is_wanted:
                return heard
            rank = is_sure, is_varied, heard.average_log_probability
            if best is None or rank > highest:
                best, highest = heard, rank
        assert best is not None, "there is one temperature at least"
        return best

    def _run(self, prompt: list[int], temperature: float) -> WhisperDecoding:
        options = self._options
        rules = WhisperRules(
            timestamps=options.timestamps,
            temperature=temperature,
            seed=options.seed,
            max_new_tokens=self._most_tokens,
        )
        decoding = self._decoder.decode(prompt, rules=rules)
        while self._step(lambda: next(decoding, None)) is not None:
            self.token_count += 1
        return decoding

    def _judged(self, decoding: WhisperDecoding, no_speech: float, temperature: float) -> Heard:
        average, limit = decoding.average_log_probability, self._options.no_speech_threshold
        is_silence = limit is not None and no_speech > limit
        threshold = self._options.log_probability_threshold
        return Heard(
            decoding.token_ids,
            is_whole=decoding.end == "end",
            is_speech=not is_silence or (threshold is not None and average > threshold),
            average_log_probability=average,
            no_speech_probability=no_speech,
            temperature=temperature,
        )

    def _is_guess(self, heard: Heard) -> bool:
        threshold = self._options.log_probability_threshold
        return threshold is not None and heard.average_log_probability < threshold

    def _repeats(self, token_ids: tuple[int, ...]) -> bool:
        threshold = self._options.compression_ratio_threshold
        return threshold is not None and compression_ratio(self.text(token_ids)) > threshold

    def _step(self, step: Callable[[], T]) -> T:
        if self._latch.is_canceled:
            raise WinMLError(CANCELLED, "transcribe", "the transcription was cancelled")
        return past_late_cancel(step, self._latch)


def compression_ratio(text: str) -> float:
    """Return how many times smaller zlib makes a text: what repeats itself becomes much smaller; 0.0 for no text."""
    data = text.strip().encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
