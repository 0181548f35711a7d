"""Embeddings of texts (genai §8): one vector for each text, near to those of texts that mean the same.

`EmbeddingModel` stands on an encoder of one of the two engines: `gguf_encoder.py`, `onnx_encoder.py`. Loading is
`embedding_loading.py`, waiting for other calls `turn_calls.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .cancellation import CancellationLatch, CancellationSource
from .checks import text_or_token_ids
from .closing import AsyncClosing
from .codes import INSUFFICIENT_BUFFER
from .tokenizer import Tokenizer
from .turn_calls import TurnCall, stopping
from .turnstile import Turnstile

TextPooling: TypeAlias = Literal["mean", "cls", "last", "max"]
"""How the vectors of tokens become that of a text: their mean, that of the first or of the last token, the largest
value of each number (ONNX models only)."""
Pooling: TypeAlias = TextPooling | Literal["none"]
"""The same, and `"none"`, which leaves the vectors of the tokens as they are."""
Rows: TypeAlias = npt.NDArray[np.float32]
Texts: TypeAlias = str | Iterable[str | Iterable[int]]

POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last", "max", "none")


class Encoder(Protocol):
    """One engine's side of an embedding model."""

    @property
    def limit(self) -> int:
        """Most tokens of one text, special ones included."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    def pooling(self) -> TextPooling:
        """What the model was made for."""

    def encode(self, texts: Sequence[list[int]], pooling: Pooling | None, latch: CancellationLatch) -> list[Rows]:
        """Return an array for each text: (dimension,), or (tokens, dimension) with pooling `"none"`; None is the
        model's own. 0x800704C7 where the latch is set between two runs.
        """

    def abort(self) -> None:
        """Have an `encode` on another thread end early; it then fails with 0x800704C7."""

    def close(self) -> None:
        """Give the memory back."""


class EmbeddingModel(AsyncClosing):
    """A loaded model that embeds texts. Make it with `genai.load_embedding`; close it, or use it in `with`.

    `name` is what it was loaded as, `engine` `"llama.cpp"` or `"ONNX Runtime"`, `file` the model file, `dimension` the
    length of a vector, `max_tokens` the most tokens of one text, `pooling` what the model was made for. Any thread may
    call; calls take turns.
    """

    def __init__(self, name: str, engine: str, file: str, encoder: Encoder, tokenizer: Tokenizer) -> None:
        self.name = name
        self.engine = engine
        self.file = file
        self.dimension = encoder.dimension
        self.max_tokens = encoder.limit
        self.pooling: TextPooling = encoder.pooling
        self._encoder: Encoder | None = encoder
        self._tokenizer = tokenizer
        self._turnstile = Turnstile()

    def __repr__(self) -> str:
        if self._encoder is None:
            return f"<EmbeddingModel {self.name!r} (closed)>"
        facts = f"{self.dimension} numbers, {self.max_tokens} tokens, pooling {self.pooling}"
        return f"<EmbeddingModel {self.name!r} on {self.engine}, {facts}, {self.file}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        self._check_open()
        return self._tokenizer

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
        """Return embeddings of texts (or token ids), float32 (texts, dimension); (dimension,) for a single `str`.

        Texts are encoded with the special tokens of the model, and share batches.

        pooling: "mean", "cls", "last", "max" (ONNX models), "none", or None, the model's own. With "none" the result
            is a list of arrays (tokens, dimension), or one such array.
        normalize: scale each vector to length 1, so that a scalar product is the cosine of two vectors.
        truncate: shorten texts of more than `max_tokens` tokens; otherwise they are 0x8007007A.
        cancellation: a `CancellationSource` that ends the call; it is then 0x800704C7.
        timeout: seconds to wait for another call (None waits as long as it takes, TimeoutError after it).
        """
        given = self._request(texts, pooling)
        call: TurnCall[list[Rows]] = TurnCall(self._turnstile, self._check_open, timeout, cancellation)
        ids = self._all_token_ids(given, truncate)
        rows = call.run(lambda latch: self._encode(ids, pooling, latch), is_waited_for=True)
        return self._finished(texts, pooling, rows, normalize)

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
        given = self._request(texts, pooling)
        call: TurnCall[Rows | list[Rows]] = TurnCall(self._turnstile, self._check_open, timeout, cancellation)

        def work(latch: CancellationLatch) -> Rows | list[Rows]:
            rows = self._encode(self._all_token_ids(given, truncate), pooling, latch)
            return self._finished(texts, pooling, rows, normalize)

        return await call.run_async(work)

    def _request(self, texts: Texts, pooling: Pooling | None) -> list[str | list[int]]:
        """Check what a caller gave; return the texts, or their token ids."""
        self._check_open()
        if not isinstance(texts, Iterable):
            raise TypeError(f"texts must be a str or a list of texts, not {type(texts).__name__}")
        if pooling is not None and pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, or None, not {pooling!r}")
        return [text_or_token_ids(item, "texts") for item in ([texts] if isinstance(texts, str) else texts)]

    def _encode(self, ids: list[list[int]], pooling: Pooling | None, latch: CancellationLatch) -> list[Rows]:
        """Run the model on token ids, when it is the turn of the call."""
        encoder = self._check_open()  # closed by now, perhaps
        with stopping(latch, encoder.abort, "embed"):
            return encoder.encode(ids, pooling, latch) if ids else []

    def _finished(self, texts: Texts, pooling: Pooling | None, rows: list[Rows], normalize: bool) -> Rows | list[Rows]:
        """Return the vectors in the form that goes with `texts`."""
        if normalize:
            rows = [_normalized(row) for row in rows]
        if isinstance(texts, str):
            return rows[0]
        if pooling == "none":
            return rows
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def _all_token_ids(self, texts: list[str | list[int]], truncate: bool) -> list[list[int]]:
        return [self._token_ids(index, text, truncate) for index, text in enumerate(texts)]

    def _token_ids(self, index: int, text: str | list[int], truncate: bool) -> list[int]:
        ids = self._tokenizer.encode(text) if isinstance(text, str) else text
        if not ids:
            raise ValueError(f"text {index} has no tokens")
        if len(ids) <= self.max_tokens:
            return ids
        if truncate:
            return self._shortened(text, ids)
        raise WinMLError(
            INSUFFICIENT_BUFFER,
            "embed",
            f"text {index} has {len(ids)} tokens, {self.name} takes {self.max_tokens}; "
            "split it, or leave its end out with truncate=True",
        )

    def _shortened(self, text: str | list[int], ids: list[int]) -> list[int]:
        """Leave the end of a text out, but not the special tokens behind it."""
        tail: list[int] = []
        if isinstance(text, str):
            plain = self._tokenizer.encode(text, add_special_tokens=False)
            front = next((n for n in range(len(ids) - len(plain) + 1) if ids[n : n + len(plain)] == plain), 0)
            tail = ids[front + len(plain) :]
        return ids[: self.max_tokens - len(tail)] + tail

    def close(self) -> None:
        """Give the model's memory back, when a call that is going on has ended. Again is fine.

        A blocking call is waited for, an asynchronous one stops early and is 0x800704C7.
        Inside a running event loop it does not wait: the memory then goes a moment later, and `aclose` waits for that.
        """
        encoder, self._encoder = self._encoder, None
        self._turnstile.close(lambda: self._free(encoder))

    def _free(self, encoder: Encoder | None) -> None:
        if encoder is not None:
            encoder.close()
            self._tokenizer.close()

    def _check_open(self) -> Encoder:
        if self._encoder is None:
            raise RuntimeError("EmbeddingModel is closed")
        return self._encoder


def _normalized(rows: Rows) -> Rows:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    scaled: Rows = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled
