"""The choice of hardware and provider, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

import genai
from fakes.placed import CPU, GPU, GPU_ADDRESS, ort_device
from genai.model_source import chosen_engine
from genai.placement import Placement, placement
from winml_lite import Runtime
from winml_lite.devices import replaced_enumerators

DEVICES = (ort_device(CPU, "CPUExecutionProvider"), ort_device(GPU, "GpuProvider", GPU_ADDRESS))


def test_nothing_said_is_the_choice_of_the_engine(runtime: Runtime) -> None:
    assert placement(None, None, None).make_target(runtime) is None


def test_a_class_of_hardware(runtime: Runtime) -> None:
    target = placement(CPU, None, None).make_target(runtime)
    assert target is not None
    assert (target.kind, target.underlying_object.provider) == (CPU, None)


@pytest.mark.parametrize(("provider", "kind"), [("gpuprovider", GPU), ("CPUExecutionProvider", CPU), ("absent", CPU)])
def test_a_provider_brings_its_class_of_hardware(runtime: Runtime, provider: str, kind: object) -> None:
    with replaced_enumerators(lambda: DEVICES):
        target = placement(None, provider, None).make_target(runtime)
    assert target is not None
    assert (target.kind, target.underlying_object.provider) == (kind, provider)


def test_a_provider_on_one_device(runtime: Runtime) -> None:
    with replaced_enumerators(lambda: DEVICES):
        (gpu,) = (device for device in runtime.enumerate_devices() if device.kind is GPU)
        target = placement(gpu, "GpuProvider", None).make_target(runtime)
    assert target is not None
    assert target.underlying_object.devices == DEVICES[1:]
    assert target.underlying_object.is_exact is True


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, "", None), ValueError),
        ((None, 3, None), TypeError),
        ((None, "x", ["a"]), TypeError),
        ((None, None, {"a": "b"}), ValueError),
        ((9, None, None), ValueError),
        (("GPU", None, None), (TypeError, ValueError)),
    ],
)
def test_what_is_no_choice(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        placement(*arguments)


def test_a_provider_means_its_engine() -> None:
    assert chosen_engine(None, Placement(provider="x")) == "ort"
    assert chosen_engine(None, Placement()) is None
    assert chosen_engine("llama", Placement()) == "llama"
    with pytest.raises(ValueError, match=r"llama\.cpp has no execution provider 'x'"):
        chosen_engine("llama", Placement(provider="x"))


def test_a_provider_needs_no_model_to_be_wrong() -> None:
    with pytest.raises(ValueError, match="name it"):
        genai.load("absent.onnx", provider_options={"a": "b"})
