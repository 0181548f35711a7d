"""Where that which is made of each of several files goes."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from cli.several_files import targets


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with two pictures in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("cat.png", "dog.png"):
        (tmp_path / name).write_bytes(b"pixels")
    return tmp_path


def made(files: tuple[str, ...], place: str) -> list[str]:
    return [str(path) for path in targets(files, Path(place), "--save", ".png", unnamed="picture")]


def test_one_file_goes_where_it_is_named(here: Path) -> None:
    assert made(("cat.png",), "drawing.png") == ["drawing.png"]


def test_equal_names_get_numbers_that_no_other_name_has(here: Path) -> None:
    found = made(("cat.png", "more/cat.jpg", "cat-2.png", "Cat.webp", "-"), "out")
    expected = ["cat.png", "cat-2.png", "cat-2-2.png", "Cat-3.png", "picture.png"]
    assert found == [os.path.join("out", name) for name in expected]


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (("cat.png",), "cat.png"),
        (("cat.png",), "./cat.png"),
        (("cat.png", "dog.png"), "."),
        (("cat.png",), "."),
        (("new.png", "dog.png", "more/cat.jpg"), "."),
        (("cat.png",), "other.png"),
    ],
)
def test_no_file_that_is_read_is_written_over(here: Path, files: tuple[str, ...], place: str) -> None:
    os.link("cat.png", "other.png")
    with pytest.raises(click.UsageError, match="--save would write over"):
        made(files, place)


def test_another_file_may_be_written_over(here: Path) -> None:
    assert made(("cat.png",), "dog.png") == ["dog.png"]
