"""Every public name exists, is documented, and is listed once; so is every public method of a public class."""

from __future__ import annotations

import enum
import importlib
import inspect

import pytest

from rules.project import PACKAGES, public_names, python_files

MODULES = [name for name in python_files(*PACKAGES) if public_names(name)]
ROOTS = ("winml_lite", "genai", "genai.runtime", "genai.tasks", "genai.convert")


def module_name(file: str) -> str:
    """The dotted name of a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def undocumented(module: str) -> list[str]:
    """Public names and public methods without a docstring of their own; plain values need none."""
    missing: list[str] = []
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        item = getattr(loaded, name)
        if not inspect.isclass(item) and not inspect.isroutine(item):
            continue
        if not inspect.getdoc(item):
            missing.append(f"{module}.{name}")
        if inspect.isclass(item) and not issubclass(item, enum.Enum):
            missing += [f"{module}.{name}.{member}" for member in undocumented_members(item)]
    return missing


def undocumented_members(kind: type) -> list[str]:
    """Public functions and properties that a class of ours defines without a docstring; an inherited one counts."""
    members = [(name, value) for name, value in vars(kind).items() if not name.startswith("_")]
    checked = [
        name
        for name, value in members
        if inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
    ]
    return [name for name in checked if not inspect.getdoc(getattr(kind, name))]


@pytest.mark.parametrize("file", MODULES)
def test_public_names_exist_and_are_listed_once(file: str) -> None:
    names = public_names(file)
    loaded = importlib.import_module(module_name(file))
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert len(names) == len(set(names))


@pytest.mark.parametrize("root", ROOTS)
def test_every_import_root_lists_its_names(root: str) -> None:
    assert importlib.import_module(root).__all__


@pytest.mark.parametrize("root", ROOTS)
def test_public_names_and_methods_are_documented(root: str) -> None:
    assert undocumented(root) == []


def test_dir_of_a_lazy_package_shows_its_public_names() -> None:
    package = importlib.import_module("winml_lite")
    assert set(package.__all__) <= set(dir(package))


SHARED_BY_LOADERS = {
    "engine": None,
    "context_length": None,
    "threads": None,
    "target": None,
    "provider": None,
    "provider_options": None,
    "custom_operators": (),
    "adapters": (),
    "offline": False,
    "progress": None,
}


@pytest.mark.parametrize("loader", ["load", "load_embedding", "load_classifier", "load_speech", "VoiceActivity"])
def test_what_loaders_share_has_one_name_one_default_and_one_order(loader: str) -> None:
    parameters = inspect.signature(getattr(importlib.import_module("genai"), loader)).parameters
    shared = {name: part.default for name, part in parameters.items() if name in SHARED_BY_LOADERS}
    assert list(shared.items()) == [(name, value) for name, value in SHARED_BY_LOADERS.items() if name in shared]
    assert next(iter(parameters)) == "source"
