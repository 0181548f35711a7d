"""Embedding rows on the scripted decoder: a row stands for the token whose embedding is nearest to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from winml_lite.errors import FILE_CORRUPT, WinMLError
from winml_lite.files.gguf import GgufFile
from winml_lite.native.segments import MediaProjector, SegmentPlan
from winml_lite.storage import Storage

if TYPE_CHECKING:
    from fakes.backend import TokenExecutor


class FakeSegments:
    """Implements `Segments`: a view of an executor, which keeps the selection."""

    reads_projectors = True
    input_index = 0

    def __init__(self, executor: TokenExecutor, file: GgufFile) -> None:
        self._executor = executor
        self._file = file
        self.row_length = file.tensors["token_embd.weight"].shape[1]

    @property
    def selected(self) -> Storage | None:
        selection = self._executor.selection
        return None if selection is None else selection[0]

    @property
    def is_last(self) -> bool:
        return self._executor.ends_with_segment

    def select(self, rows: Storage, plan: SegmentPlan) -> None:
        self._executor.selection = rows, plan

    def clear(self) -> None:
        self._executor.selection = None

    def open_projector(self, path: str) -> MediaProjector:
        raise WinMLError(FILE_CORRUPT, "", f"{path} is no projector")

    def ids(self) -> list[int]:
        """The tokens that the selection stands for."""
        assert self._executor.selection is not None
        rows, plan = self._executor.selection
        table = self._file.dequantize("token_embd.weight")
        nearest = np.argmax(rows.array().reshape(-1, self.row_length) @ table.T, axis=1).tolist()
        found: list[int] = []
        for part in plan.parts:
            found += part.tokens or nearest[: part.row_count]
            nearest = nearest[part.row_count :]
        return found
