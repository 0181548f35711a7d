"""What the tab key offers in a shell that completes the words of this command: files, and names of models.

Here are words that may be either; paths alone are completed by their type, `click.Path`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

import genai

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer files and folders."""
    return [CompletionItem(begun, type="file")]


def names(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the names of all models."""
    return _names(begun, ())


def models(*kinds: str) -> Complete:
    """Make a function that offers files, and the names of models of these kinds; without kinds, of all."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return files(context, parameter, begun) + _names(begun, kinds)  # a shell forgets what stands before files

    return complete


def _names(begun: str, kinds: tuple[str, ...]) -> list[CompletionItem]:
    from genai import catalog  # only a shell asks

    with suppress(genai.WinMLError):  # of a catalog.toml that cannot be read
        fitting = [entry.name for entry in catalog.entries() if not kinds or entry.kind in kinds]
        return [CompletionItem(name) for name in fitting if name.startswith(begun)]
    return []
