"""`winml-lite classify` on a tiny classifier."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cli.main import main
from fakes.model_files import require_engine
from models.classifier_models import COLOURS, write_colour_folder

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
pytestmark = pytest.mark.real

COLOUR_OF = {"red": [255, 0, 0], "green": [0, 255, 0], "blue": [0, 0, 255]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a model and three pictures in it."""
    require_engine("ort")
    write_colour_folder(tmp_path / "model")
    for name, colour in COLOUR_OF.items():
        Image.fromarray(np.full((9, 12, 3), colour, np.uint8)).save(tmp_path / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def classify(*arguments: str, given: bytes | None = None, model: str = "model") -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["classify", *arguments, "--model", model], input=given)


def test_a_line_for_each_label(folder: Path) -> None:
    result = classify("red.png", "--top", "3")
    assert (result.exit_code, result.stdout) == (0, " 100.0%  red\n   0.0%  gray\n   0.0%  green\n")
    assert result.stderr == f"model on ONNX Runtime, 4 classes: {Path('model') / 'model.onnx'}\n"


def test_several_pictures_have_headings(folder: Path) -> None:
    result = classify("red.png", "blue.png", "--top", "1", "-q")
    assert (result.stdout, result.stderr) == ("red.png\n 100.0%  red\nblue.png\n 100.0%  blue\n", "")


def test_bars_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.terminal.is_terminal", lambda stream: True)
    lines = classify("red.png", "--top", "2").stdout.splitlines()
    assert lines == [f" 100.0%  {'█' * 24}  red", f"   0.0%  {' ' * 24}  gray"]


def test_json(folder: Path) -> None:
    record = json.loads(classify("red.png", "green.png", "--top", "1", "--json").stdout)
    assert (record["model"], record["file"]) == ("model", str(Path("model") / "model.onnx"))
    assert [entry["picture"] for entry in record["pictures"]] == ["red.png", "green.png"]
    [label] = record["pictures"][1]["labels"]
    assert (label["index"], label["label"], label["probability"] > 0.99) == (1, "green", True)


def test_standard_input(folder: Path) -> None:
    assert classify("-", "--top", "1", given=(folder / "blue.png").read_bytes()).stdout == " 100.0%  blue\n"


def corner(name: str) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The size of a drawing, and the colour of its ground."""
    with Image.open(name) as drawing:
        return drawing.size, drawing.getpixel((3, 3))


def test_one_drawing(folder: Path) -> None:
    result = classify("red.png", "--save", "drawing.png")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "drawn: drawing.png")
    # 12 x 9 is enlarged to 444 x 333; beside it are bars of 380, around everything 28
    assert corner("drawing.png") == ((908, 389), (255, 255, 255))
    classify("red.png", "--save", "drawing.png", "--dark", "-q")
    assert corner("drawing.png") == ((908, 389), (0x16, 0x18, 0x1D))


def test_drawings_of_several_pictures_go_into_a_folder(folder: Path) -> None:
    (folder / "more").mkdir()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save("more/red.webp")
    result = classify("red.png", "more/red.webp", "blue.png", "--save", "drawings/today", "-q")
    assert result.exit_code == 0
    assert sorted(path.name for path in Path("drawings/today").iterdir()) == ["blue.png", "red-2.png", "red.png"]


def test_a_drawing_that_cannot_be_written_costs_no_answer(folder: Path) -> None:
    (folder / "drawings").mkdir()
    (folder / "drawings" / "green.png").mkdir()
    result = classify("red.png", "green.png", "--save", "drawings", "--json", "-q")
    assert result.exit_code == 1
    assert "green.png cannot be written: " in result.stderr
    assert [entry["picture"] for entry in json.loads(result.stdout)["pictures"]] == ["red.png", "green.png"]


def test_a_picture_that_cannot_be_read_does_not_stop_the_others(folder: Path) -> None:
    (folder / "broken.png").write_bytes((folder / "red.png").read_bytes()[:40])
    result = classify("no.png", "broken.png", "blue.png", "--top", "1", "-q")
    assert (result.exit_code, result.stdout) == (3, "blue.png\n 100.0%  blue\n")
    missing, broken, last = result.stderr.splitlines()
    assert missing == "Error: no.png: there is no such file (0x80070002)"
    assert broken.startswith("Error: broken.png: ")
    assert last == "Error: 2 of 3 files could not be read"


def test_json_has_an_entry_for_each_picture_in_order(folder: Path) -> None:
    result = classify("no.png", "blue.png", "--top", "1", "--json", "-q")
    missing, blue = json.loads(result.stdout)["pictures"]
    assert missing == {"picture": "no.png", "error": "no.png: there is no such file (0x80070002)"}
    assert (blue["picture"], [label["label"] for label in blue["labels"]]) == ("blue.png", ["blue"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (3, "Error: 1 of 2 files could not be read")


def test_json_of_the_only_picture_that_cannot_be_read(folder: Path) -> None:
    (folder / "broken.png").write_bytes((folder / "red.png").read_bytes()[:40])
    result = classify("broken.png", "--json", "-q")
    (entry,) = json.loads(result.stdout)["pictures"]
    assert (entry["picture"], result.exit_code, result.stderr) == ("broken.png", 3, f"Error: {entry['error']}\n")


def test_a_single_picture_that_cannot_be_read(folder: Path) -> None:
    result = classify("no.png", "-q")
    assert (result.exit_code, result.stderr) == (3, "Error: no.png: there is no such file (0x80070002)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["red.png", "--save", "drawing.xyz"], "--save drawing.xyz: the ending must say the form of a picture"),
        (["red.png", "blue.png", "--save", "red.png"], "--save names a folder for several files"),
        (["red.png", "--size", "9"], "takes pictures of 8 x 8, not of 9 x 9"),
        (["red.png", "--size", "large"], "--size takes a number, or two as in 320x240, not 'large'"),
        (["red.png", "--top", "0"], "--top"),
        ([], "PICTURE"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], said: str) -> None:
    result = classify(*arguments)
    assert (result.exit_code, said in result.stderr) == (2, True)


def test_a_model_that_says_nothing_about_itself(folder: Path) -> None:
    (folder / "lone").mkdir()
    (folder / "model" / "model.onnx").rename(folder / "lone" / "colours.onnx")
    (folder / "labels.txt").write_text("\n".join(COLOURS))
    model = str(Path("lone") / "colours.onnx")
    result = classify("red.png", model=model)
    assert (result.exit_code, "give normalization" in result.stderr) == (3, True)
    options = ["--labels", "labels.txt", "--normalization", "symmetric", "--size", "8x8", "--resize-mode", "stretch"]
    assert classify("red.png", "--top", "1", *options, model=model).stdout == " 100.0%  red\n"
    assert classify("red.png", "--top", "1", *options, "--bgr", model=model).stdout == " 100.0%  blue\n"


def test_without_pillow_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["PIL"], "Image")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    result = classify("red.png", "blue.png", "-q")
    assert result.exit_code == 4
    assert "pip install 'winml-lite[media]'" in result.stderr
