"""File names and file contents that must not be there."""

from __future__ import annotations

import re
import sys
from pathlib import PurePosixPath

from rules.project import PACKAGES, project_files, python_files, text_of

VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "stuff"}
WEIGHTS = {".gguf", ".onnx", ".ort", ".safetensors", ".bin", ".pt", ".pth", ".data", ".npy", ".npz"}
TEXT = {".py", ".md", ".toml", ".txt", ".jinja", ".json", ".yml", ".yaml", ".cfg", ""}
# Roots of absolute paths that exist on one machine only, and hosts that serve packages.
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:home|root|Users|work|tmp)/\w|\b[A-Z]:\\Users\\|\.pyenv/versions/3\.\d+\.\d")
PACKAGE_HOST = re.compile(r"https?://[\w.-]*(?:pypi|pythonhosted|npmjs|artifactory|nexus)[\w.-]*", re.IGNORECASE)


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    """Every line of a project file in which the pattern is found."""
    names = [name for name in project_files() if PurePosixPath(name).suffix in TEXT and name != "LICENSE"]
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_module_is_named_like_a_standard_module() -> None:
    modules = python_files(*PACKAGES, "models", "examples", "benchmarks")
    assert [name for name in modules if PurePosixPath(name).stem in sys.stdlib_module_names] == []


def test_no_module_has_a_vague_name() -> None:
    assert [name for name in python_files(*PACKAGES, "models") if PurePosixPath(name).stem in VAGUE] == []


def test_file_names_are_portable() -> None:
    assert [name for name in project_files() if not re.fullmatch(r"[\w./-]+", name, re.ASCII)] == []


def test_no_weights_are_kept() -> None:
    assert [name for name in project_files() if PurePosixPath(name).suffix in WEIGHTS] == []


def test_no_path_of_a_machine_is_written() -> None:
    assert lines_matching(MACHINE_PATH) == []


def test_no_package_host_is_written() -> None:
    assert lines_matching(PACKAGE_HOST) == []


def test_python_files_are_utf8_with_unix_line_ends() -> None:
    assert [name for name in project_files() if name.endswith(".py") and "\r" in text_of(name)] == []
