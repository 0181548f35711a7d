"""Where that which is made of each of several files goes."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from cli.failure import ModelFailure, OutputFailure
from cli.several_files import check_before_loading, targets, writing
from genai import NotSupportedError, WinMLError


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


def test_several_files_do_not_make_a_folder_with_the_name_of_a_file(here: Path) -> None:
    with pytest.raises(click.UsageError, match=r"labels\.png is the name of a file"):
        made(("cat.png", "dog.png"), "labels.png")
    assert not os.path.exists("labels.png")


def test_a_folder_may_have_any_name_where_it_is_there(here: Path) -> None:
    os.mkdir("labels.png")
    assert made(("cat.png", "dog.png"), "labels.png") == [
        os.path.join("labels.png", "cat.png"),
        os.path.join("labels.png", "dog.png"),
    ]


@pytest.mark.parametrize("files", [("cat.png",), ("-",), ("no.png", "cat.png")])
def test_one_file_to_read_is_enough_to_load_a_model(here: Path, files: tuple[str, ...]) -> None:
    check_before_loading(files, "click", "this needs click")


def test_no_model_is_loaded_for_a_file_that_is_not_there(here: Path) -> None:
    with pytest.raises(ModelFailure, match=r"no\.png: there is no such file"):
        check_before_loading(("no.png",), "click", "this needs click")


def test_each_file_that_is_not_there_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelFailure, match="2 of 2 files could not be read"):
        check_before_loading(("no.png", "nor.png"), "click", "this needs click")
    assert "Error: nor.png: there is no such file" in capsys.readouterr().err


def test_no_model_is_loaded_without_the_package_that_reads_files(here: Path) -> None:
    with pytest.raises(NotSupportedError, match=r"this needs it: pip install 'winml-lite\[media\]'") as raised:
        check_before_loading(("cat.png",), "no_such_package", "this needs it")
    assert isinstance(raised.value, WinMLError) and raised.value.hresult == 0x8007007E


def test_what_cannot_be_written_names_the_file_and_is_the_fault_of_the_output(here: Path) -> None:
    with pytest.raises(OutputFailure, match=r"^missing.cat\.srt cannot be written: No such file or directory$"):
        with writing(Path("missing/cat.srt")):
            Path("missing/cat.srt").write_text("")
