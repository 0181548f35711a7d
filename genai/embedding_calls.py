"""Embeddings of texts by a loaded model that generates: `LanguageModel.embed`, and its twin for asyncio.

Not here: the models that were made to embed, and the work itself (`embedding.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, overload

from winml_lite import NotSupportedError

from .cancellation import CancellationLatch, CancellationSource
from .closing import AsyncClosing
from .codes import NOT_SUPPORTED
from .turn_calls import TurnCall, check_not_canceled
from .turnstile import Turnstile

if TYPE_CHECKING:
    from .embedding import EmbeddingModel, Pooling, Rows, TextPooling, Texts


class EmbeddingCalls(AsyncClosing):
    """The calls of a `LanguageModel` that return vectors. They take turns among themselves, beside a generation."""

    file: str
    _make_embedder: Callable[[], EmbeddingModel] | None
    _embedder: EmbeddingModel | None
    _embedder_turnstile: Turnstile
    """Lets one call at a time make the embedder."""
    _closes: list[Callable[[], object]]

    @abstractmethod
    def _open(self) -> object:
        """Return what runs the model. RuntimeError when the model is closed."""

    @overload
    def embed(
        self,
        texts: Texts,
        *,
        pooling: TextPooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows: ...

    @overload
    def embed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows | list[Rows]: ...

    def embed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows | list[Rows]:
        """Return embeddings of texts, float32 (texts, dimension); (dimension,) for a single `str`.

        What a generative model makes of a text is a rough embedding; `genai.load_embedding` loads models that were
        trained for it, and tells the arguments. The first call makes a second context beside that of generation; the
        weights are shared, and no generation is waited for. NotSupportedError 0x80070032 for an ONNX decoder, whose
        graph gives logits only.
        """
        self._open()
        embedder = self._embedder
        if embedder is None:
            call: TurnCall[EmbeddingModel] = TurnCall(self._embedder_turnstile, self._open, timeout, cancellation)
            embedder = call.run(self._embedding_model)
        return embedder.embed(
            texts,
            pooling=pooling,
            normalize=normalize,
            truncate=truncate,
            cancellation=cancellation,
            timeout=timeout,
        )

    @overload
    async def aembed(
        self,
        texts: Texts,
        *,
        pooling: TextPooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows: ...

    @overload
    async def aembed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows | list[Rows]: ...

    async def aembed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Rows | list[Rows]:
        """Do as `embed` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model."""
        self._open()
        embedder = self._embedder
        if embedder is None:
            call: TurnCall[EmbeddingModel] = TurnCall(self._embedder_turnstile, self._open, timeout, cancellation)
            embedder = await call.run_async(self._embedding_model)
        return await embedder.aembed(
            texts,
            pooling=pooling,
            normalize=normalize,
            truncate=truncate,
            cancellation=cancellation,
            timeout=timeout,
        )

    def _embedding_model(self, latch: CancellationLatch) -> EmbeddingModel:
        """Return what embeds, made at the first use; one call at a time."""
        check_not_canceled(latch, "embed")
        embedder = self._embedder
        if embedder is None:
            if self._make_embedder is None:
                text = f"{self.file} gives logits only; genai.load_embedding loads models that embed texts"
                raise NotSupportedError(NOT_SUPPORTED, "embed", text)
            embedder = self._make_embedder()
            self._closes.append(embedder.close)
            self._embedder = embedder
            try:
                self._open()  # close() in another thread has seen it by now, or is seen here
            except RuntimeError:
                embedder.close()
                raise
        return embedder
