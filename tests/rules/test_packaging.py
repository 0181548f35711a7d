"""The package list equals the tree, the typing markers are there, and nobody else owns our import names."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions

import pytest

from rules.project import PACKAGES, ROOT, project_files, text_of

SETTINGS = tomllib.loads(text_of("pyproject.toml"))
PROJECT = SETTINGS["project"]


def test_the_package_list_equals_the_tree() -> None:
    folders = {name.rsplit("/", 1)[0] for name in project_files() if name.endswith("/__init__.py")}
    inside = {folder for folder in folders if folder.split("/")[0] in PACKAGES}
    dotted = {folder.replace("/", ".") for folder in inside}
    shipped = {f"winml_lite.{name}" if name.startswith("cli") else name for name in dotted}
    assert shipped == set(SETTINGS["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_every_dependency_has_a_lower_bound() -> None:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    assert [line for line in [*PROJECT["dependencies"], *extras] if ">=" not in line] == []


def test_extras_agree_on_the_bounds_of_a_package() -> None:
    lines = {line for extra in PROJECT["optional-dependencies"].values() for line in extra}
    names = [line.split(">=")[0] for line in lines]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["genai", "winml_lite"])
def test_no_other_distribution_owns_our_import_names(name: str) -> None:
    assert set(packages_distributions().get(name, ())) <= {"winml-lite"}


def test_the_version_is_written_in_the_changelog() -> None:
    assert f"## {PROJECT['version']}" in text_of("CHANGELOG.md")
