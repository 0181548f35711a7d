"""Drafts by models (genai §7): the predictor that is part of a model, and a second, smaller model.

Both guess greedily. How often they are right is learned from what came of their drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

from winml_lite import Stage, WinMLError

from .codes import CANCELLED
from .composition import Composition
from .endpoints import Row

_RATE = 0.1
"""Weight of the latest token in what is learned."""
_FIRST_CHANCE = 0.7
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 512


class DraftChance:
    """How likely the drafted tokens of a model are right.

    After two drafts in a row of which nothing was right nothing is drafted for 8 steps. Each draft after that of which
    again nothing is right doubles the pause.
    """

    def __init__(self) -> None:
        self._chance = _FIRST_CHANCE
        self._misses = 0
        self._pause = _FIRST_PAUSE
        self._waits = 0

    def outlook(self, most: int) -> Sequence[float]:
        """Return the chances of up to `most` tokens, () in a pause."""
        if self._waits:
            self._waits -= 1
            return ()
        return [self._chance] * most

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn what came of a draft."""
        for _ in range(accepted):
            self._chance += _RATE * (1 - self._chance)
        if accepted < drafted:
            self._chance -= _RATE * self._chance
        if accepted:
            self._misses, self._pause = 0, _FIRST_PAUSE
            return
        self._misses += 1
        if self._misses > 1:
            self._waits, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
            self._chance = _FIRST_CHANCE


class ModelPredictor:
    """Implements `DraftSource`: the stage's own predictor, which follows the sequence by itself."""

    pipelines = ()

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = DraftChance()

    def begin(self, sequence: Sequence[int]) -> None:
        """Nothing to do: the predictor sees what the stage consumes."""

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        return self._chance.outlook(most)

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        return self._stage.propose_draft_tokens(sequence[-1], count)

    def observe(self, drafted: int, accepted: int) -> None:
        self._chance.observe(drafted, accepted)

    def abort(self) -> None:
        """Nothing to do: who stops the stage stops its predictor."""

    def close(self) -> None:
        """Nothing to give up: the stage is that of the core."""


class DraftPipeline:
    """Implements `DraftSource`: a second pipeline that goes through the same sequence ahead of the first.

    It keeps the tokens that it has consumed, so that only what is new costs a run. `vocabulary_size` is that of the
    first model: tokens beyond it are not drafted. It closes the composition.
    """

    def __init__(self, composition: Composition, vocabulary_size: int) -> None:
        self.pipelines = composition.pipelines
        self._composition = composition
        self._feed = composition.feed
        self._feed.prepare()
        self._vocabulary_size = vocabulary_size
        self._chance = DraftChance()
        self._fed: list[int] = []
        self._shared = 0
        """Leading tokens of `_fed` that are those of the sequence, as far as is known."""
        self._is_stopped = False

    def begin(self, sequence: Sequence[int]) -> None:
        self._is_stopped = False
        self._shared = 0
        self._feed.begin()
        self._keep_shared(sequence)
        capacity = self._composition.capacity
        if not capacity or len(sequence) <= capacity:
            self._skip_to(sequence, len(sequence) - 1)

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        capacity = self._composition.capacity
        if capacity:  # the last drafted token is not consumed
            most = min(most, capacity - len(sequence) + 1)
        return self._chance.outlook(most) if most > 0 else ()

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        self._keep_shared(sequence)
        self._skip_to(sequence, len(sequence) - self._feed.chunk)
        row = self._run(list(sequence[len(self._fed) :]))
        self._shared = len(sequence)
        drafted: list[int] = []
        while True:
            token_id = int(row.argmax())
            if token_id >= self._vocabulary_size:
                return drafted
            drafted.append(token_id)
            if len(drafted) == count:
                return drafted
            row = self._run([token_id])

    def observe(self, drafted: int, accepted: int) -> None:
        self._chance.observe(drafted, accepted)

    def abort(self) -> None:
        self._is_stopped = True
        self._feed.abort()

    def close(self) -> None:
        self._composition.close()

    def _keep_shared(self, sequence: Sequence[int]) -> None:
        """Have the model forget what is not of the sequence; its last token is left to consume."""
        fed = self._fed
        position = self._composition.position
        del fed[position:]  # an interrupt, or another user of the pipeline
        shared = min(self._shared, len(fed))
        while shared < min(len(fed), len(sequence)) and fed[shared] == sequence[shared]:
            shared += 1
        shared = min(shared, len(sequence) - 1)
        if shared < position and not self._rewind(shared):
            self._composition.reset()
            shared = 0
        del fed[shared:]
        self._shared = shared

    def _rewind(self, position: int) -> bool:
        try:
            self._composition.rewind(position)
        except WinMLError:
            return False
        return True

    def _skip_to(self, sequence: Sequence[int], stop: int) -> None:
        """Consume the sequence up to `stop` tokens, piece by piece."""
        fed = self._fed
        while len(fed) < stop:
            if self._is_stopped:
                raise WinMLError(CANCELLED, "draft", "the draft was stopped")
            piece = list(sequence[len(fed) : min(stop, len(fed) + self._feed.chunk)])
            self._feed.skip(piece, len(fed))
            fed += piece

    def _run(self, ids: list[int]) -> Row:
        fed = self._fed
        row = self._feed.step(ids[0], len(fed)) if len(ids) == 1 else self._feed.run(ids, len(fed))
        fed += ids
        return row
