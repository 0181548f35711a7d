"""Labels from the files that they come in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.rig import failing
from genai import codes
from genai.class_labels import read_labels


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "tench\ngreat white shark, white shark\nZürich\n\n"),
        ("synset.txt", "n01440764 tench\r\nn01484850 great white shark, white shark\r\nn00000000  Zürich\r\n"),
        ("list.json", '["tench", "great white shark, white shark", "Zürich"]'),
        ("config.json", '{"id2label": {"1": "great white shark, white shark", "0": "tench", "2": "Zürich"}}'),
        ("index.json", '{"0": ["n1", "tench"], "1": ["n2", "great white shark, white shark"], "2": ["n3", "Zürich"]}'),
    ],
)
def test_every_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_labels(tmp_path / name) == ("tench", "great white shark, white shark", "Zürich")


def test_an_empty_line_in_the_middle_is_a_label(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\n\nc\n")
    assert read_labels(tmp_path / "labels.txt") == ("a", "", "c")


def test_labels_themselves() -> None:
    assert read_labels(["a", "b"]) == ("a", "b")
    for wrong in ([1, 2], 5, None):
        with pytest.raises(TypeError, match="labels must be a file, or texts"):
            read_labels(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("5", "it is no list of labels"),
        ("[]", "it is no list of labels"),
        ("[1]", "a label is no text"),
        ('{"0": "a", "2": "c"}', "the keys are not the numbers 0, 1, 2"),
        ('{"cat": "a"}', "'cat' is no number of a class"),
        ("[" * 100_000, ""),
    ],
)
def test_files_without_labels(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "labels.json").write_text(text)
    with failing(codes.INVALID_DATA) as caught:
        read_labels(tmp_path / "labels.json")
    assert said in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with failing(codes.FILE_NOT_FOUND):
        read_labels(tmp_path / "labels.txt")
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\x00")
    with failing(codes.INVALID_DATA):
        read_labels(tmp_path / "labels.txt")
