"""What a model has consumed of a sequence, and making it forget (genai §6.3).

The stage counts positions, the session tokens; they are the same but for embedding rows. Not here: what may be done
when (`sequence.py`), running the model (`evaluation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .composition import Composition
from .segmented_prompt import NOTHING, SegmentedPrompt, Start
from .speculation import Speculation, step_rows


class EvaluatedSequence:
    """Prompt and emitted tokens of one composition, and how far the model has consumed them.

    `retained` is prompt plus emitted tokens, `evaluated` how many of them the model has consumed; `segmented` is the
    prompt where embedding rows lie between them.
    """

    def __init__(self, composition: Composition) -> None:
        self.composition = composition
        self.feed = composition.feed
        self.retained: list[int] = []
        self.evaluated = 0
        self.segmented: SegmentedPrompt | None = None
        self.knows_rows = False
        """Whether rows that come again as the same objects are the same numbers: whoever makes them never changes
        them. Else what is in a sequence with rows is not used again."""
        self.speculation: Speculation | None = composition.speculation

    @property
    def capacity(self) -> int:
        """Most tokens that prompt and output may have together; 0 = unbounded."""
        return self.composition.capacity

    @property
    def row_cell_count(self) -> int:
        """What embedding rows of the prompt take of the capacity."""
        return self.segmented.cell_count if self.segmented is not None else 0

    def consumed(self) -> int:
        """How many tokens the stage has consumed; more or fewer than `evaluated` when others have moved it."""
        position = self.composition.position
        return position if self.segmented is None else self.segmented.token_count_at(position)

    def shared_start(self, prompt: list[int], segmented: SegmentedPrompt | None = None) -> Start:
        """What the model has consumed of a prompt already; at least one token is left to evaluate. `segmented` is the
        prompt if it has rows.
        """
        if not self.composition.keeps_sequence:
            return NOTHING
        count = self._shared_prefix(prompt)
        if self.segmented is None and segmented is None:
            return Start(count, count)
        if not self.knows_rows:
            return NOTHING
        return (segmented or SegmentedPrompt(())).shared_start(self.segmented, count, self.composition.position)

    def _shared_prefix(self, prompt: list[int]) -> int:
        """Leading tokens of `prompt` that the model has consumed."""
        limit = min(self.evaluated, len(prompt) - 1)
        for index, (old, new) in enumerate(zip(self.retained[:limit], prompt, strict=False)):
            if old != new:
                return index
        return limit

    def step_rows(self, token_ids: Sequence[int], position: int) -> npt.NDArray[np.float32]:
        """Evaluate `token_ids` after `position` earlier tokens; return the logits after each."""
        return step_rows(self.composition.state_owner, self.composition.feed, token_ids, position)

    def synchronize(self) -> None:
        """Take the position from the stage: an interrupt may fall between a run and its book-keeping, and a state that
        cannot take back a broken run starts again at 0.
        """
        count = self.consumed()
        if count <= len(self.retained):
            self.evaluated = count

    def step_back(self) -> None:
        """Un-consume the last token, to get its row once more."""
        if not self._rewind(self.composition.position - 1):
            self.composition.reset()
        self.synchronize()

    def take_back(self) -> None:
        """Have the model forget what it has consumed beyond `evaluated` tokens."""
        position = self.composition.position
        if position > self.evaluated and not self._rewind(self.evaluated):
            self.composition.reset()
            position = 0
        self.evaluated = min(self.evaluated, position)

    def keep(self, start: Start) -> Start:
        """Have the model forget everything behind the beginning of a sequence, or everything when it cannot rewind;
        return what it keeps.
        """
        composition = self.composition
        is_there = composition.keeps_sequence and start.position == composition.position
        if is_there or (start.position and self._rewind(start.position)):
            self.evaluated = start.tokens
            return start
        self.forget()
        return NOTHING

    def forget(self) -> None:
        """Have the model forget everything; `retained` stays."""
        self.composition.reset()
        self.evaluated = 0

    def _rewind(self, position: int) -> bool:
        try:
            self.composition.rewind(position)
        except WinMLError:
            return False
        return True
