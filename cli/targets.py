"""`winml-lite targets`: the hardware that models can be placed on."""

from __future__ import annotations

import click

import winml_lite

from . import terminal
from .options import json_option


@click.command("targets")
@json_option
def command(as_json: bool) -> None:
    """List the hardware that models can be placed on."""
    with winml_lite.Runtime() as runtime:
        found = {kind.name: _problem(runtime, kind) for kind in winml_lite.ExecutionTargetKind}
    if as_json:
        return terminal.answer_json(
            [{"target": name, "available": problem is None, "problem": problem} for name, problem in found.items()]
        )
    terminal.answer("".join(f"{name:4}  {problem or 'available'}\n" for name, problem in found.items()))


def _problem(runtime: winml_lite.Runtime, kind: winml_lite.ExecutionTargetKind) -> str | None:
    """Return why there is no such target, None when there is."""
    try:
        runtime.create_target(kind).close()
    except winml_lite.WinMLError as error:
        return error.native_message or str(error)
    return None
