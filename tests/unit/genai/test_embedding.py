"""Embedding models over an encoder that counts letters: turns, cancelling and closing, blocking and for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from genai import CancellationSource, EmbeddingModel
from genai.cancellation import CancellationLatch
from genai.turn_calls import check_not_canceled

CANCELLED = 0x800704C7
Rows = npt.NDArray[np.float32]


class LetterEncoder:
    """Gives each text its number of tokens, and 1."""

    limit = 8
    dimension = 2
    pooling = "mean"

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.aborts = 0
        self.is_held = False
        self.has_begun = threading.Event()
        self.may_go = threading.Event()
        self.is_closed = False

    def encode(self, texts: Sequence[list[int]], pooling: str | None, latch: CancellationLatch) -> list[Rows]:
        self.threads.append(threading.current_thread())
        self.has_begun.set()
        if self.is_held:
            assert self.may_go.wait(100), "the event loop was blocked"
        check_not_canceled(latch, "embed")
        assert not self.is_closed
        return [np.array([len(text), 1], np.float32) for text in texts]

    def abort(self) -> None:
        self.aborts += 1
        self.may_go.set()

    def close(self) -> None:
        self.is_closed = True

    async def begun(self) -> None:
        """Wait, in the event loop, until a run is going on."""
        while not self.has_begun.is_set():
            await asyncio.sleep(0)


class Letters:
    """A token for each letter."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def close(self) -> None:
        pass


@pytest.fixture
def encoder() -> LetterEncoder:
    return LetterEncoder()


@pytest.fixture
def model(encoder: LetterEncoder) -> EmbeddingModel:
    parts: Any = encoder
    tokenizer: Any = Letters()
    return EmbeddingModel("letters", "llama.cpp", "letters.gguf", parts, tokenizer)


def test_aembed_returns_what_embed_returns_and_computes_in_a_thread(
    model: EmbeddingModel, encoder: LetterEncoder
) -> None:
    async def run() -> tuple[Rows, Rows, Rows]:
        async with model:
            several = await model.aembed(["abc", [1, 2]], normalize=False)
            none = await model.aembed([])
            return several, none, await model.aembed("abcd", normalize=False)

    several, none, one = asyncio.run(run())
    assert several.tolist() == [[3, 1], [2, 1]]
    assert (none.shape, one.tolist()) == ((0, 2), [4, 1])
    assert threading.current_thread() not in encoder.threads
    assert encoder.is_closed


def test_the_event_loop_goes_on_while_texts_are_embedded(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    encoder.is_held = True

    async def run() -> Rows:
        task = asyncio.create_task(model.aembed("abc", normalize=False))
        await encoder.begun()
        encoder.may_go.set()
        return await task

    assert asyncio.run(run()).tolist() == [3, 1]


def test_arguments_are_checked_before_the_turn(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match="texts must be a str or a list of texts"):
        asyncio.run(model.aembed(wrong))
    with failing(0x8007007A):
        asyncio.run(model.aembed("a long text"))
    assert asyncio.run(model.aembed("a long text", truncate=True, normalize=False)).tolist() == [8, 1]
    assert len(encoder.threads) == 1


def test_cancelling_the_task_aborts_the_run(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    encoder.is_held = True

    async def run() -> Rows:
        task = asyncio.create_task(model.aembed("abc"))
        await encoder.begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        encoder.is_held = False
        return await model.aembed("ab", normalize=False)

    assert asyncio.run(run()).tolist() == [2, 1]
    assert encoder.aborts == 1


def test_a_source_ends_a_call(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    source = CancellationSource()
    source.cancel()
    with failing(CANCELLED):
        model.embed("abc", cancellation=source)
    with failing(CANCELLED):
        asyncio.run(model.aembed("abc", cancellation=source))
    assert encoder.threads == []


def test_a_busy_model_is_waited_for_as_long_as_told(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    encoder.is_held = True
    thread = threading.Thread(target=model.embed, args=("abc",))
    thread.start()
    assert encoder.has_begun.wait(100)
    with pytest.raises(TimeoutError, match="busy"):
        model.embed("abc", timeout=0.01)
    encoder.may_go.set()
    thread.join(100)


def test_closing_waits_for_the_call_of_another_thread(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    encoder.is_held = True
    rows: list[object] = []
    calling = threading.Thread(target=lambda: rows.append(model.embed("abc", normalize=False).tolist()))
    calling.start()
    assert encoder.has_begun.wait(100)
    closing = threading.Thread(target=model.close)
    closing.start()
    while not repr(model).endswith("(closed)>"):
        pass
    assert not encoder.is_closed
    encoder.may_go.set()
    calling.join(100)
    closing.join(100)
    assert (rows, encoder.aborts, encoder.is_closed) == ([[3, 1]], 0, True)


def test_closing_ends_an_asynchronous_call(model: EmbeddingModel, encoder: LetterEncoder) -> None:
    encoder.is_held = True

    async def run() -> None:
        task = asyncio.create_task(model.aembed("abc"))
        await encoder.begun()
        model.close()
        with failing(CANCELLED):
            await task
        await model.aclose()

    asyncio.run(run())
    assert (encoder.aborts, encoder.is_closed) == (1, True)
