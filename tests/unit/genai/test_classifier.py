"""Image classifiers over a stage that counts: turns, batches, cancelling and closing, blocking and for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from genai import CancellationSource, ImageClassifier

CANCELLED = 0x800704C7
DARK, LIGHT = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)


class BrightnessStage:
    """Takes two pictures a run, and finds the second class where a picture is bright."""

    batch = 2
    runtime = None

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.aborts = 0
        self.is_held = False
        self.has_begun = threading.Event()
        self.may_go = threading.Event()
        self.is_closed = False

    def run(self, pictures: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        assert not self.is_closed
        self.runs.append(len(pictures))
        self.threads.add(threading.current_thread())
        self.has_begun.set()
        if self.is_held:
            assert self.may_go.wait(100), "the event loop was blocked"
        bright = pictures.reshape(len(pictures), -1).mean(axis=1) / 255
        return np.stack([1 - bright, bright], axis=1).astype(np.float32)

    def abort(self) -> None:
        self.aborts += 1
        self.may_go.set()

    def close(self) -> None:
        self.is_closed = True

    async def begun(self) -> None:
        """Wait, in the event loop, until a run is going on."""
        while not self.has_begun.is_set():
            await asyncio.sleep(0)


class Pixels:
    """Preprocessing that does nothing."""

    size = (2, 2)

    def array(self, runtime: Any, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        return pixels[None]


@pytest.fixture
def stage() -> BrightnessStage:
    return BrightnessStage()


@pytest.fixture
def model(stage: BrightnessStage) -> ImageClassifier:
    parts: Any = stage
    pixels: Any = Pixels()
    return ImageClassifier("light", "light.onnx", parts, pixels, ("dark", "light"), 2)


def test_aclassify_returns_what_classify_returns_and_computes_in_a_thread(
    model: ImageClassifier, stage: BrightnessStage
) -> None:
    async def run() -> tuple[str, list[str], list[Any], list[list[float]]]:
        async with model:
            one = await model.aclassify(LIGHT, top=1)
            several = await model.aclassify([DARK, LIGHT, DARK], top=1)
            none = await model.aclassify([])
            return one[0].label, [labels[0].label for labels in several], none, (await model.alogits([DARK])).tolist()

    assert asyncio.run(run()) == ("light", ["dark", "light", "dark"], [], [[1, 0]])
    assert stage.runs == [1, 2, 1, 1]
    assert threading.current_thread() not in stage.threads
    assert stage.is_closed


def test_the_event_loop_goes_on_while_pictures_are_classified(model: ImageClassifier, stage: BrightnessStage) -> None:
    stage.is_held = True

    async def run() -> str:
        task = asyncio.create_task(model.aclassify(LIGHT))
        await stage.begun()
        stage.may_go.set()
        return (await task)[0].label

    assert asyncio.run(run()) == "light"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_of_pictures_may_use_the_model_and_is_read_as_it_is_needed(
    model: ImageClassifier, stage: BrightnessStage, is_async: bool
) -> None:
    read_at: list[int] = []

    def bright_ones() -> Iterator[npt.NDArray[np.uint8]]:
        for picture in (DARK, LIGHT, LIGHT, LIGHT):
            read_at.append(len(stage.runs))
            if model.classify(picture, top=1)[0].label == "light":
                yield picture

    found = asyncio.run(model.aclassify(bright_ones())) if is_async else model.classify(bright_ones())
    assert [labels[0].label for labels in found] == ["light"] * 3
    assert read_at == [0, 1, 2, 4]  # the fourth one after a run with the second and the third


def test_cancelling_the_task_aborts_the_run(model: ImageClassifier, stage: BrightnessStage) -> None:
    stage.is_held = True

    async def run() -> str:
        task = asyncio.create_task(model.aclassify([DARK] * 5))
        await stage.begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stage.is_held = False
        return (await model.aclassify(LIGHT))[0].label

    assert asyncio.run(run()) == "light"
    assert (stage.runs, stage.aborts) == ([2, 1], 1)


def test_a_source_ends_a_call_between_two_runs(model: ImageClassifier, stage: BrightnessStage) -> None:
    source = CancellationSource()

    def pictures() -> Iterator[npt.NDArray[np.uint8]]:
        yield from (DARK, DARK)
        source.cancel()
        yield DARK

    with failing(CANCELLED):
        model.classify(pictures(), cancellation=source)
    assert stage.runs == [2]
    with failing(CANCELLED):
        asyncio.run(model.alogits(DARK, cancellation=source))


def test_a_busy_model_is_waited_for_as_long_as_told(model: ImageClassifier, stage: BrightnessStage) -> None:
    stage.is_held = True
    thread = threading.Thread(target=model.classify, args=(DARK,))
    thread.start()
    assert stage.has_begun.wait(100)
    with pytest.raises(TimeoutError, match="busy"):
        model.logits(DARK, timeout=0.01)
    stage.may_go.set()
    thread.join(100)


def test_closing_waits_for_the_run_of_another_thread(model: ImageClassifier, stage: BrightnessStage) -> None:
    stage.is_held = True
    calling = threading.Thread(target=model.classify, args=(DARK,))
    calling.start()
    assert stage.has_begun.wait(100)
    closing = threading.Thread(target=model.close)
    closing.start()
    while not repr(model).endswith("(closed)>"):
        pass
    assert not stage.is_closed
    stage.may_go.set()
    calling.join(100)
    closing.join(100)
    assert (stage.aborts, stage.is_closed) == (0, True)
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(model.aclassify(DARK))
