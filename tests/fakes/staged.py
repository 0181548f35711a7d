"""Memory that the CPU reaches only through a copy, as on a device: for the staged path of tensors and locks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from winml_lite.storage import Storage
from winml_lite.values import TensorDataType


class StagedStorage(Storage):
    """`memory` is what a device would see; `data` is the copy that the CPU works on."""

    __slots__ = ("memory",)

    is_direct: ClassVar[bool] = False

    def __init__(self, content: bytes, data_type: TensorDataType, shape: tuple[int, ...]) -> None:
        super().__init__(np.zeros(len(content), np.uint8), data_type, shape)
        self.memory = bytearray(content)

    def fetch(self) -> None:
        self.data[:] = self.memory

    def publish(self) -> None:
        self.memory[:] = self.data.tobytes()
