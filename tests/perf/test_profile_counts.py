"""What a read costs in the other compositions, in counts: runs and bindings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.backend import Script
from fakes.model_files import ModelFiles
from fakes.two_pipelines import TwoPipelines, two_pipelines
from genai import TextGenerationOptions

pytestmark = pytest.mark.perf


@pytest.fixture(params=["logits", "sampled", "fed back"])
def two(
    request: pytest.FixtureRequest, fake_ort: Any, tmp_path: Path, files: ModelFiles, script: Script
) -> Iterator[tuple[TwoPipelines, dict[str, Any]]]:
    with two_pipelines(tmp_path, files, script, feeds_back=request.param == "fed back") as two:
        changes = {"logits": {}, "sampled": two.sampling(), "fed back": two.feedback()}
        yield two, changes[request.param]


def test_a_read_of_two_pipelines_is_one_run_that_binds_nothing(
    two: tuple[TwoPipelines, dict[str, Any]], script: Script
) -> None:
    pipelines, changes = two
    session = pipelines.session(**changes, logical_capacity=1000)
    stream = session.generate_tokens([1, 2, 3], TextGenerationOptions(200))
    for _ in range(5):
        stream.read_next()
    binds = script.binds
    for number in range(6, 101):
        assert stream.read_next() is not None
        assert script.runs == number
    assert script.binds == binds
