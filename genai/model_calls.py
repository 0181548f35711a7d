"""What a loaded model does beside generating: saving its sequence, embeddings, scores, perplexity.

The work is in modules that are imported when it is asked for. Not here: generating (`language_model.py`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from winml_lite import NotSupportedError

from .cancellation import CancellationLatch, CancellationSource
from .checks import index_value
from .closing import AsyncClosing
from .codes import NOT_SUPPORTED
from .turn_calls import TurnCall
from .turnstile import Turnstile

if TYPE_CHECKING:
    from .embedding import EmbeddingModel, Pooling, Rows, TextPooling, Texts
    from .perplexity import Definition, Perplexity, Progress
    from .scoring import ContinuationScore
    from .sequence import SequenceCore

Result = TypeVar("Result")


class ModelCalls(AsyncClosing):
    """The calls of a `LanguageModel` that return something else than text. They take their turn like generations."""

    name: str
    file: str
    _turnstile: Turnstile
    _make_embedder: Callable[[], EmbeddingModel] | None
    _embedder: EmbeddingModel | None
    _closes: list[Callable[[], object]]

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
        from .scoring import score_continuations

        given = _text(prompt, "prompt")
        if isinstance(continuations, str | bytes):
            raise TypeError(f"continuations must be a list of texts, not one: [{continuations!r}]")
        ends = [_text(continuation, "a continuation") for continuation in continuations]
        if not all(ends):
            raise ValueError("a continuation must not be empty")
        return self._take_turn(lambda core, latch: score_continuations(core, given, ends, latch), timeout, cancellation)

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
        from .perplexity import perplexity_of, windows_of

        given = _text(text, "text")
        window, stride = (None if n is None else index_value(n, "window or stride") for n in (window, stride))

        def work(core: SequenceCore, latch: CancellationLatch) -> Perplexity:
            windows = windows_of(window, stride, definition, core.capacity)
            tokens = core.tokenizer.encode(given) if isinstance(given, str) else given
            return perplexity_of(core, tokens, windows, latch, progress)

        return self._take_turn(work, timeout, cancellation)

    @overload
    def embed(
        self, texts: Texts, *, pooling: TextPooling | None = None, normalize: bool = True, truncate: bool = False
    ) -> Rows: ...

    @overload
    def embed(
        self, texts: Texts, *, pooling: Literal["none"], normalize: bool = True, truncate: bool = False
    ) -> Rows | list[Rows]: ...

    def embed(
        self, texts: Texts, *, pooling: Pooling | None = None, normalize: bool = True, truncate: bool = False
    ) -> Rows | list[Rows]:
        """Return embeddings of texts, float32 (texts, dimension); (dimension,) for a single `str`.

        What a generative model makes of a text is a rough embedding; `genai.load_embedding` loads models that were
        trained for it, and tells the arguments. The first call makes a second context beside that of generation; the
        weights are shared. NotSupportedError 0x80070032 for an ONNX decoder, whose graph gives logits only.
        """
        embedder = self._embedding_model()
        if pooling == "none":
            return embedder.embed(texts, pooling="none", normalize=normalize, truncate=truncate)
        return embedder.embed(texts, pooling=pooling, normalize=normalize, truncate=truncate)

    def _embedding_model(self) -> EmbeddingModel:
        self._open()
        embedder = self._embedder
        if embedder is None:
            if self._make_embedder is None:
                text = f"{self.file} gives logits only; genai.load_embedding loads models that embed texts"
                raise NotSupportedError(NOT_SUPPORTED, "embed", text)
            embedder = self._embedder = self._make_embedder()
            self._closes.append(embedder.close)
        return embedder

    def _take_turn(
        self,
        work: Callable[[SequenceCore, CancellationLatch], Result],
        timeout: float | None,
        cancellation: CancellationSource | None = None,
    ) -> Result:
        """Return `work(core, latch)`, done when it is this call's turn; `close` in another thread sets the latch."""

        def begun(latch: CancellationLatch) -> Result:
            core = self._open()
            core.recover()
            return work(core, latch)

        call: TurnCall[Result] = TurnCall(self._turnstile, self._open, timeout, cancellation)
        return call.run(begun)


def _text(value: Any, what: str) -> str | list[int]:
    """Check a text, or token ids."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise TypeError(f"{what} must be str or token ids, not {type(value).__name__}")
    return [index_value(token_id, "token id") for token_id in value]
