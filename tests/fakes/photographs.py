"""Photographs for tests: files of the package scikit-image, which is never imported."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest


def photograph(name: str) -> Path:
    """Return the path of a picture; skip the test where the package is not installed."""
    try:
        package = importlib.metadata.distribution("scikit-image")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no photographs: pip install --no-deps -r .ci/media.txt")
    return Path(str(package.locate_file(f"skimage/data/{name}")))
