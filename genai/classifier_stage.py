"""The graph of an image classifier at work: a batch of pictures in, a row of numbers for each out.

Not here: reading pictures, labels and whose turn it is (`classifier.py`), building (`classifier_loading.py`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import Pipeline, Runtime, Stage, WinMLError

from .codes import INVALID_DATA

Floats = npt.NDArray[np.float32]


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

    def abort(self) -> None:
        """Have a `run` on another thread end early; it then fails with 0x800704C7."""
        with suppress(RuntimeError):  # it was closed meanwhile
            self.pipeline.cancel_run()

    def close(self) -> None:
        """Give the memory back."""
        self.stage.close()
        self.pipeline.close()
        self.runtime.close()
