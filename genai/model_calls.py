"""What a loaded model does beside generating: saving its sequence, scores, perplexity.

The work is in modules that are imported when it is asked for. Not here: generating (`language_model.py`), embeddings
(`embedding_calls.py`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from .cancellation import CancellationLatch, CancellationSource
from .checks import index_value, text_or_token_ids
from .closing import AsyncClosing
from .turn_calls import TurnCall
from .turnstile import Turnstile

if TYPE_CHECKING:
    from .perplexity import Definition, Perplexity, Progress
    from .scoring import ContinuationScore
    from .sequence import SequenceCore

Result = TypeVar("Result")
SequenceWork: TypeAlias = "Callable[[SequenceCore, CancellationLatch], Result]"
"""What a call does in its turn with what runs the model."""


class ModelCalls(AsyncClosing):
    """The calls of a `LanguageModel` that return neither text nor vectors. They take their turn like generations."""

    _turnstile: Turnstile

    @abstractmethod
    def _open(self) -> SequenceCore:
        """Return what runs the model. RuntimeError when the model is closed."""

    def save_state(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        """Write the sequence of the last call into a file: a later process that loads it begins where this one is.

        It is what the model keeps of the tokens, and grows with them. A chat keeps its history itself: save that too
        (`chat.messages`). `timeout`: seconds to wait for another call. 0x8007139F when there is no sequence.
        """
        from .saved_state import save_sequence

        self._take_turn(lambda core, latch: save_sequence(core, path), timeout)

    def load_state(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        """Take over a sequence that `save_state` wrote: what begins like it costs its new tokens only.

        The file must come from the same model files and adapters (0x8007000D), and fit the context length
        (0x8007007A); a damaged one is 0x80070570. Load only files you trust.
        """
        from .saved_state import load_sequence

        self._take_turn(lambda core, latch: load_sequence(core, path), timeout)

    def score(
        self,
        prompt: str | Iterable[int],
        continuations: Iterable[str | Iterable[int]],
        *,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> list[ContinuationScore]:
        """Return how likely each of `continuations` is after `prompt`: log probabilities in nats, per token and summed.

        Prompt and continuations are texts or token ids. A text is encoded together with its prompt, as the model would
        read it, so a word usually begins with its space: `score("The sky is", [" blue", " green"])`. The prompt is
        evaluated once. 0x8007007A for what does not fit the context, 0x800704C7 after a cancel.
        """
        return self._take_turn(_scoring(prompt, continuations), timeout, cancellation)

    async def ascore(
        self,
        prompt: str | Iterable[int],
        continuations: Iterable[str | Iterable[int]],
        *,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> list[ContinuationScore]:
        """Do as `score` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model."""
        return await self._await_turn(_scoring(prompt, continuations), timeout, cancellation)

    def perplexity(
        self,
        text: str | Iterable[int],
        *,
        window: int | None = None,
        stride: int | None = None,
        definition: Definition = "sliding",
        progress: Progress | None = None,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Perplexity:
        """Return how well the model predicts a text (or token ids, taken as they are).

        `window` is the most tokens that the model sees at once (default 512, or the context length), `stride` how far
        each window lies behind the one before (default half a window): a smaller stride gives every token more to go
        by, and takes longer. With `definition="llama.cpp"` the result is that of llama.cpp's perplexity tool.
        `progress` is called with the windows done and of all.
        """
        work = _measuring(text, (window, stride), definition, progress)
        return self._take_turn(work, timeout, cancellation)

    async def aperplexity(
        self,
        text: str | Iterable[int],
        *,
        window: int | None = None,
        stride: int | None = None,
        definition: Definition = "sliding",
        progress: Progress | None = None,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Perplexity:
        """Do as `perplexity` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model.

        `progress` is called in the thread that computes.
        """
        work = _measuring(text, (window, stride), definition, progress)
        return await self._await_turn(work, timeout, cancellation)

    def _take_turn(
        self,
        work: SequenceWork[Result],
        timeout: float | None,
        cancellation: CancellationSource | None = None,
    ) -> Result:
        """Return `work(core, latch)`, done when it is this call's turn; `close` in another thread sets the latch."""
        call: TurnCall[Result] = TurnCall(self._turnstile, self._open, timeout, cancellation)
        return call.run(self._begun(work))

    async def _await_turn(
        self, work: SequenceWork[Result], timeout: float | None, cancellation: CancellationSource | None
    ) -> Result:
        """Do as `_take_turn` for asyncio."""
        call: TurnCall[Result] = TurnCall(self._turnstile, self._open, timeout, cancellation)
        return await call.run_async(self._begun(work))

    def _begun(self, work: SequenceWork[Result]) -> Callable[[CancellationLatch], Result]:
        """Return what a turn does for the work."""

        def begun(latch: CancellationLatch) -> Result:
            core = self._open()
            core.recover()
            return work(core, latch)

        return begun


def _scoring(
    prompt: str | Iterable[int], continuations: Iterable[str | Iterable[int]]
) -> SequenceWork[list[ContinuationScore]]:
    """Check what is to be scored; return the work."""
    from .scoring import score_continuations

    given = text_or_token_ids(prompt, "prompt")
    if isinstance(continuations, str | bytes):
        raise TypeError(f"continuations must be a list of texts, not one: [{continuations!r}]")
    ends = [text_or_token_ids(continuation, "a continuation") for continuation in continuations]
    if not all(ends):
        raise ValueError("a continuation must not be empty")
    return lambda core, latch: score_continuations(core, given, ends, latch)


def _measuring(
    text: str | Iterable[int],
    sizes: tuple[int | None, int | None],
    definition: Definition,
    progress: Progress | None,
) -> SequenceWork[Perplexity]:
    """Check what is to be measured, with which window and stride; return the work."""
    from .perplexity import perplexity_of, windows_of

    given = text_or_token_ids(text, "text")
    window, stride = (None if size is None else index_value(size, "window or stride") for size in sizes)

    def work(core: SequenceCore, latch: CancellationLatch) -> Perplexity:
        windows = windows_of(window, stride, definition, core.capacity)
        tokens = core.tokenizer.encode(given) if isinstance(given, str) else given
        return perplexity_of(core, tokens, windows, latch, progress)

    return work
