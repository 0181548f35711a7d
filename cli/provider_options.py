"""Options that name an execution provider of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import winml_lite

PROVIDER = click.option(
    "--provider", metavar="NAME", help="Execution provider of ONNX Runtime, as `winml-lite targets` lists them."
)
PROVIDER_LIBRARY = click.option(
    "--provider-library",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Library that brings the provider NAME; it is code that will be run.",
)
PROVIDER_OPTIONS = click.option(
    "--provider-option", "provider_options", multiple=True, metavar="KEY=VALUE", help="Option of the provider."
)


def provider_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a provider; the command gets `provider`, `provider_library` and `provider_options`."""
    return PROVIDER(PROVIDER_LIBRARY(PROVIDER_OPTIONS(command)))


def provider_settings(name: str | None, library: Path | None, options: tuple[str, ...]) -> dict[str, str] | None:
    """Register the library, and split the options, of the provider that was named."""
    if name is None:
        if library is not None or options:
            raise click.UsageError("--provider-library and --provider-option go with --provider")
        return None
    if not name:
        raise click.UsageError("--provider takes the name of an execution provider")
    if library is not None:
        with winml_lite.Runtime() as runtime:
            runtime.register_execution_provider(name, library)
    pairs = [text.partition("=") for text in options]
    if any(not key or not sign for key, sign, _ in pairs):
        raise click.UsageError("--provider-option takes KEY=VALUE")
    for text in options:
        if any("\ud800" <= char <= "\udfff" for char in text):  # bytes that are no text, as the system passes them
            raise click.UsageError(f"--provider-option takes text, not {text!r}")
    return {key: value for key, _, value in pairs}
