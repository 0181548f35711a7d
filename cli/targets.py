"""`winml-lite targets`: the hardware that models can be placed on."""

from __future__ import annotations

import click

import winml_lite

from . import terminal
from .options import json_option

_HEADINGS = ("TARGET", "DEVICE", "MEMORY", "ENGINES", "PROVIDERS")


@click.command("targets")
@json_option
def command(as_json: bool) -> None:
    """List the hardware that models can be placed on.

    ENGINES can run models on it; with "none" there is a driver, but no engine that was built for it. PROVIDERS are what
    ONNX Runtime uses it through.
    """
    with winml_lite.Runtime() as runtime:
        devices = runtime.enumerate_devices()
    if as_json:
        return terminal.answer_json([_record(device) for device in devices])
    rows = [_row(device) for device in devices]
    present = {device.kind for device in devices}
    rows += [(kind.name, "none found", "", "", "") for kind in winml_lite.ExecutionTargetKind if kind not in present]
    terminal.answer(_table([_HEADINGS, *rows]))


def _record(device: winml_lite.DeviceInfo) -> dict[str, object]:
    return {
        "target": device.kind.name,
        "name": device.name,
        "vendor": device.vendor,
        "memory_in_bytes": device.memory_in_bytes,
        "is_integrated": device.is_integrated,
        "pci_address": device.pci_address,
        "engines": device.engines,
        "providers": device.providers,
    }


def _row(device: winml_lite.DeviceInfo) -> tuple[str, ...]:
    name = device.name
    if device.pci_address is not None and device.pci_address not in name:
        name += f" at {device.pci_address}"
    memory = f"{device.memory_in_bytes / 2**30:.1f} GiB" if device.memory_in_bytes else "unknown"
    return device.kind.name, name, memory, ", ".join(device.engines) or "none", ", ".join(device.providers)


def _table(rows: list[tuple[str, ...]]) -> str:
    """Lay rows out in columns that are as wide as their longest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(line.rstrip() + "\n" for line in lines)
