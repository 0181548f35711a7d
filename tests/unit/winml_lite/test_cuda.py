"""The GPUs of NVIDIA's driver, with a made-up driver."""

from __future__ import annotations

from typing import Any

import pytest

from winml_lite import WinMLError
from winml_lite.native.ort import cuda
from winml_lite.native.ort.cuda import CudaGpu, cuda_gpus

GPUS = [(b"NVIDIA GeForce RTX 3060", 12 << 30, b"00000000:0A:00.0", 0), (b"Orin", 8 << 30, b"0000:00:00.0", 1)]


class FakeDriver:
    """Two GPUs, whose device numbers are not their ordinals."""

    def __init__(self, init: int = 0, memory: int = 0) -> None:
        self._init, self._memory = init, memory

    def cuInit(self, flags: int) -> int:
        return self._init

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(GPUS)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = 100 + ordinal
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: int) -> int:
        name.value = GPUS[device - 100][0]
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: int) -> int:
        size._obj.value = GPUS[device - 100][1]
        return self._memory

    def cuDeviceGetPCIBusId(self, address: Any, size: int, device: int) -> int:
        address.value = GPUS[device - 100][2]
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        assert attribute == 18
        value._obj.value = GPUS[device - 100][3]
        return 0


def use(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: driver)


def test_the_gpus_with_their_ordinals(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver())
    assert cuda_gpus() == (
        CudaGpu(0, "NVIDIA GeForce RTX 3060", 12 << 30, False, "0000:0a:00.0"),
        CudaGpu(1, "Orin", 8 << 30, True, "0000:00:00.0"),
    )


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver(init=100))
    assert cuda_gpus() == ()


@pytest.mark.parametrize(
    ("driver", "problem"),
    [(FakeDriver(init=3), "cuInit failed with status 3"), (FakeDriver(memory=999), "cuDeviceTotalMem failed with")],
)
def test_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, problem: str) -> None:
    use(monkeypatch, driver)
    with pytest.raises(WinMLError, match=problem) as caught:
        cuda_gpus()
    assert caught.value.hresult == 0x80004005


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> object:
        raise WinMLError(0x8007007E, "loading NVIDIA's driver", "NVIDIA's driver is not installed.")

    cuda.driver.cache_clear()
    monkeypatch.setattr(cuda, "load_library", absent)
    with pytest.raises(WinMLError, match="is not installed") as caught:
        cuda_gpus()
    assert caught.value.hresult == 0x8007007E
