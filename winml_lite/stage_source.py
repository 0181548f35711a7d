"""What a stage is made of, seen from the stage: a loaded model (`model.py`) or a processor (`processor.py`)."""

from __future__ import annotations

from typing import Protocol

from .files.artifact import Artifact
from .native.backend import Placement, StageExecutor, StageOptions
from .storage import Storage
from .target import RuntimeCore
from .values import Descriptor


class StageSource(Protocol):
    """A loaded model or a processor."""

    @property
    def runtime(self) -> RuntimeCore:
        """The Runtime it belongs to."""

    @property
    def artifact(self) -> Artifact | None:
        """The model file; None for a processor."""

    @property
    def runner(self) -> str:
        """Name of what runs it, to be shown."""

    @property
    def kept(self) -> tuple[Storage, ...]:
        """Tensors of the caller that a run changes though they are not bound: those of a decode processor."""

    def ports(self, side: str) -> tuple[Descriptor, ...] | None:
        """Return the declared `"inputs"` or `"outputs"`; None where only `build` tells them."""

    def accepts(self, index: int, given: Descriptor, wanted: Descriptor) -> bool:
        """Return whether an output `given` may feed input `index`, which is `wanted` once it is built."""

    def make_executor(self, placement: Placement, options: StageOptions) -> StageExecutor:
        """Make the executor of one stage."""
