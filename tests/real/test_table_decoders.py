"""Models made of tables say on every engine what their function says, to 1e-5 and however the tokens are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from fakes.model_files import ModelFiles, require_engine
from fakes.scripted_engine import build_tables
from models.table_decoders import TableDecoder
from winml_lite import Runtime
from winml_lite.native.backend import EngineKey

SIZE = 11
CHANCE = np.random.default_rng(4)
CONSTANT = CHANCE.standard_normal(SIZE).astype(np.float32)
FOLLOWING, MIXED = CHANCE.standard_normal((2, SIZE, SIZE)).astype(np.float32)
BY_LENGTH = CHANCE.standard_normal((5, SIZE)).astype(np.float32)
ALL = TableDecoder(SIZE, CONSTANT, FOLLOWING, BY_LENGTH, MIXED)
PIECES = ([3, 5, 1], [1], [0, 10], [7])


def rows(runtime: Runtime, files: ModelFiles, engine: EngineKey, tables: TableDecoder) -> list[npt.NDArray[np.float32]]:
    """The last logits after each of the pieces."""
    require_engine(engine)
    stage, pipeline = build_tables(runtime, files.folder, engine, tables, 12)
    assert stage.sequence_capacity == 12
    stage.request_output(0)
    found = []
    for piece in PIECES:
        stage.bind_input(0, runtime.tensor_from_numpy(np.array([piece], np.int64)))
        pipeline.run()
        found.append(stage.output(0).to_numpy().reshape(-1, SIZE)[-1].copy())
    return found


def expected(tables: TableDecoder) -> list[Sequence[float]]:
    return [list(tables([3, 5, 1, 1, 0, 10, 7][:count])) for count in (3, 4, 6, 7)]


@pytest.mark.parametrize("engine", ["ort", "llama"])
def test_all_tables_add_up(runtime: Runtime, files: ModelFiles, engine: EngineKey) -> None:
    np.testing.assert_allclose(rows(runtime, files, engine, ALL), expected(ALL), atol=1e-5)


@pytest.mark.parametrize("engine", ["ort", "llama"])
@pytest.mark.parametrize(
    "tables",
    [
        TableDecoder(SIZE),
        TableDecoder(SIZE, constant=CONSTANT),
        TableDecoder(SIZE, following=FOLLOWING),
        TableDecoder(SIZE, by_length=BY_LENGTH),
        TableDecoder(SIZE, mixed=MIXED),
    ],
    ids=["none", "constant", "following", "by_length", "mixed"],
)
def test_each_table_stands_alone(runtime: Runtime, files: ModelFiles, engine: EngineKey, tables: TableDecoder) -> None:
    np.testing.assert_allclose(rows(runtime, files, engine, tables), expected(tables), atol=1e-5)


def test_the_function_adds_the_rows_up() -> None:
    # tokens 3, 5: the row of 5, that of length 2, and the mean of those of 3 and 5
    row = CONSTANT + FOLLOWING[5] + BY_LENGTH[2] + (MIXED[3] + MIXED[5]) / 2
    np.testing.assert_allclose(ALL([3, 5]), row, atol=1e-6)
    assert TableDecoder(SIZE, by_length=BY_LENGTH)([0] * 9).tolist() == BY_LENGTH[4].tolist()
