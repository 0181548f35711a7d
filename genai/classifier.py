"""Image classification: what is in a picture, by a network with one output per class.

`ImageClassifier` runs the graph and reads its output. Loading is `classifier_loading.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from winml_lite import Pipeline, Runtime, Stage, WinMLError

from .checks import index_value
from .closing import Closing
from .codes import INVALID_DATA
from .image_preprocessing import ImagePreprocessing
from .model_source import ENGINE_NAMES
from .picture import read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = npt.NDArray[np.float32]
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


@dataclass(frozen=True, slots=True)
class ClassifierStage:
    """A built pipeline of one classifier."""

    runtime: Runtime
    stage: Stage
    pipeline: Pipeline
    output: int
    batch: int | None
    """Pictures that a run takes; None is any number."""

    def run(self, pictures: npt.NDArray[Any]) -> Floats:
        """Return the output (pictures, classes) as float32."""
        count = len(pictures)
        if self.batch is not None and count < self.batch:  # a fixed batch is filled with what is thrown away again
            pictures = np.concatenate([pictures, np.zeros((self.batch - count, *pictures.shape[1:]), pictures.dtype)])
        with self.runtime.tensor_from_numpy(pictures) as tensor:
            self.stage.bind_input(0, tensor)
        self.pipeline.run()
        with self.stage.output(self.output) as output:
            values = output.to_numpy()
        if sum(size > 1 for size in values.shape[1:]) > 1:
            text = f"the model gives the shape {list(values.shape)}, not a number for each class"
            raise WinMLError(INVALID_DATA, "classify", text)
        return values.reshape(len(pictures), -1)[:count].astype(np.float32)

    def close(self) -> None:
        """Give the memory back."""
        self.stage.close()
        self.pipeline.close()
        self.runtime.close()


class ImageClassifier(Closing):
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
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        if self._stage is None:
            return f"<ImageClassifier {self.name!r} (closed)>"
        width, height = self.preprocessing.size
        facts = f"{self.class_count} classes, pictures of {width} x {height}"
        return f"<ImageClassifier {self.name!r} on {self.engine}, {facts}, {self.file}>"

    @overload  # a text is a list of texts, too: it counts as the path that it is
    def classify(self, image: ImageSource, *, top: int = 5) -> tuple[ImageLabel, ...]: ...  # type: ignore[overload-overlap]

    @overload
    def classify(self, image: Iterable[ImageSource], *, top: int = 5) -> list[tuple[ImageLabel, ...]]: ...

    def classify(
        self, image: ImageSource | Iterable[ImageSource], *, top: int = 5
    ) -> tuple[ImageLabel, ...] | list[tuple[ImageLabel, ...]]:
        """Return the `top` likeliest classes of a picture, the likeliest first; of several pictures a list.

        A picture is a path, the bytes of a file, a binary file object, a Pillow image, or an array uint8 (height,
        width) or (height, width, channels) in the order red, green, blue. Pictures of files and of Pillow are turned
        upright as their EXIF orientation says; what is transparent shows white. Several pictures share runs where the
        model takes them; they are read as they are needed.

        WinMLError: 0x80070002 for a missing file, 0x80070570 for one that is no picture, 0x8007007E where a file needs
        Pillow and it is not installed. TypeError or ValueError for what is no picture, RuntimeError after `close`.
        """
        count = min(index_value(top, "top", minimum=1), self.class_count)
        found = [self._labels(row, count) for row in self._rows(image)]
        return found[0] if is_picture(image) else found

    def logits(self, image: ImageSource | Iterable[ImageSource]) -> Floats:
        """Return what the graph gives for one picture, (classes,), or for several, (pictures, classes), as float32."""
        rows = list(self._rows(image))
        if is_picture(image):
            return rows[0]
        return np.stack(rows) if rows else np.zeros((0, self.class_count), np.float32)

    def preprocess(self, image: ImageSource) -> npt.NDArray[Any]:
        """Return the input of the graph for one picture, with a batch dimension of 1."""
        self._check_open()
        return self.preprocessing.array(self._runtime, read_picture(image))

    def close(self) -> None:
        """Give the model's memory back, when a call that is going on has ended. Again is fine."""
        with self._lock:
            stage, self._stage = self._stage, None
            if stage is not None:
                stage.close()

    def _rows(self, image: ImageSource | Iterable[ImageSource]) -> Iterator[Floats]:
        """Yield the output for each picture; only those of one run are held at a time."""
        self._check_open()
        if is_picture(image):
            pictures: Iterator[ImageSource] = iter((cast(ImageSource, image),))
        elif isinstance(image, Iterable):
            pictures = iter(cast("Iterable[ImageSource]", image))
        else:
            raise TypeError(f"image must be a picture or a list of pictures, not {type(image).__name__}")
        while chosen := [self.preprocess(picture) for picture in islice(pictures, self._batch)]:
            with self._lock:
                rows = self._check_open().run(np.concatenate(chosen))
            yield from rows

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
