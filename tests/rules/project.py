"""What the rules look at: the files of the project, parsed once, and the names their imports mean."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("winml_lite", "genai", "cli")
SOURCES = (*PACKAGES, "models", "examples", "benchmarks")
_NOT_OURS = re.compile(r"\.|__pycache__$|build$|dist$|venv$|.*\.egg-info$")


def python_files(*folders: str) -> list[str]:
    """Python files below the folders, as sorted slash-separated paths from the root."""
    return [name for name in project_files() if name.endswith(".py") and name.split("/")[0] in folders]


@cache
def project_files() -> tuple[str, ...]:
    """Every file of the project: what git knows or would add; without git, everything but caches and builds."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = os.fsdecode(subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout).split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = list(_walk())
    return tuple(sorted(name for name in names if name and (ROOT / name).is_file()))


def _walk() -> Iterator[str]:
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name == ".ci" or not _NOT_OURS.match(name)]
        yield from (Path(folder, name).relative_to(ROOT).as_posix() for name in files)


@cache
def text_of(name: str) -> str:
    """The text of a project file."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree_of(name: str) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(text_of(name), filename=name)


def imported_modules(name: str) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute names of the modules that a file imports, relative imports resolved, wherever the statement stands."""
    package = name.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if node.module:
                yield module, node
            else:
                for alias in node.names:
                    yield f"{module}.{alias.name}", node


def public_names(name: str) -> list[str]:
    """The names that a module lists in a literal `__all__`; empty without one."""
    for node in tree_of(name).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if value is not None and any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            return [str(item) for item in ast.literal_eval(value)]
    return []
