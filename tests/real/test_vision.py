"""Photographs and EfficientNet-Lite0: the short road, the command, the example and its drawing; texts and MiniLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import genai
from fakes.photographs import photograph
from fakes.real_models import catalog_model

ROOT = Path(__file__).resolve().parents[2]
CATS = {"tabby, tabby cat", "tiger cat", "Egyptian cat", "Persian cat", "Siamese cat, Siamese"}

pytestmark = pytest.mark.real


@pytest.fixture
def folder() -> Path:
    """The converted model."""
    pytest.importorskip("PIL")
    return catalog_model("efficientnet-lite0")


def run(*words: str | Path, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a program of the project; it must end well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], input=given, env=environment, capture_output=True, timeout=500
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


COMMAND = ("-c", "from cli.main import main; main(prog_name='winml-lite')", "classify")


def test_a_cat_is_a_cat_and_coffee_is_coffee(folder: Path) -> None:
    with genai.load_classifier(folder, threads=2) as model:
        cat, coffee, camera = model.classify([photograph(f"{name}.png") for name in ("chelsea", "coffee", "camera")])
    assert cat[0].label in CATS
    assert sum(label.probability for label in cat if label.label in CATS) > 0.8
    assert (coffee[0].label, coffee[0].probability > 0.8) == ("espresso", True)
    assert (camera[0].label, camera[0].probability > 0.8) == ("tripod", True)


def test_logits_equal_plain_onnx_runtime_over_the_same_input(folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    with genai.load_classifier(folder, threads=1) as model:
        for name in ("chelsea", "coffee"):
            pixels = model.preprocess(photograph(f"{name}.png"))
            [wanted] = session.run(None, {"pixel_values": pixels})
            assert model.logits(photograph(f"{name}.png")).tobytes() == wanted[0].tobytes()


def test_pixels_are_near_to_those_of_pillow(folder: Path) -> None:
    from PIL import Image

    picture = Image.open(photograph("chelsea.png"))  # 451 x 300: 385 x 256, of which the middle 224 x 224
    pillow = picture.resize((385, 256), Image.Resampling.BILINEAR).crop((80, 16, 304, 240))
    with genai.load_classifier(folder, threads=1) as model:
        pixels = model.preprocess(picture)[0].transpose(1, 2, 0)
    difference = np.abs(pixels * 128 + 127 - np.asarray(pillow, np.float32))
    assert difference.mean() < 5  # of 255: Pillow averages a little; a picture that is one pixel off differs by 7


def test_the_command_names_the_cat(folder: Path) -> None:
    lines = run(*COMMAND, photograph("chelsea.png"), "-m", folder).stdout.decode().splitlines()
    assert len(lines) == 5
    assert lines[0].split("%  ")[1] in CATS


def test_the_command_as_a_script_uses_it(folder: Path, tmp_path: Path) -> None:
    picture = photograph("coffee.png")
    done = run(
        *COMMAND, "-", picture, "-m", folder, "--top", "2", "--json", "--save", tmp_path, given=picture.read_bytes()
    )
    record = json.loads(done.stdout)
    assert [entry["picture"] for entry in record["pictures"]] == ["-", str(picture)]
    assert [entry["labels"][0]["label"] for entry in record["pictures"]] == ["espresso", "espresso"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coffee.png", "picture.png"]


def test_the_example_prints_five_labels_and_draws_them(folder: Path, tmp_path: Path) -> None:
    from PIL import Image

    drawing = tmp_path / "drawing.png"
    done = run(ROOT / "examples" / "classify_picture.py", photograph("chelsea.png"), drawing, folder)
    lines = [line.split("%  ") for line in done.stdout.decode().splitlines()]
    assert len(lines) == 5
    assert lines[0][1] in CATS
    # The picture of 451 x 300 is drawn 448 wide; a bar of 380 pixels stands for 100 %.
    pixels = np.asarray(Image.open(drawing)).astype(int)
    picture = np.asarray(Image.open(photograph("chelsea.png")).convert("RGB").resize((448, 298))).astype(int)
    assert np.abs(pixels[28:326, 28:476] - picture).mean() < 2
    first = (pixels == (0x2F, 0x6F, 0xED)).all(axis=2).sum(axis=1).max()
    others = (pixels == (0x9D, 0xB7, 0xEA)).all(axis=2).sum(axis=1)
    assert first == pytest.approx(380 * float(lines[0][0]) / 100, abs=1)
    assert others.max() == pytest.approx(380 * float(lines[1][0]) / 100, abs=1)


@pytest.mark.parametrize("name", ["classify_picture.py", "search_texts.py"])
def test_an_example_without_arguments_says_how_it_is_used(name: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert (done.returncode, done.stderr.startswith(f"usage: {name} [-h]")) == (2, True)


# Texts


def test_texts_are_found_by_what_they_mean(tmp_path: Path) -> None:
    model = catalog_model("minilm")
    folder = tmp_path / "notes"
    (folder / "garden").mkdir(parents=True)
    (folder / "garden" / "apples.md").write_text("# Apples\n\nPrune the trees in late winter.\nThen feed them.\n")
    (folder / "money.txt").write_text("The rent is due on the first of the month.\n\n\nThe bank closes at four.")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    done = run(ROOT / "examples" / "search_texts.py", folder, "When do I have to pay for my flat?", model)
    lines = [line.split("  ", 2) for line in done.stdout.decode().strip().splitlines()]
    assert lines[0][1:] == ["money.txt:1", "The rent is due on the first of the month."]
    assert {place for _, place, _ in lines} == {
        "money.txt:1",
        "money.txt:4",
        "garden/apples.md:1",
        "garden/apples.md:3",
    }
    done = run(ROOT / "examples" / "search_texts.py", folder, "How do I look after fruit?", model)
    assert done.stdout.decode().splitlines()[0].split("  ")[1].startswith("garden/apples.md")
