"""Who may import whom: cli -> genai -> winml_lite -> winml_lite.native -> ctypes. Each test lists the offenders."""

from __future__ import annotations

import ast

import pytest

from rules.project import PACKAGES, imported_modules, python_files, tree_of

BELOW = {"winml_lite": {"genai", "cli"}, "genai": {"cli"}, "cli": set[str]()}
FOUNDATION = ("errors", "values", "checks", "interrupts", "handles", "storage")
# Heavy, optional and native packages, each with the only files that may name it.
HOMES = {
    "click": ("cli/",),
    "jinja2": ("genai/template",),
    "tokenizers": ("genai/vocab_json",),
    "onnx": ("genai/convert/",),
    "gguf": ("winml_lite/files/", "genai/convert/"),
    "huggingface_hub": ("genai/download",),
    "PIL": ("genai/picture.py", "genai/label_drawing.py", "genai/classifier.py", "cli/classify.py"),
    "soundfile": ("genai/sound_files.py",),
    "soxr": ("genai/audio.py",),
    "llama_cpp": ("winml_lite/native/llama/api.py",),
    "onnxruntime": (),
    "ctypes": ("winml_lite/native/",),
}
FILES = python_files(*PACKAGES)
CORE = [name for name in FILES if name.startswith("winml_lite/")]


def own_imports(names: list[str]) -> list[tuple[str, str]]:
    """(file, first part below winml_lite) of every import of a module of winml_lite."""
    pairs = [(name, module.split(".")) for name in names for module, _ in imported_modules(name)]
    return [(name, parts[1]) for name, parts in pairs if parts[0] == "winml_lite" and len(parts) > 1]


@pytest.mark.parametrize("layer", PACKAGES)
def test_layers_import_downwards_only(layer: str) -> None:
    upward = [
        (name, module)
        for name in python_files(layer)
        for module, _ in imported_modules(name)
        if module.split(".")[0] in BELOW[layer]
    ]
    assert upward == []


def test_upper_layers_use_only_the_public_names_of_winml_lite() -> None:
    upper = python_files("genai", "cli", "examples")
    inner = [(name, module) for name in upper for module, _ in imported_modules(name) if module[:11] == "winml_lite."]
    assert inner == []


@pytest.mark.parametrize("package", HOMES)
def test_special_packages_are_imported_in_their_home_only(package: str) -> None:
    users = {name for name in FILES for module, _ in imported_modules(name) if module.split(".")[0] == package}
    assert {name for name in users if not name.startswith(HOMES[package])} == set()


def test_imports_inside_a_package_are_relative() -> None:
    absolute = [
        (name, module)
        for name in FILES
        for module, node in imported_modules(name)
        if module.split(".")[0] == name.split("/")[0] and not (isinstance(node, ast.ImportFrom) and node.level)
    ]
    assert absolute == []


@pytest.mark.parametrize("module", FOUNDATION)
def test_the_foundation_imports_only_what_comes_before_in_it(module: str) -> None:
    before = set(FOUNDATION[: FOUNDATION.index(module)])
    assert {part for _, part in own_imports([f"winml_lite/{module}.py"])} <= before


@pytest.mark.parametrize(
    ("folder", "allowed"), [("files", {"files"}), ("media", {"media"}), ("native", {"files", "native"})]
)
def test_folders_import_the_foundation_and_what_is_below(folder: str, allowed: set[str]) -> None:
    inside = [name for name in CORE if name.startswith(f"winml_lite/{folder}/")]
    assert {pair for pair in own_imports(inside) if pair[1] not in {*FOUNDATION, *allowed}} == set()


@pytest.mark.parametrize(("engine", "other"), [("ort", "llama"), ("llama", "ort")])
def test_the_engines_do_not_know_each_other(engine: str, other: str) -> None:
    inside = [name for name in CORE if name.startswith(f"winml_lite/native/{engine}/")]
    modules = [module for name in inside for module, _ in imported_modules(name)]
    assert [module for module in modules if module.startswith(f"winml_lite.native.{other}")] == []


def test_every_module_says_what_it_is() -> None:
    with_code = [name for name in FILES if tree_of(name).body]
    assert [name for name in with_code if not ast.get_docstring(tree_of(name))] == []


def test_every_module_postpones_annotations() -> None:
    with_code = [name for name in FILES if len(tree_of(name).body) > 1]
    line = "from __future__ import annotations"
    assert [name for name in with_code if line not in (ast.unparse(node) for node in tree_of(name).body)] == []


@pytest.mark.parametrize("name", ["genai/runtime.py", "genai/tasks.py"])
def test_import_roots_contain_imports_and_names_only(name: str) -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    assert [ast.unparse(node) for node in tree_of(name).body if not isinstance(node, allowed)] == []
