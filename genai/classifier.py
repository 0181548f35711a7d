"""Image classification: what is in a picture, by a network with one output per class.

`ImageClassifier` reads pictures and says what the output of the graph means. Running that is `classifier_stage.py`,
loading `classifier_loading.py`, waiting for other calls `turn_calls.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .cancellation import CancellationLatch, CancellationSource
from .checks import index_value
from .classifier_stage import ClassifierStage, Floats
from .closing import AsyncClosing
from .codes import INVALID_DATA
from .image_preprocessing import ImagePreprocessing
from .model_source import ENGINE_NAMES
from .operation_failures import past_late_cancel
from .picture import read_picture
from .turn_calls import TurnCall, stopping
from .turnstile import Turnstile

if TYPE_CHECKING:
    from PIL.Image import Image

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Image | npt.NDArray[np.uint8]"
)
"""A picture: a file by its path, the bytes of one, a binary file object, a Pillow image, or an array uint8."""

_LARGEST_BATCH = 16
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """One class of a picture, and how sure the model is of it."""

    index: int
    """Number of the class."""
    label: str
    """Its name, or "class 281" where the model has none."""
    probability: float
    """0 to 1; those of all classes add up to 1."""


class ImageClassifier(AsyncClosing):
    """A loaded image classifier. Make it with `genai.load_classifier`; close it, or use it in `with`.

    `name` is what it was loaded as, `engine` `"ONNX Runtime"`, `file` the model file, `class_count` the number of
    classes, `labels` their names or None, `preprocessing` what is done to a picture. Any thread may call; calls take
    turns.
    """

    def __init__(
        self,
        name: str,
        file: str,
        stage: ClassifierStage,
        preprocessing: ImagePreprocessing,
        labels: tuple[str, ...] | None,
        class_count: int,
    ) -> None:
        self.name = name
        self.engine = ENGINE_NAMES["ort"]
        self.file = file
        self.labels = labels
        self.class_count = class_count
        self.preprocessing = preprocessing
        self._stage: ClassifierStage | None = stage
        self._runtime = stage.runtime
        self._batch = stage.batch or _LARGEST_BATCH
        self._turnstile = Turnstile()

    def __repr__(self) -> str:
        if self._stage is None:
            return f"<ImageClassifier {self.name!r} (closed)>"
        width, height = self.preprocessing.size
        facts = f"{self.class_count} classes, pictures of {width} x {height}"
        return f"<ImageClassifier {self.name!r} on {self.engine}, {facts}, {self.file}>"

    @overload  # a text is a list of texts, too: it counts as the path that it is
    def classify(  # type: ignore[overload-overlap]
        self,
        image: ImageSource,
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> tuple[ImageLabel, ...]: ...

    @overload
    def classify(
        self,
        image: Iterable[ImageSource],
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> list[tuple[ImageLabel, ...]]: ...

    def classify(
        self,
        image: ImageSource | Iterable[ImageSource],
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> tuple[ImageLabel, ...] | list[tuple[ImageLabel, ...]]:
        """Return the `top` likeliest classes of a picture, the likeliest first; of several pictures a list.

        image: a path, the bytes of a file, a binary file object, a Pillow image, or an array uint8 (height, width) or
            (height, width, channels) in the order red, green, blue; or several of them. Pictures of files and of
            Pillow are turned upright as their EXIF orientation says; what is transparent shows white. Several pictures
            share runs where the model takes them; they are read as they are needed.
        cancellation: a `CancellationSource` that ends the call; it is then 0x800704C7.
        timeout: seconds to wait for another call (None waits as long as it takes, TimeoutError after it).

        WinMLError: 0x80070002 for a missing file, 0x80070570 for one that is no picture, 0x8007007E where a file needs
        Pillow and it is not installed. TypeError or ValueError for what is no picture, RuntimeError after `close`.
        """
        count = self._count(top)
        found = [self._labels(row, count) for row in self._rows(image, self._call(cancellation, timeout))]
        return found[0] if is_picture(image) else found

    @overload
    async def aclassify(  # type: ignore[overload-overlap]
        self,
        image: ImageSource,
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> tuple[ImageLabel, ...]: ...

    @overload
    async def aclassify(
        self,
        image: Iterable[ImageSource],
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> list[tuple[ImageLabel, ...]]: ...

    async def aclassify(
        self,
        image: ImageSource | Iterable[ImageSource],
        *,
        top: int = 5,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> tuple[ImageLabel, ...] | list[tuple[ImageLabel, ...]]:
        """Do as `classify` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model.

        Of several pictures, those of a run are taken from the list in the event loop, and read in a thread.
        """
        count = self._count(top)
        found = [self._labels(row, count) for row in await self._arows(image, self._call(cancellation, timeout))]
        return found[0] if is_picture(image) else found

    def logits(
        self,
        image: ImageSource | Iterable[ImageSource],
        *,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Floats:
        """Return what the graph gives for one picture, (classes,), or for several, (pictures, classes), as float32."""
        return self._stacked(image, list(self._rows(image, self._call(cancellation, timeout))))

    async def alogits(
        self,
        image: ImageSource | Iterable[ImageSource],
        *,
        cancellation: CancellationSource | None = None,
        timeout: float | None = None,
    ) -> Floats:
        """Do as `logits` for asyncio, as `aclassify` does it."""
        return self._stacked(image, await self._arows(image, self._call(cancellation, timeout)))

    def preprocess(self, image: ImageSource) -> npt.NDArray[Any]:
        """Return the input of the graph for one picture, with a batch dimension of 1."""
        self._check_open()
        return self.preprocessing.array(self._runtime, read_picture(image))

    def close(self) -> None:
        """Give the model's memory back, when a call that is going on has ended. Again is fine.

        A blocking call is waited for, an asynchronous one stops early and is 0x800704C7.
        Inside a running event loop it does not wait: the memory then goes a moment later, and `aclose` waits for that.
        """
        stage, self._stage = self._stage, None
        self._turnstile.close(lambda: None if stage is None else stage.close())

    def _call(self, cancellation: CancellationSource | None, timeout: float | None) -> TurnCall[Floats]:
        self._check_open()
        return TurnCall(self._turnstile, self._check_open, timeout, cancellation)

    def _rows(self, image: ImageSource | Iterable[ImageSource], call: TurnCall[Floats]) -> Iterator[Floats]:
        """Yield the output for each picture; only those of one run are held at a time."""
        pictures = _pictures(image)
        while chosen := [self.preprocess(picture) for picture in islice(pictures, self._batch)]:
            yield from call.run(partial(self._run, np.concatenate(chosen)), is_waited_for=True)

    async def _arows(self, image: ImageSource | Iterable[ImageSource], call: TurnCall[Floats]) -> list[Floats]:
        """Return the output for each picture; those of one run are read in the thread that runs it."""
        rows: list[Floats] = []
        pictures = _pictures(image)
        while chosen := list(islice(pictures, self._batch)):
            rows.extend(await call.run_async(partial(self._read_and_run, chosen)))
        return rows

    def _read_and_run(self, pictures: list[ImageSource], latch: CancellationLatch) -> Floats:
        return self._run(np.concatenate([self.preprocess(picture) for picture in pictures]), latch)

    def _run(self, pictures: npt.NDArray[Any], latch: CancellationLatch) -> Floats:
        """Return the output for some pictures, when it is the turn of the call."""
        stage = self._check_open()
        with stopping(latch, stage.abort, "classify"):
            return past_late_cancel(partial(stage.run, pictures), latch)

    def _stacked(self, image: ImageSource | Iterable[ImageSource], rows: list[Floats]) -> Floats:
        if is_picture(image):
            return rows[0]
        return np.stack(rows) if rows else np.zeros((0, self.class_count), np.float32)

    def _count(self, top: int) -> int:
        return min(index_value(top, "top", minimum=1), self.class_count)

    def _labels(self, row: Floats, count: int) -> tuple[ImageLabel, ...]:
        probabilities = as_probabilities(row)
        best = np.argsort(-probabilities, kind="stable")[:count].tolist()
        return tuple(ImageLabel(index, self._label(index), float(probabilities[index])) for index in best)

    def _label(self, index: int) -> str:
        return f"class {index}" if self.labels is None else self.labels[index]

    def _check_open(self) -> ClassifierStage:
        if self._stage is None:
            raise RuntimeError("ImageClassifier is closed")
        return self._stage


def _pictures(image: ImageSource | Iterable[ImageSource]) -> Iterator[ImageSource]:
    if is_picture(image):
        return iter((cast(ImageSource, image),))
    if isinstance(image, Iterable):
        return iter(cast("Iterable[ImageSource]", image))
    raise TypeError(f"image must be a picture or a list of pictures, not {type(image).__name__}")


def is_picture(value: object) -> bool:
    """Whether `value` is one picture and no list of them."""
    if isinstance(value, str | os.PathLike | bytes | bytearray | memoryview | np.ndarray) or hasattr(value, "read"):
        return True
    return all(hasattr(value, name) for name in ("convert", "size", "tobytes"))  # a Pillow image


def as_probabilities(row: Floats) -> Floats:
    """Return the softmax of logits; a row that is one already (no number below 0, sum 1) stays as it is.

    WinMLError 0x8007000D for a row with NaN or infinity.
    """
    if not np.isfinite(row.max()):
        raise WinMLError(INVALID_DATA, "classify", "the model gave NaN or infinity instead of numbers")
    if row.min() >= 0 and abs(float(row.sum(dtype=np.float64)) - 1) <= _SUM_TOLERANCE:
        return row
    powers = np.exp(row - row.max())
    probabilities: Floats = powers / powers.sum()
    return probabilities
