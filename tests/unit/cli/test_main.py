"""The group: lazy commands, help, what is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from cli.main import COMMANDS, main
from genai import download

ROOT = Path(__file__).resolve().parents[3]
IMPORTS = """
import sys
from cli.main import main
try:
    main({arguments!r}, prog_name="winml-lite")
except SystemExit as end:
    assert end.code == 0, end.code
heavy = "numpy onnxruntime llama_cpp tokenizers jinja2 onnx urllib.request ssl".split()
print(sorted(name for name in sys.modules if name in heavy or name.startswith("cli.")))
"""
GROUP = ["cli.failure", "cli.main", "cli.terminal"]


def modules(*arguments: str) -> str:
    code = IMPORTS.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()[
        -1
    ]


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_s_prf_02_the_group_imports_no_command_and_nothing_heavy(argument: str) -> None:
    assert modules(argument) == str(GROUP)


def test_s_prf_02_help_of_a_command_imports_that_command_alone() -> None:
    own = [
        "cli.completion",
        "cli.generate",
        "cli.generation_options",
        "cli.media",
        "cli.options",
        "cli.provider_options",
        "cli.turn_notes",
    ]
    assert modules("generate", "--help") == str(sorted([*GROUP, *own]))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_that_begins_like_the_table(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert COMMANDS[name] in " ".join(result.output.split())


def test_the_help_lists_the_commands_and_the_exit_codes() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(f"  {name} " in output for name in COMMANDS)
    assert all(f"    {code} " in output for code in ("0", "2", "3", "4", "130", "141"))


def test_every_option_has_help() -> None:
    group = main
    assert isinstance(group, click.Group)
    context = click.Context(group)
    commands = [group.get_command(context, name) for name in COMMANDS]
    options = [
        option for command in commands if command for option in command.params if isinstance(option, click.Option)
    ]
    assert len(options) > 40
    assert [option.name for option in options if not option.help] == []


def test_an_unknown_command() -> None:
    result = CliRunner().invoke(main, ["nope"])
    assert result.exit_code == 2
    assert "No such command 'nope'" in result.stderr


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: winml-lite ")


def test_a_failure_of_the_system_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(entry: object) -> bool:
        raise PermissionError(13, "Permission denied", "/models/\x1bsmollm2")

    monkeypatch.setattr(download, "remove", refuse)
    result = CliRunner().invoke(main, ["models", "rm", "smollm2"])
    assert (result.exit_code, result.stderr) == (3, "Error: /models/\\x1bsmollm2: Permission denied\n")


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        (["transcribe", "--model"], "", [("file", ""), ("plain", "whisper-tiny.en")]),
        (["generate", "-m"], "smol", [("file", "smol"), ("plain", "smollm2")]),
        (["generate", "-m"], "whi", [("file", "whi")]),
        (["generate", "-m"], "./", [("file", "./")]),
        (["generate", "--draft"], "gem", [("file", "gem"), ("plain", "gemma3-270m")]),
        (["generate", "--lora"], "a", [("file", "a")]),
        (["perplexity"], "smol", [("file", "smol"), ("plain", "smollm2")]),
        (["convert"], "smol", [("file", "smol"), ("plain", "smollm2")]),
        (["show"], "sil", [("file", "sil"), ("plain", "silero-vad")]),
        (["transcribe"], "so", [("file", "so")]),
        (["classify", "a.png"], "b", [("file", "b")]),
        (["models", "pull"], "whi", [("plain", "whisper-tiny.en")]),
        (["models", "rm", "smollm2"], "sil", [("plain", "silero-vad")]),
        (["models", "path"], "x", []),
    ],
)
def test_a_shell_completes_files_and_names_of_models_that_fit(
    words: list[str], begun: str, expected: list[tuple[str, str]]
) -> None:
    found = BashComplete(main, {}, "winml-lite", "_WINML_LITE_COMPLETE").get_completions(words, begun)
    assert [(item.type, item.value) for item in found] == expected


def test_a_shell_completes_files_though_the_catalog_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "catalog.toml").write_text("[[model]", encoding="utf-8")
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path))
    found = BashComplete(main, {}, "winml-lite", "_WINML_LITE_COMPLETE").get_completions(["chat", "-m"], "s")
    assert [item.type for item in found] == ["file"]


def test_the_words_of_a_group_are_whole_sentences() -> None:
    lines = CliRunner().invoke(main, ["models", "--help"]).output.splitlines()
    assert "  pull  Fetch models into the cache and print their paths." in lines


@pytest.mark.parametrize("word", ["x", "1.5", "<s>"])
def test_what_is_no_token_id(word: str) -> None:
    result = CliRunner().invoke(main, ["tokens", "--decode", f"1 {word}"])
    assert result.exit_code == 2
    assert f"Error: {word!r} is no token id: ids are whole numbers" in result.stderr
