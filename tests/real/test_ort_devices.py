"""Devices of execution providers as the library describes them, with a made-up `OrtApi` in its place."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from winml_lite.errors import E_FAIL, MODULE_NOT_FOUND, WinMLError
from winml_lite.native.hardware import Device
from winml_lite.native.ort import api, devices, provider_libraries
from winml_lite.native.ort.built_in import NamedProvider, Settings
from winml_lite.native.ort.cuda import CudaGpu
from winml_lite.native.ort.devices import CudaDevice, EpDevice
from winml_lite.values import ExecutionTargetKind

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU


class FakeApi:
    """Entries of `OrtApi` over scripted devices. Pointers are indices + 1; a device and its hardware share one."""

    def __init__(self, *listed: dict[str, Any], built_in: tuple[bytes, ...] = ()) -> None:
        self.listed = listed
        self.built_in = built_in
        self.calls: list[tuple[Any, ...]] = []
        self.refusal: WinMLError | None = None

    def GetEpDevices(self, env: int, array: Any, count: Any) -> None:
        self._pointers = (ctypes.c_void_p * len(self.listed))(*range(1, len(self.listed) + 1))
        array._obj.value, count._obj.value = ctypes.addressof(self._pointers), len(self.listed)

    def GetAvailableProviders(self, names: Any, count: Any) -> None:
        self._names = (ctypes.c_char_p * len(self.built_in))(*self.built_in)
        names._obj.value, count._obj.value = ctypes.addressof(self._names), len(self.built_in)

    def ReleaseAvailableProviders(self, names: int, count: int) -> None:
        self.calls.append(("release names", count))

    def EpDevice_Device(self, device: int) -> Any:
        return device

    def EpDevice_EpName(self, device: int) -> Any:
        return self._get(device, "provider")

    def HardwareDevice_Type(self, hardware: int) -> Any:
        return self._get(hardware, "type")

    def HardwareDevice_Vendor(self, hardware: int) -> Any:
        return self._get(hardware, "vendor")

    def HardwareDevice_VendorId(self, hardware: int) -> Any:
        return self._get(hardware, "vendor_id")

    def HardwareDevice_DeviceId(self, hardware: int) -> Any:
        return self._get(hardware, "device_id")

    def HardwareDevice_Metadata(self, hardware: int) -> Any:
        return hardware

    def GetKeyValue(self, facts: int, key: bytes) -> Any:
        return self.listed[facts - 1].get("facts", {}).get(key)

    def _get(self, pointer: int, name: str) -> Any:
        defaults = {"provider": b"P", "type": 1, "vendor": b"", "vendor_id": 0, "device_id": 0}
        return {**defaults, **self.listed[pointer - 1]}[name]

    # Session options

    def CreateCUDAProviderOptions(self, out: Any) -> None:
        out._obj.value = 77

    def ReleaseCUDAProviderOptions(self, options: int) -> None:
        self.calls.append(("release", options))

    def UpdateCUDAProviderOptions(self, options: int, keys: Any, values: Any, count: int) -> None:
        self.calls.append(("update", options, _texts(keys, count), _texts(values, count)))

    def SessionOptionsAppendExecutionProvider_CUDA_V2(self, options: int, cuda: int) -> None:
        self.calls.append(("append", options, cuda))
        if self.refusal is not None:
            raise self.refusal

    def SessionOptionsAppendExecutionProvider(
        self, options: int, name: bytes, keys: Any, values: Any, count: int
    ) -> None:
        self.calls.append(("append", options, name, _texts(keys, count), _texts(values, count)))
        if self.refusal is not None:
            raise self.refusal

    def SessionOptionsAppendExecutionProvider_V2(
        self, options: int, env: int, array: Any, array_count: int, keys: Any, values: Any, count: int
    ) -> None:
        self.calls.append(("append", options, list(array), _texts(keys, count), _texts(values, count)))


def _texts(array: Any, count: int) -> list[bytes | None]:
    return list(array)[:count]


def use(monkeypatch: pytest.MonkeyPatch, *listed: dict[str, Any], built_in: tuple[bytes, ...] = ()) -> FakeApi:
    fake = FakeApi(*listed, built_in=built_in)
    monkeypatch.setattr(devices, "load_cuda_libraries", tuple)
    monkeypatch.setattr(devices, "api", fake)
    monkeypatch.setattr(provider_libraries, "api", fake)
    monkeypatch.setattr(devices, "register_installed", tuple)
    monkeypatch.setattr(devices, "idle_libraries", tuple)
    return fake


def test_a_gpu_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        b"Description": b"NVIDIA GeForce RTX 3060  ",
        b"LUID": b"53817",
        b"Discrete": b"1",
        b"DxgiVideoMemory": b"12110 MB",
    }
    use(
        monkeypatch,
        {
            "provider": b"DmlExecutionProvider",
            "vendor": b"NVIDIA",
            "vendor_id": 0x10DE,
            "device_id": 0x2504,
            "facts": facts,
        },
    )
    assert devices.provider_listing().devices == (
        Device(
            GPU,
            "NVIDIA GeForce RTX 3060",
            False,
            12110 << 20,
            "NVIDIA",
            engine="ONNX Runtime",
            provider="DmlExecutionProvider",
            luid="53817",
            vendor_id=0x10DE,
            device_id=0x2504,
            hardware=1,
            handle=EpDevice(1),
        ),
    )


@pytest.mark.parametrize(("discrete", "is_integrated"), [(b"1", False), (b"0", True), (None, None)])
def test_whether_a_gpu_is_integrated(
    monkeypatch: pytest.MonkeyPatch, discrete: bytes | None, is_integrated: bool | None
) -> None:
    use(monkeypatch, {"facts": {b"Discrete": discrete}})
    assert devices.provider_listing().devices[0].is_integrated is is_integrated


def test_a_gpu_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"vendor_id": 0x8086, "facts": {b"card_idx": b"0", b"pci_bus_id": b"0000:00:02.0"}})
    (found,) = devices.provider_listing().devices
    assert (found.vendor, found.pci_address, found.name, found.memory_size) == ("Intel", "0000:00:02.0", "", 0)


def test_a_card_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []

    def resolve(path: str) -> str:
        paths.append(path)
        return "/sys/devices/pci0000:00/0000:0A:00.0"

    monkeypatch.setattr("os.path.realpath", resolve)
    use(monkeypatch, {"facts": {b"card_idx": b"1"}})
    assert devices.provider_listing().devices[0].pci_address == "0000:0a:00.0"
    assert paths == ["/sys/class/drm/card1/device"]


def test_the_class_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"type": 0}, {"type": 1}, {"type": 2})
    assert [device.kind for device in devices.provider_listing().devices] == [CPU, GPU, NPU]


# The built-in CUDA provider

CARD = CudaGpu(1, "NVIDIA GeForce RTX 3060", 12 << 30, False, "0000:0a:00.0")
CUDA = (b"CUDAExecutionProvider", b"CPUExecutionProvider")


def test_gpus_of_the_built_in_cuda_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, {"type": 0}, built_in=CUDA)
    monkeypatch.setattr(devices, "cuda_gpus", lambda: (CARD,))
    _, found = devices.provider_listing().devices
    assert (found.kind, found.name, found.provider) == (GPU, "NVIDIA GeForce RTX 3060", "CUDAExecutionProvider")
    assert (found.pci_address, found.memory_size, found.handle) == ("0000:0a:00.0", 12 << 30, CudaDevice(1))
    assert fake.calls == [("release names", 2)]


def test_a_registered_cuda_provider_goes_before_the_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"provider": b"CUDAExecutionProvider"}, built_in=CUDA)
    monkeypatch.setattr(devices, "cuda_gpus", lambda: (CARD,))
    assert [device.handle for device in devices.provider_listing().devices] == [EpDevice(1)]


def test_without_a_built_in_cuda_provider_the_driver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"type": 0}, built_in=(b"CPUExecutionProvider",))
    monkeypatch.setattr(devices, "cuda_gpus", lambda: pytest.fail("asked"))
    assert len(devices.provider_listing().devices) == 1


def test_a_built_in_cuda_provider_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> tuple[CudaGpu, ...]:
        raise WinMLError(MODULE_NOT_FOUND, "loading NVIDIA's driver", "NVIDIA's driver is not installed.")

    use(monkeypatch, {"type": 0}, built_in=CUDA)
    monkeypatch.setattr(devices, "cuda_gpus", absent)
    listing = devices.provider_listing()
    assert [device.kind for device in listing.devices] == [CPU]
    assert listing.problems == (
        "CUDAExecutionProvider is built in, but finds no GPU: NVIDIA's driver is not installed.",
    )


def cuda_device(ordinal: int) -> Device:
    return Device(GPU, "A card", engine="ONNX Runtime", provider="CUDAExecutionProvider", handle=CudaDevice(ordinal))


def test_a_gpu_reaches_the_built_in_cuda_provider_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    devices.append_provider(5, cuda_device(1), (("gpu_mem_limit", "1000"),))
    assert fake.calls == [
        ("update", 77, [b"device_id", b"gpu_mem_limit"], [b"1", b"1000"]),
        ("append", 5, 77),
        ("release", 77),
    ]


def test_a_cuda_provider_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.refusal = WinMLError(E_FAIL, "", "Failed to load library: libcudnn.so.9: cannot open shared object file\n")
    with pytest.raises(
        WinMLError, match=r"libcudnn\.so\.9.*onnxruntime-gpu\[cuda,cudnn\].*create_cpu_target"
    ) as caught:
        devices.append_provider(5, cuda_device(0), ())
    assert caught.value.hresult == MODULE_NOT_FOUND
    assert fake.calls[-1] == ("release", 77)


def test_a_cuda_provider_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.refusal = WinMLError(E_FAIL, "", "CUDA failure 35: CUDA driver version is insufficient")
    with pytest.raises(WinMLError) as caught:
        devices.append_provider(5, cuda_device(0), ())
    assert caught.value is fake.refusal


def test_a_listed_device_reaches_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    devices.append_provider(5, Device(NPU, handle=EpDevice(9)), (("performance_mode", "high"),))
    assert fake.calls == [("append", 5, [9], [b"performance_mode"], [b"high"])]


def test_a_provider_is_reached_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    handle = NamedProvider("OpenVINO", (("device_type", "GPU"),))
    devices.append_provider(5, Device(GPU, handle=handle), (("num_streams", "2"), ("device_type", "GPU.1")))
    assert fake.calls == [("append", 5, b"OpenVINO", [b"device_type", b"num_streams"], [b"GPU.1", b"2"])]


@pytest.mark.parametrize(
    ("kind", "settings", "code"),
    [
        (GPU, (), 0x80070490),
        (NPU, (), 0x80070490),
        (CPU, (), 0x80004005),
        (GPU, (("num_streams", "x"),), 0x80004005),
    ],
)
def test_a_named_provider_that_refuses(
    monkeypatch: pytest.MonkeyPatch, kind: ExecutionTargetKind, settings: Settings, code: int
) -> None:
    fake = use(monkeypatch)
    fake.refusal = WinMLError(E_FAIL, "", "Failed to load provider OpenVINO")
    device = Device(
        kind, provider="OpenVINOExecutionProvider", handle=NamedProvider("OpenVINO", (("precision", "f16"),))
    )
    with pytest.raises(WinMLError, match=f"refuses a {kind.name} session with precision=f16.*Failed to load") as caught:
        devices.append_provider(5, device, settings)
    assert caught.value.hresult == code


def test_an_option_that_names_another_gpu() -> None:
    with pytest.raises(WinMLError, match="device_id is 1, but the target is A card, number 0") as caught:
        devices.check_device_option(cuda_device(0), (("device_id", "1"),))
    assert caught.value.hresult == 0x80070057


def test_an_option_that_names_the_same_gpu() -> None:
    devices.check_device_option(cuda_device(1), (("device_id", "1"),))
    devices.check_device_option(cuda_device(1), ())


# The library as it is


def test_the_library_has_its_cpu_provider() -> None:
    assert "CPUExecutionProvider" in devices.available_providers()


def test_a_library_without_a_named_provider_says_so() -> None:
    options = ctypes.c_void_p()
    api.CreateSessionOptions(ctypes.byref(options))
    try:
        with pytest.raises(WinMLError, match="Unknown provider name 'NoSuch'"):
            devices.append_provider(options.value or 0, Device(CPU, handle=NamedProvider("NoSuch", ())), ())
    finally:
        api.ReleaseSessionOptions(options.value or 0)


def test_a_library_without_cuda_says_so() -> None:
    if devices.CUDA_PROVIDER in devices.available_providers():
        pytest.skip("this ONNX Runtime has a CUDA provider")
    with pytest.raises(WinMLError, match="CUDA execution provider is not enabled in this build"):
        devices.append_provider(0, cuda_device(0), ())
