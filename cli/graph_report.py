"""What `winml-lite show` says of an ONNX graph: ports, operators, weights in other files, who could run it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import winml_lite

from .failure import describe

_CACHE_PORT = re.compile(r"^(past\w*|present\w*)\.\d+\.")
_CPU_PROVIDER = "CPUExecutionProvider"
_MOST_IN_A_LINE = 6
_LONGEST_TEXT = 100


@dataclass(frozen=True, slots=True)
class ProviderTrial:
    """What to load before a model is built for each execution provider: code that will be run."""

    provider_library: Path | None = None
    custom_operators: tuple[Path, ...] = ()


def graph_record(path: Path, trial: ProviderTrial | None) -> dict[str, Any]:
    """Describe an `.onnx` or `.ort` file; with `trial`, build it for each execution provider.

    Providers that find no hardware are listed with the reason.
    """
    about = winml_lite.describe_onnx(path)
    providers = {}
    if trial is not None:
        with winml_lite.Runtime() as runtime, runtime.load_model(path) as model:
            library = trial.provider_library
            if library is not None:
                runtime.register_execution_provider(library.name.partition(".")[0].removeprefix("lib"), library)
            taken = list(_providers(runtime, model, path, trial.custom_operators))
            providers = {"providers": taken, "provider_problems": list(runtime.provider_problems())}
    return {
        "format": about.format,
        "producer": about.producer,
        "opsets": dict(about.opsets),
        "operators": dict(about.operators),
        "external_data": [
            {"location": data.location, "needed_bytes": data.needed_bytes, "file_bytes": data.file_bytes}
            for data in about.external_data
        ],
        "model_metadata": dict(about.metadata),
        "inputs": [_port(port) for port in about.inputs],
        "outputs": [_port(port) for port in about.outputs],
        **providers,
    }


def _port(port: winml_lite.OnnxPort) -> dict[str, Any]:
    """A free extent is its symbol or null, a shape of unknown rank null; `holds` is there for what is no tensor."""
    shape = None if port.dimensions is None else list(port.dimensions)
    record = {"name": port.name, "type": port.data_type.name, "shape": shape}
    return {**record, "holds": port.holds} if port.holds else record


def _providers(
    runtime: winml_lite.Runtime, model: winml_lite.Model, path: Path, custom_operators: tuple[Path, ...]
) -> Iterator[dict[str, Any]]:
    """Build the model for each execution provider and class of hardware that is there."""
    places = [(name, device.kind) for device in runtime.enumerate_devices() for name in device.providers]
    for name, kind in dict.fromkeys(places):
        if name == _CPU_PROVIDER:
            target = runtime.create_cpu_target()
        else:
            target = runtime.create_ort_execution_target(name, kind)
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, target)
        for library in custom_operators:
            stage.ort_options().register_custom_ops_library(library)
        problem, counts = None, {}
        try:
            builder.build().close()
            counts = _node_counts(stage)
        except winml_lite.WinMLError as error:
            problem = describe(error).removeprefix("stage: ").removeprefix(f"{os.path.abspath(path)}: ")
        if problem is None and counts and name not in counts:
            problem = f"takes none of the {sum(counts.values())} operators"
        entry = {"provider": name, "target": kind.name, "takes_it": problem is None, "problem": problem}
        yield {**entry, "node_counts": counts}


def _node_counts(stage: winml_lite.Stage) -> dict[str, int]:
    """Return how many operators each provider took; nothing where ONNX Runtime is too old to tell."""
    try:
        return stage.ort_diagnostics().node_counts
    except winml_lite.NotSupportedError:
        return {}


def graph_lines(record: dict[str, Any]) -> list[str]:
    """Lay the record out for people; nothing for what is no graph."""
    lines = []
    if record.get("producer"):
        lines.append(f"producer       {_short(record['producer'])}")
    for side in ("inputs", "outputs"):
        lines += [f"{side[:-1]:14} {text}" for text in _port_lines(record.get(side, []))]
    opsets = [f"{domain} {version}" for domain, version in record.get("opsets", {}).items()]
    lines += _wrapped("opsets", opsets)
    operators = [f"{count} {name}" for name, count in record.get("operators", {}).items()]
    lines += _wrapped("operators", operators)
    for key, value in record.get("model_metadata", {}).items():
        lines.append(f"metadata       {_short(f'{key} = {value}')}")
    for data in record.get("external_data", ()):
        lines.append(
            f"external data  {_printable(data['location'])}, {_state(data['needed_bytes'], data['file_bytes'])}"
        )
    for entry in record.get("providers", ()):
        state = _taken(entry) if entry["takes_it"] else entry["problem"]
        lines.append(f"provider       {entry['provider']} ({entry['target']}): {state}")
    return lines + [f"no provider    {_printable(problem)}" for problem in record.get("provider_problems", ())]


def _taken(entry: dict[str, Any]) -> str:
    counts = entry["node_counts"]
    taken, total = counts.get(entry["provider"], 0), sum(counts.values())
    return "takes it" if taken == total else f"takes {taken} of {total} operators, the CPU the others"


def _state(needed: int, found: int | None) -> str:
    if found is None:
        return f"{needed:,} bytes needed, the file is missing"
    return f"{found:,} bytes" + (f", {needed:,} needed" if found < needed else "")


def _wrapped(heading: str, entries: list[str]) -> list[str]:
    """List entries, a few in a line."""
    rows = [entries[start : start + _MOST_IN_A_LINE] for start in range(0, len(entries), _MOST_IN_A_LINE)]
    return [f"{heading if not number else '':14} {_printable(', '.join(row))}" for number, row in enumerate(rows)]


def _port_lines(ports: list[dict[str, Any]]) -> list[str]:
    """Describe ports, those of the cache that differ in their layer alone in one line."""
    counts: Counter[str] = Counter()
    for port in ports:
        name = _printable(_CACHE_PORT.sub(r"\1.N.", port["name"]))
        counts[f"{name} {port.get('holds') or _tensor_text(port)}"] += 1
    return [text if count == 1 else f"{text}, {count} layers" for text, count in counts.items()]


def _tensor_text(port: dict[str, Any]) -> str:
    shape = port["shape"]
    extents = ["..."] if shape is None else ["?" if extent is None else _printable(str(extent)) for extent in shape]
    return f"{port['type']} [{', '.join(extents)}]"


def _short(text: str) -> str:
    """Keep the beginning of a text of any length."""
    return _printable(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...")


def _printable(text: str) -> str:
    """Keep a name, which may hold anything, in its line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
