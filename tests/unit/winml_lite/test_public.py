"""The package root: lazy names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import winml_lite


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Device'"):
        _ = winml_lite.Device


@pytest.mark.parametrize("name", winml_lite.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(winml_lite, name).__name__ == name


def test_no_submodule_has_the_name_of_what_the_package_offers() -> None:
    folder = Path(winml_lite.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} & set(winml_lite.__all__) == set()


def test_a_name_costs_only_its_module() -> None:
    code = "import sys; from winml_lite import WinMLError, TensorDataType; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
