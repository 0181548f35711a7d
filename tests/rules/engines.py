"""On which engines the contract tests of a numbered statement run: `python tests/rules/engines.py`.

It is read from the fixtures that a test takes, directly or through other fixtures. A parameter or a fixture whose name
begins with `fake`, `ort` or `llama` stands for that engine, `real` for both real ones; a test that makes a
`FakeBackend` runs on the fake. `tests/contract/engines.toml` lists the statements that do not run on all three, each
with its reason.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LIST = TESTS / "contract" / "engines.toml"
ALL = frozenset({"fake", "ort", "llama"})
_ENGINES = {"fake": {"fake"}, "ort": {"ort"}, "llama": {"llama"}, "real": {"ort", "llama"}}
_STATEMENTS = re.compile(r"test((?:_[rtg]\d+)+)_")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def run_on() -> dict[str, frozenset[str]]:
    """Engines of each statement that has a contract test, by its letter and number; empty if no engine takes part."""
    shared: dict[str, Function] = {}
    for path in (TESTS / "conftest.py", *sorted((TESTS / "fakes").glob("*.py"))):
        shared |= _fixtures(path)
    found: dict[str, set[str]] = {}
    for path in sorted((TESTS / "contract").glob("test_*.py")):
        fixtures = shared | _fixtures(path)
        for function in _functions(path):
            match = _STATEMENTS.match(function.name)
            if match:
                engines = _engines(function, fixtures)
                for statement in match[1].strip("_").split("_"):
                    found.setdefault(statement, set()).update(engines)
    return {statement: frozenset(engines) for statement, engines in found.items()}


def listed() -> dict[str, frozenset[str]]:
    """Engines of each statement in the list."""
    return {number: frozenset(group["engines"]) for group in groups() for number in group["statements"]}


def groups() -> list[dict[str, list[str]]]:
    """The entries of the list: `engines`, `statements` and a `reason`."""
    entries: list[dict[str, list[str]]] = tomllib.loads(LIST.read_text(encoding="utf-8"))["group"]
    return entries


def _functions(path: Path) -> Iterator[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _fixtures(path: Path) -> dict[str, Function]:
    return {
        function.name: function
        for function in _functions(path)
        if any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)
    }


def _engines(function: Function, fixtures: dict[str, Function]) -> set[str]:
    """Engines of a test or a fixture."""
    is_fixture = function.name in fixtures
    found = _named(function.name) if is_fixture else set()
    wanted = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        if "usefixtures" in ast.unparse(decorator.func):
            wanted.update(_texts(decorator))
        elif is_fixture:
            params = (keyword.value for keyword in decorator.keywords if keyword.arg == "params")
            found.update(engine for value in params for text in _texts(value) for engine in _named(text))
    if not is_fixture and any(isinstance(node, ast.Name) and node.id == "FakeBackend" for node in ast.walk(function)):
        found.add("fake")
    for name in wanted - {function.name}:
        if name in fixtures:
            found |= _engines(fixtures[name], fixtures)
    return found


def _texts(node: ast.AST) -> Iterator[str]:
    return (item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str))


def _named(name: str) -> set[str]:
    return set(_ENGINES.get(re.split("[-_]", name)[0], ()))


def main() -> None:
    """Print for each set of engines the statements that run on it."""
    by_engines: dict[frozenset[str], list[str]] = {}
    for statement, engines in run_on().items():
        by_engines.setdefault(engines, []).append(statement)
    for engines, statements in sorted(by_engines.items(), key=lambda item: -len(item[0])):
        ordered = sorted(statements, key=lambda name: (name[0], int(name[1:])))
        print(f"{', '.join(sorted(engines)) or 'no engine'}: {len(ordered)}\n   {' '.join(ordered)}")


if __name__ == "__main__":
    main()
