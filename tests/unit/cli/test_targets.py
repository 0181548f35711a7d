"""`winml-lite targets` on machines that are made up."""

from __future__ import annotations

import json

from click.testing import CliRunner

from cli.main import main
from winml_lite import ExecutionTargetKind
from winml_lite.devices import replaced_enumerators
from winml_lite.native.hardware import Device

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU
ORT, LLAMA = "ONNX Runtime", "llama.cpp"

DEVICES = [
    Device(CPU, "A processor", memory_size=32 << 30, engine=ORT, provider="CPUExecutionProvider", vendor="Maker"),
    Device(CPU, "A processor", engine=LLAMA),
    Device(GPU, "A card", False, 12 << 30, engine=LLAMA, pci_address="0000:03:00.0"),
    Device(GPU, "Old GPU 0000:04:00.0", pci_address="0000:04:00.0"),
]


def targets(*arguments: str) -> str:
    with replaced_enumerators(lambda: DEVICES):
        result = CliRunner().invoke(main, ["targets", *arguments])
    assert result.exit_code == 0
    return result.stdout


def test_a_table_of_devices() -> None:
    assert targets().splitlines() == [
        "TARGET  DEVICE                  MEMORY    ENGINES                  PROVIDERS",
        "CPU     A processor             32.0 GiB  ONNX Runtime, llama.cpp  CPUExecutionProvider",
        "GPU     A card at 0000:03:00.0  12.0 GiB  llama.cpp",
        "GPU     Old GPU 0000:04:00.0    unknown   none",
        "NPU     none found",
    ]


def test_devices_as_json() -> None:
    cpu, card, old = json.loads(targets("--json"))
    assert cpu == {
        "target": "CPU",
        "name": "A processor",
        "vendor": "Maker",
        "memory_in_bytes": 32 << 30,
        "is_integrated": None,
        "pci_address": None,
        "engines": ["ONNX Runtime", "llama.cpp"],
        "providers": ["CPUExecutionProvider"],
    }
    assert (card["is_integrated"], card["pci_address"]) == (False, "0000:03:00.0")
    assert (old["memory_in_bytes"], old["engines"]) == (None, [])


def test_a_machine_that_cannot_be_asked_has_a_cpu() -> None:
    with replaced_enumerators():
        lines = CliRunner().invoke(main, ["targets"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["TARGET", "CPU", "GPU", "NPU"]
