"""Memory like that of a device, for the staged path of tensors, locks and runs."""

from __future__ import annotations

import numpy as np

from winml_lite.storage import StagedStorage
from winml_lite.values import TensorDataType


class DeviceStorage(StagedStorage):
    """`memory` is what a device would see; `data` is the copy that the CPU works on."""

    __slots__ = ("memory",)

    def __init__(self, content: bytes, data_type: TensorDataType, shape: tuple[int, ...]) -> None:
        super().__init__(np.zeros(len(content), np.uint8), data_type, shape)
        self.memory = bytearray(content)

    def refresh(self) -> None:
        self.data[:] = self.memory

    def publish(self) -> None:
        self.memory[:] = self.data.tobytes()
