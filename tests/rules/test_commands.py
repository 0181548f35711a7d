"""Every command and sub-command answers `--help`, and says what it is for."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from cli.main import main
from rules.project import text_of


def commands_by_path(command: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Every command below this one, itself included, by its words."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            found |= commands_by_path(child, (*path, name)) if child else {}
    return found


COMMANDS = commands_by_path(main)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
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
    assert (name,) in COMMANDS


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_the_page_of_the_command_line_names_every_command_and_option(path: tuple[str, ...]) -> None:
    page = text_of("docs/command-line.md")
    options = [option for part in COMMANDS[path].params for option in part.opts if option.startswith("--")]
    assert [word for word in (path[-1], *options) if word not in page] == []
