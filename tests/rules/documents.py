"""The pages of the project and how their code blocks are run.

Blocks of a page run in order and share their names, in a folder with the files that the pages speak of. The name
`smollm2` stands for the scripted tiny model there, by a catalog file in the cache folder, as a user may write one.

    ```python    is executed; a following ```output block must equal what it prints
    ```sh        each `winml-lite` command is executed in this process; `echo TEXT |` before it is its standard input;
                 a following ```json block must have the keys and the types of what the last one prints
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from unittest.mock import patch

from cli.main import main as winml_lite
from rules.project import project_files, text_of

PAGES = ("README.md", *(name for name in project_files() if name.startswith("docs/") and name.endswith(".md")))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUTS = {"python": "output", "sh": "json"}
"""Language of the block that shows what one prints."""
_LEFT_TO_THE_READER = ("pip", "python", "git", "export", "set")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    place: str
    """`page:line`."""
    language: str
    code: str
    output: str | None
    """What a block must print, when the page shows it."""


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in order."""
    text = text_of(page)
    found = list(_FENCE.finditer(text))
    for fence, following in zip_longest(found, found[1:]):
        language, code = fence.groups()
        output = following.group(2) if following and following.group(1) == _OUTPUTS.get(language) else None
        yield Block(f"{page}:{text[: fence.start()].count(chr(10)) + 2}", language, code, output)


def run_page(page: str) -> None:
    """Run every block of a page."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, names)
        elif block.language == "sh":
            printed = ""
            for line in block.code.splitlines():
                printed = run_shell(f"{block.place}: {line}", line)
            if block.output is not None:
                assert form_of(json.loads(printed)) == form_of(json.loads(block.output)), f"{block.place} {printed}"


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Execute a Python block and compare what it prints."""
    line = int(block.place.rsplit(":", 1)[1])
    program = compile("\n" * (line - 1) + block.code, block.place, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, names)
    assert block.output is None or printed.getvalue() == block.output, f"{block.place} printed\n{printed.getvalue()}"


def form_of(value: Any) -> Any:
    """Return a JSON value with its types in place of what a page cannot know: times, probabilities, places."""
    if isinstance(value, dict):
        return {key: form_of(part) for key, part in value.items()}
    return [form_of(part) for part in value] if isinstance(value, list) else type(value).__name__


def run_shell(place: str, line: str) -> str:
    """Run the `winml-lite` commands of a line, return what the last one prints; other programs are the reader's, and
    must be known here.
    """
    printed = ""
    for command in re.split(r"&&", line):
        words = shlex.split(command, comments=True)
        given = ""
        if words[:1] == ["echo"] and "|" in words:
            bar = words.index("|")
            given, words = " ".join(words[1:bar]) + "\n", words[bar + 1 :]
        if words[:1] == ["winml-lite"]:
            code, printed, said = run_command(words[1:], given)
            assert code == 0, f"{place} ended with {code}\n{printed}{said}"
        else:
            assert not words or words[0] in _LEFT_TO_THE_READER, f"{place} runs an unknown program"
    return printed


def run_command(arguments: list[str], given: str) -> tuple[object, str, str]:
    """Run `winml-lite` in this process; return its exit code, what it printed and what it said beside that."""
    printed, said = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["winml-lite", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(said),
    ):
        try:
            code: object = winml_lite()
        except SystemExit as stop:
            code = stop.code
    return code or 0, printed.getvalue(), said.getvalue()
