"""Whisper's encoder and decoder against CTranslate2, which faster-whisper runs on: one window, greedy, same weights.

Our float16 folder computes in float32, as CTranslate2 does with "float32"; our 8-bit folder is measured against its
"int8". Without CTranslate2 (`pip install ctranslate2`) there are no rows.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import genai
from genai import download
from genai.convert import convert_whisper
from genai.convert.whisper import Weights
from genai.log_mel import log_mel
from genai.speech_loading import load_speech
from genai.whisper_rules import WhisperRules
from models.whisper_weights import SHAPE, ct2_whisper

from . import subjects
from .measure import Plan, Row, alternate, main, shorter
from .speech import babble

Features = npt.NDArray[np.float32]
ENCODE_BOUNDS, TOKEN_BOUNDS = ("<= 1.05", "<= 0.9"), ("<= 1.05", "<= 0.8")
KINDS: tuple[tuple[Weights, str], ...] = (("f16", "float32"), ("q8", "int8"))
MOST_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Side:
    """One program with the model: `encode` hears a window, `decode` then returns its tokens."""

    encode: Callable[[], object]
    decode: Callable[[], list[int]]


def peer_folder(quick: bool) -> Path:
    """A folder that CTranslate2 takes: the model and, which ours do without, its tokens as a list."""
    folder = subjects.scratch("ct2")
    if quick:
        source = ct2_whisper(folder / "source", shape=replace(SHAPE, width=64, hidden=64, position_count=448))
    else:
        source = download.pull(subjects.catalog_entry("whisper-tiny.en"))
    for path in source.iterdir():
        if not (folder / path.name).exists():
            os.symlink(path, folder / path.name)
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    ids = tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    last = max(ids.values())
    times = {f"<|{index * 0.02:.2f}|>": last + 1 + index for index in range(0 if "<|0.00|>" in ids else 1501)}
    tokens = sorted((ids | times).items(), key=lambda pair: pair[1])
    (folder / "vocabulary.json").write_text(json.dumps([token for token, _ in tokens]), encoding="utf-8")
    return folder


def our_side(model: genai.SpeechModel, features: Features) -> Side:
    """The decoder that `SpeechModel` uses, without what is around it."""
    decoder = model._decoder
    assert decoder is not None
    prompt = decoder.tokens.prompt("en")
    rules = WhisperRules(max_new_tokens=MOST_TOKENS)
    return Side(lambda: decoder.encode(features), lambda: list(decoder.decode(prompt, rules=rules)))


def peer_side(folder: Path, compute_type: str, threads: int, features: Features, prompt: list[int]) -> Side:
    ctranslate2: Any = importlib.import_module("ctranslate2")
    model = ctranslate2.models.Whisper(str(folder), compute_type=compute_type, intra_threads=threads)
    view = ctranslate2.StorageView.from_array(features)
    heard = model.encode(view, to_cpu=True)

    def decode() -> list[int]:
        limit = 2 * MOST_TOKENS  # the model says at most half of it
        found: list[int] = model.generate(heard, [prompt], beam_size=1, max_length=limit)[0].sequences_ids[0]
        return found

    return Side(lambda: model.encode(view, to_cpu=True), decode)


def rows_of(folder: Path, kinds: tuple[Weights, str], plan: Plan) -> Iterator[Row]:
    """One precision: milliseconds of a window, and of a token."""
    weights, compute_type = kinds
    other_side = f"CTranslate2 {compute_type}"
    made = convert_whisper(folder, subjects.scratch(weights) / "made", weights=weights)
    features = log_mel(babble(), made.mel_count)
    few = replace(plan, steps=3, dropped=1, chunks=min(plan.chunks, 6))
    with load_speech(made.folder, threads=plan.threads) as model:
        ours = our_side(model, features)
        decoder = model._decoder
        assert decoder is not None
        other = peer_side(folder, compute_type, plan.threads, features, decoder.tokens.prompt("en"))
        seconds = alternate(ours.encode, other.encode, few)
        pair = (seconds[0] * 1e3, seconds[1] * 1e3)
        yield shorter(f"Whisper tiny, {weights}: a window heard", other_side, pair, "ms", ENCODE_BOUNDS)
        lengths = [len(side.decode()) + 1 for side in (ours, other)]
        seconds = alternate(ours.decode, other.decode, few)
        pair = (seconds[0] / lengths[0] * 1e3, seconds[1] / lengths[1] * 1e3)
        yield shorter(f"Whisper tiny, {weights}: a token", other_side, pair, "ms", TOKEN_BOUNDS)


def measure(plan: Plan) -> Iterator[Row]:
    """Both precisions."""
    if find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed: nothing to compare with", file=sys.stderr)
        return
    folder = peer_folder(plan.quick)
    for kinds in KINDS:
        yield from rows_of(folder, kinds, plan)


if __name__ == "__main__":
    main(measure, __doc__)
