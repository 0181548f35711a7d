"""Each declared entry of the function table does what its name says: the proof that the slot numbers are right.

Entries that only free something are proved by the leak tests in `tests/lifetime`, the rest of this tier by use.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from models import onnx_models
from winml_lite.errors import E_FAIL, E_INVALIDARG, FILE_NOT_FOUND, ORT_STATUS, WinMLError
from winml_lite.files.onnx import read_onnx_bytes
from winml_lite.handles import Resource
from winml_lite.native.backend import StageOptions
from winml_lite.native.ort import api, devices, environment, provider_libraries, values
from winml_lite.native.ort.session import Session, open_session
from winml_lite.storage import allocate
from winml_lite.values import TO_ONNX_TYPE, ExecutionTargetKind, TensorDataType

pytestmark = pytest.mark.real

FLOAT = TensorDataType.FLOAT32


def session() -> Session:
    return open_session(read_onnx_bytes(onnx_models.two().SerializeToString()), StageOptions(), None)


def options() -> Resource:
    pointer = ctypes.c_void_p()
    api.CreateSessionOptions(ctypes.byref(pointer))
    return environment.owned(pointer, api.ReleaseSessionOptions)


def test_status_has_code_and_text() -> None:
    pointer, settings = ctypes.c_void_p(), options()
    with pytest.raises(WinMLError, match="no_such_file") as caught:
        api.CreateSession(
            environment.environment().pointer,
            api.native_path("no_such_file.onnx"),
            settings.pointer,
            ctypes.byref(pointer),
        )
    assert caught.value.hresult == FILE_NOT_FOUND


def test_every_code_of_the_engine_is_mapped() -> None:
    assert set(ORT_STATUS) == set(range(1, 13))


def test_session_ports() -> None:
    made = session()
    assert [port.name for port in made.inputs] == ["X"]
    assert [port.name for port in made.outputs] == ["doubled", "negated"]
    assert [port.dimensions for port in made.outputs] == [(2,), (2,)]


@pytest.mark.parametrize("data_type", list(TO_ONNX_TYPE))
def test_values_over_storages_of_each_type(data_type: TensorDataType) -> None:
    storage = allocate(data_type, (3, 5))
    value = values.value_of(storage)
    assert values.value_descriptor(value) == (data_type, (3, 5))
    assert values.size_in_bytes(value) == storage.data.size
    address = ctypes.c_void_p()
    api.GetTensorMutableData(value, ctypes.byref(address))
    assert address.value == storage.address


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 12])
def test_values_of_unusual_shapes(shape: tuple[int, ...]) -> None:
    storage = allocate(FLOAT, shape)
    assert values.value_descriptor(values.value_of(storage)) == (FLOAT, shape)


def test_value_keeps_the_memory_of_its_storage() -> None:
    storage = allocate(FLOAT, (1,))
    storage.array()[:] = 7
    values.value_of(storage)
    owner = storage.native
    del storage
    view = values.storage_of(owner)
    assert view.array().tolist() == [7]


def test_both_ways_to_run() -> None:
    made, source, target = session(), allocate(FLOAT, (2,)), allocate(FLOAT, (2,))
    source.array()[:] = [1, 2]
    run_options, binding = ctypes.c_void_p(), ctypes.c_void_p()
    api.CreateRunOptions(ctypes.byref(run_options))
    api.CreateIoBinding(made.resource.pointer, ctypes.byref(binding))
    api.BindInput(binding.value or 0, b"X", values.value_of(source))
    api.BindOutput(binding.value or 0, b"negated", values.value_of(target))
    assert not api.RunWithBinding(made.resource.pointer, run_options.value or 0, binding.value or 0)
    assert target.array().tolist() == [-1, -2]

    inputs, outputs = (ctypes.c_void_p * 1)(values.value_of(source)), (ctypes.c_void_p * 1)()
    in_names, out_names = (ctypes.c_char_p * 1)(b"X"), (ctypes.c_char_p * 1)(b"doubled")
    status = api.Run(
        made.resource.pointer,
        run_options.value or 0,
        ctypes.cast(in_names, ctypes.c_void_p),
        inputs,
        1,
        ctypes.cast(out_names, ctypes.c_void_p),
        1,
        outputs,
    )
    assert not status
    assert values.storage_of(values.own_value(outputs[0] or 0)).array().tolist() == [2, 4]
    api.ReleaseIoBinding(binding.value or 0)
    api.ReleaseRunOptions(run_options.value or 0)


def test_bad_config_key_is_refused() -> None:
    settings = options()
    with pytest.raises(WinMLError) as caught:
        api.AddSessionConfigEntry(settings.pointer, b"", b"x")
    assert caught.value.hresult in (E_INVALIDARG, E_FAIL)


def test_devices() -> None:
    found = devices.provider_listing().devices
    assert ("CPUExecutionProvider", ExecutionTargetKind.CPU) in {(device.provider, device.kind) for device in found}


def test_provider_by_its_device() -> None:
    settings = options()
    cpu = next(device for device in devices.provider_listing().devices if device.kind is ExecutionTargetKind.CPU)
    devices.append_provider(settings.pointer, cpu, (("some.key", "some value"),))


def test_provider_library_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(WinMLError):
        provider_libraries.register_library("test", str(tmp_path / "absent.so"))


def test_declarations_are_in_table_order() -> None:
    text = Path(api.__file__).read_text(encoding="utf-8")
    slots = [int(number) for number in re.findall(r"^@.*?\)?\((\d+), ", text, re.MULTILINE)]
    assert len(slots) > 45
    assert slots == sorted(set(slots))
