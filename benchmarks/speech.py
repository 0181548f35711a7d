"""A window of sound to text by Whisper: `SpeechModel.transcribe` against a plain loop over the same two graphs.

The loop is the one that people write with onnxruntime: `run` with dictionaries of arrays. Both sides make the same
features and say the same tokens, as many as a window may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import genai
from genai import named_models
from genai.log_mel import log_mel
from genai.whisper_folder import WhisperFolder
from models.whisper_models import tiny_whisper, tones

from . import subjects
from .measure import Plan, Row, alternate, main, shorter

Samples = npt.NDArray[np.float32]
BOUNDS = ("<= 1.03", "<= 0.9")


def babble() -> Samples:
    """Ten seconds of vowels without a word; Whisper tiny repeats itself about them for all of its 224 tokens."""
    times = np.arange(10 * 16000) / 16000
    formant = 700 + 400 * np.sin(2 * np.pi * 1.3 * times)
    voice = sum(np.sin(2 * np.pi * 120 * k * times) * np.exp(-(((120 * k - formant) / 300) ** 2)) for k in range(1, 30))
    samples: Samples = (0.1 * voice * (1 + np.sin(2 * np.pi * 3.7 * times))).astype(np.float32)
    return samples


class PlainWhisper:
    """The loop."""

    def __init__(self, folder: WhisperFolder, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._folder = folder
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            for path in (folder.encoder_path, folder.decoder_path)
        )
        self._encoder_names = [port.name for port in self._encoder.get_outputs()]
        self._decoder_names = [port.name for port in self._decoder.get_outputs()]

    def transcribe(self, samples: Samples) -> list[int]:
        """Return the likeliest tokens of a window, at most half of the positions."""
        shape, tokens = self._folder.shape, self._folder.tokens
        given = {"input_features": log_mel(samples, shape.mel_count)}
        state = dict(zip(self._encoder_names, self._encoder.run(None, given), strict=True))
        empty = np.zeros((1, shape.head_count, 0, shape.head_size), np.float32)
        names = [port.name for port in self._decoder.get_inputs()][1:]
        past: dict[str, Any] = {name: state.get(name.replace("past_key_values", "present"), empty) for name in names}
        ids = tokens.prompt("en")
        said: list[int] = []
        while len(said) < shape.position_count // 2:
            given = {"input_ids": np.array([ids], np.int64), **past}
            made = dict(zip(self._decoder_names, self._decoder.run(None, given), strict=True))
            row = made.pop("logits")[0, -1]
            past |= {name.replace("present", "past_key_values"): value for name, value in made.items()}
            row[list(tokens.suppress) + ([] if said else list(tokens.suppress_at_begin))] = -np.inf
            ids = [int(row.argmax())]
            if ids[0] == tokens.end:
                break
            said += ids
        return said


def transcribing(model: genai.SpeechModel) -> Callable[[Samples], list[int]]:
    """Ours, which takes a text as it comes."""
    options = genai.TranscriptionOptions(timestamps=False, temperatures=(0.0,), no_speech_threshold=None)

    def transcribe(samples: Samples) -> list[int]:
        found = model.transcribe(samples, options=options)
        return [token_id for segment in found.segments for token_id in segment.token_ids]

    return transcribe


def folder_of(quick: bool) -> Path:
    """Whisper tiny from the catalog, or the tiny model that hears tones."""
    if quick:
        return tiny_whisper(subjects.scratch("whisper") / "tiny")
    return named_models.prepare(subjects.catalog_entry("whisper-tiny.en"))


def measure(plan: Plan) -> Iterator[Row]:
    """One window, from samples to tokens."""
    folder = folder_of(plan.quick)
    samples = tones([0, None, 6]) if plan.quick else babble()
    plain = PlainWhisper(WhisperFolder.open(folder), plan.threads)
    with genai.load_speech(folder, threads=plan.threads) as model:
        ours = transcribing(model)
        tokens = ours(samples)
        if tokens != plain.transcribe(samples):
            raise RuntimeError("the two sides say different tokens")
        few = replace(plan, steps=3, dropped=1, chunks=min(plan.chunks, 6))
        seconds = alternate(lambda: ours(samples), lambda: plain.transcribe(samples), few)
        amounts = (seconds[0] * 1000, seconds[1] * 1000)
        yield shorter(f"a window of speech, {len(tokens)} tokens", "plain onnxruntime loop", amounts, "ms", BOUNDS)


if __name__ == "__main__":
    main(measure, __doc__)
