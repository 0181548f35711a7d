"""How a command ends when it cannot do its work: exit codes, and one line on standard error."""

from __future__ import annotations

import sys
from typing import Any

import click

import genai

EXIT_INTERRUPTED = 130
EXIT_NO_READER = 141
_MODEL_ERRORS = frozenset(
    {
        0x80070002,  # file not found
        0x80070003,  # path not found
        0x80070005,  # access denied
        0x8007000D,  # invalid data
        0x80070070,  # disk full
        0x800700CE,  # file name too long
        0x80070490,  # not found
        0x80070570,  # file corrupt
    }
)


class Failure(click.ClickException):
    """Ends the command with one line on standard error."""

    def show(self, file: Any = None) -> None:
        """Print the line."""
        click.echo(f"winml-lite: {self.message}", file=file or sys.stderr)


class ModelFailure(Failure):
    """The model is missing, unknown or unreadable."""

    exit_code = 3


class EngineFailure(Failure):
    """The engine failed or is not installed."""

    exit_code = 4


def as_failure(error: genai.WinMLError) -> Failure:
    """Return the failure that an error of the SDK ends a command with."""
    kind = ModelFailure if error.hresult in _MODEL_ERRORS else EngineFailure
    return kind(str(error))
