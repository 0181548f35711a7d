"""From what the user typed to a model file or folder, without loading it."""

from __future__ import annotations

from pathlib import Path

import click

from genai.model_source import resolve

from . import terminal


def find_model(source: str, offline: bool, kinds: tuple[str, ...]) -> tuple[str, Path]:
    """Return name and path of a model; a name of the catalog is fetched first, where it is of one of the kinds."""
    if not source:
        raise click.UsageError("the name of the model is empty")
    progress = terminal.Progress(source)
    try:
        return resolve(source, None, offline, progress, kinds)
    finally:
        progress.finish()
