"""The engine that a program of this folder runs on."""

from __future__ import annotations

import pytest

from fakes.model_files import require_engine


@pytest.fixture(params=["ort", "llama"])
def engine(request: pytest.FixtureRequest) -> str:
    require_engine(request.param)
    name: str = request.param
    return name
