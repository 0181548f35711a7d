"""Random calls on sessions give what a reference works out from scratch (genai 6), on the fake, on ONNX Runtime and on
llama.cpp.

Prompts that begin as the sequence does, capacity edges, stops, sampling, constraints, drafts, saved states; read to the
end, cancelled, closed, dropped, failing, cancelled or interrupted while the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fakes.drafting import GuessedDrafts
from fakes.reference_session import ReferenceSession
from fakes.scripted import EOS, PIECES, VOCABULARY_SIZE, Compose, Composed
from fakes.session_duel import TABLES, Duel
from genai.tasks import Tasks, TextGenerationSession, TextGenerationSpeculativeMethod

CAPACITY = 24
LETTERS = {letter: PIECES.index(letter.encode()) for letter in "abcdxy"}
STOPS = ("a", "ab", "bc", "abc", "é", "</s>", "cx")


pytest.importorskip("llguidance")


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, TABLES, capacity=CAPACITY) as stage:
        yield stage


def play(
    stage: Composed, make_session: Callable[[], TextGenerationSession], eos: tuple[int, ...], file: Path, count: int
) -> None:
    """Play random calls on sessions, and on a reference beside each."""
    for seed in range(count):
        reference = ReferenceSession(TABLES, VOCABULARY_SIZE, CAPACITY, frozenset(eos), PIECES)
        duel = Duel(stage, make_session, reference, Random(seed), range(VOCABULARY_SIZE), file, STOPS, LETTERS)
        try:
            duel.play(12)
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}\n" + "\n".join(duel.trace)) from error


@pytest.mark.parametrize("chunk", [1, 3, 128])
@pytest.mark.parametrize("eos", [(), (EOS,)])
def test_sessions_hold_and_answer_what_the_reference_does(
    stage: Composed, eos: tuple[int, ...], chunk: int, tmp_path: Path
) -> None:
    def session() -> TextGenerationSession:
        made = stage.session(eos)
        feed: Any = made._core.feed
        feed.chunk = chunk  # how long prompts are cut must not matter
        return made

    play(stage, session, eos, tmp_path / "saved.state", 8)


@pytest.mark.parametrize("eos", [(), (EOS,)])
def test_drafts_change_nothing_whatever_they_are(
    stage: Composed, eos: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    monkeypatch.setattr("genai.speculative_evaluation.draft_length", lambda _, chances: random.randint(0, len(chances)))

    def session() -> TextGenerationSession:
        configuration = stage.configuration()
        configuration.set_speculative_decoding(TextGenerationSpeculativeMethod.PROMPT_LOOKUP, 16)
        made = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, eos).create_session(configuration)
        speculation = made._core.speculation
        assert speculation is not None
        speculation.source = GuessedDrafts(TABLES, random)
        return made

    play(stage, session, eos, tmp_path / "saved.state", 12)
