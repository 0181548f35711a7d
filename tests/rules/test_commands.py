"""Every command and sub-command answers `--help`, and says what it is for."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from cli.main import main


def command_paths(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every command below this one, itself included."""
    paths = [path]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            paths += command_paths(child, (*path, name)) if child else []
    return paths


@pytest.mark.parametrize("path", command_paths(main), ids=" ".join)
def test_help_of_a_command(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    "name",
    [
        "generate",
        "chat",
        "classify",
        "transcribe",
        "tokens",
        "show",
        "targets",
        "models",
        "convert",
        "compile",
        "bench",
        "perplexity",
    ],
)
def test_the_promised_commands_are_there(name: str) -> None:
    assert (name,) in command_paths(main)
