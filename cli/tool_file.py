"""The functions of a Python file as tools of a chat, and the question before each call.

The file is the user's own program, and is run.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click

import genai

from . import terminal
from .turn_notes import shortened

_MODULE = "winml_lite_tools"
_NOBODY = "nobody is at the terminal to allow them"


def read_tools(path: Path) -> list[Callable[..., Any]]:
    """Run a Python file and return the functions that it defines, without those that begin with an underscore.

    UsageError for a file that fails, or that has none.
    """
    spec = spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path}: not a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module  # where annotations of its classes are looked up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise click.UsageError(f"{path}: {_place(error, path)}{type(error).__name__}: {error}") from error
    functions: list[Callable[..., Any]] = [
        value for name, value in vars(module).items() if _is_function(value) and not name.startswith("_")
    ]
    if not functions:
        raise click.UsageError(f"{path}: it defines no functions whose names begin without an underscore")
    for function in functions:
        if inspect.iscoroutinefunction(function):
            raise click.UsageError(f"{path}: {function.__name__} is a coroutine function; tools of a chat here are not")
    return functions


def _is_function(value: object) -> bool:
    """Whether it is a function that the file defines, also behind a decorator such as `functools.cache`."""
    return inspect.isfunction(inspect.unwrap(value)) and value.__module__ == _MODULE if callable(value) else False


def _place(error: Exception, path: Path) -> str:
    """Which line of the file has failed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f"line {lines[-1]}: " if lines else ""


class Approval:
    """Asks before each call. `yes` allows all of them; without a person, and without it, none is allowed."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes
        self._always: set[str] = set()
        self._has_told = False

    def __call__(self, call: genai.ToolCall) -> bool | str:
        """Return whether the call may run, or why not."""
        if self._yes or call.name in self._always:
            return True
        if not terminal.is_interactive():
            if not self._has_told:
                terminal.note(f"(calls are refused, because {_NOBODY}; --yes allows them)")
                self._has_told = True
            return _NOBODY
        answer = ""
        while answer not in ("y", "yes", "n", "no", "a", "always"):
            answer = _ask(f"call {shortened(str(call))}? [y]es, [n]o, [a]lways {call.name}: ")
        if answer.startswith("a"):
            self._always.add(call.name)
        return not answer.startswith("n")


def _ask(question: str) -> str:
    """Ask on standard error; the end of the input means no. The answer is no line of the chat's history."""
    print(question, end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        terminal.note("")
        raise
    if not answer:
        terminal.note("")
    return answer.strip().lower() if answer else "n"
