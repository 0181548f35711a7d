"""Random calls on sessions give what a reference works out from scratch (genai 6), on the fake, on ONNX Runtime and on
llama.cpp.

Generations and continuations with prompts that begin as the sequence does, capacity edges, stops, sampling; read to the
end, cancelled, closed, dropped, failing, cancelled or interrupted while the model runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.reference_session import ReferenceSession
from fakes.scripted import EOS, PIECES, VOCABULARY_SIZE, Compose, Composed
from fakes.session_duel import Duel
from genai.tasks import TextGenerationSession
from models.table_decoders import TableDecoder

CAPACITY = 24
RANDOM = np.random.default_rng(1)
TABLES = TableDecoder(
    VOCABULARY_SIZE,
    following=2 * RANDOM.standard_normal((VOCABULARY_SIZE, VOCABULARY_SIZE)).astype(np.float32),
    by_length=2 * RANDOM.standard_normal((20, VOCABULARY_SIZE)).astype(np.float32),
    mixed=6 * RANDOM.standard_normal((VOCABULARY_SIZE, VOCABULARY_SIZE)).astype(np.float32),
)
"""Every token, its place and the last one matter."""
STOPS = ("a", "ab", "bc", "abc", "é", "</s>", "cx")


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, TABLES, capacity=CAPACITY) as stage:
        yield stage


@pytest.mark.parametrize("chunk", [1, 3, 128])
@pytest.mark.parametrize("eos", [(), (EOS,)])
def test_sessions_hold_and_answer_what_the_reference_does(stage: Composed, eos: tuple[int, ...], chunk: int) -> None:
    def session() -> TextGenerationSession:
        made = stage.session(eos)
        feed: Any = made._core.feed
        feed.chunk = chunk  # how long prompts are cut must not matter
        return made

    for seed in range(15):
        reference = ReferenceSession(TABLES, VOCABULARY_SIZE, CAPACITY, frozenset(eos), PIECES)
        duel = Duel(stage, session, reference, random.Random(seed), range(VOCABULARY_SIZE), STOPS)
        try:
            duel.play(12)
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}\n" + "\n".join(duel.trace)) from error
