"""What the files of a model folder say about pictures and labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.rig import failing
from genai import codes
from genai.classifier_folder import ClassifierFolder, Sizes, read_classifier_folder
from winml_lite import ImageResizeMode, NotSupportedError, TensorChannelOrder

CROP, STRETCH = ImageResizeMode.CENTER_CROP, ImageResizeMode.STRETCH
MEANS = {"image_mean": [0.5, 0.25, 0.0], "image_std": [0.5, 0.25, 0.125]}
SQUARE = {"height": 224, "width": 224}


def said(folder: Path, steps: dict[str, Any]) -> ClassifierFolder:
    """Read a folder with one preprocessor_config.json."""
    (folder / "preprocessor_config.json").write_text(json.dumps(steps))
    return read_classifier_folder(folder)


def sizes(folder: Path, **steps: Any) -> Sizes | None:
    """Read what a folder says about sizes."""
    return said(folder, {**MEANS, **steps}).sizes


def test_an_empty_folder_says_nothing(tmp_path: Path) -> None:
    assert read_classifier_folder(tmp_path) == ClassifierFolder()


def test_labels(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"id2label": {"0": "cat", "1": "dog"}}')
    assert read_classifier_folder(tmp_path).labels == ("cat", "dog")
    (tmp_path / "labels.txt").write_text("Katze\nHund\n")
    assert read_classifier_folder(tmp_path).labels == ("Katze", "Hund")


def test_the_shorter_side_is_resized_and_the_middle_cut_out(tmp_path: Path) -> None:
    wanted = Sizes((224, 224), (256, 256), CROP)
    assert sizes(tmp_path, size={"shortest_edge": 256}, do_center_crop=True, crop_size=SQUARE) == wanted
    assert sizes(tmp_path, size={"shortest_edge": 256}, crop_size=224) == wanted
    assert sizes(tmp_path, size=256, do_center_crop=True, crop_size=224) == wanted


def test_the_whole_picture_is_stretched(tmp_path: Path) -> None:
    assert sizes(tmp_path, size={"height": 32, "width": 48}) == Sizes((48, 32), (48, 32), STRETCH)
    assert sizes(tmp_path, size=224) == Sizes((224, 224), (224, 224), STRETCH)
    wanted = Sizes((224, 224), (256, 256), STRETCH)
    assert sizes(tmp_path, size={"height": 256, "width": 256}, do_center_crop=True, crop_size=SQUARE) == wanted


def test_a_share_that_is_cut_out(tmp_path: Path) -> None:
    assert sizes(tmp_path, size={"shortest_edge": 224}, crop_pct=0.875) == Sizes((224, 224), (256, 256), CROP)
    assert sizes(tmp_path, size={"shortest_edge": 384}, crop_pct=0.875) == Sizes((384, 384), (384, 384), STRETCH)


def test_colours_become_one_subtraction_and_one_multiplication(tmp_path: Path) -> None:
    # (v / 255 - mean) / deviation = (v - 255 mean) / (255 deviation)
    found = said(tmp_path, {"size": 224, **MEANS}).normalization
    assert found is not None
    assert found.mean == pytest.approx((127.5, 63.75, 0, 0))
    assert found.scale == pytest.approx((2 / 255, 4 / 255, 8 / 255, 0))


@pytest.mark.parametrize(
    ("steps", "scale", "mean"),
    [
        ({"do_rescale": False, "image_mean": 127, "image_std": 128}, 1 / 128, 127),
        ({"do_normalize": False}, 1 / 255, 0),
        ({}, 1 / 255, 0),
        ({"do_normalize": False, "do_rescale": False}, 1, 0),
        ({"do_normalize": False, "rescale_factor": 1 / 127.5, "rescale_offset": True}, 1 / 127.5, 127.5),
        ({"image_mean": [0.5], "image_std": [0.5], "include_top": True}, 4 / 255, 127.5),
    ],
)
def test_other_ways_to_bring_colours_to_numbers(tmp_path: Path, steps: Any, scale: float, mean: float) -> None:
    found = said(tmp_path, {"size": 224, **steps}).normalization
    assert found is not None
    assert found.scale[:3] == pytest.approx((scale,) * 3)
    assert found.mean[:3] == pytest.approx((mean,) * 3)


def test_the_order_of_colours(tmp_path: Path) -> None:
    assert said(tmp_path, {"size": 224, **MEANS}).channel_order is TensorChannelOrder.RGB
    assert said(tmp_path, {"size": 224, "do_flip_channel_order": True, **MEANS}).channel_order is TensorChannelOrder.BGR


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ({"do_resize": False, **MEANS}, "it does not resize; give size"),
        (MEANS, "size is missing or no number of pixels"),
        ({"size": True, **MEANS}, "size is missing or no number of pixels"),
        ({"size": {"height": 0, "width": 5}, **MEANS}, "size is missing or no number of pixels"),
        ({"size": {"shortest_edge": 224}, **MEANS}, "their sizes differ; give size"),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0, **MEANS}, "crop_pct must be above 0, not 0"),
        ({"size": {"shortest_edge": 200}, "crop_size": 224, **MEANS}, "224 x 224 cannot be cut out of 200 x 200"),
        ({"size": 224, "image_mean": [1, 2], "image_std": [1, 2]}, "image_mean has 2 numbers"),
        ({"size": 224, "image_mean": [0.5]}, "image_std is missing or no number"),
        ({"size": 224, "image_mean": 0, "image_std": 0}, "image_std must be above 0, not 0"),
        ({"size": 224, "image_mean": 0, "image_std": 1, "rescale_factor": "a"}, "rescale_factor is missing or no"),
    ],
)
def test_steps_that_cannot_be_followed(tmp_path: Path, steps: Any, text: str) -> None:
    with failing(codes.INVALID_DATA) as caught:
        said(tmp_path, steps)
    assert text in str(caught.value)
    assert "preprocessor_config.json" in str(caught.value)


def test_files_that_are_broken(tmp_path: Path) -> None:
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with failing(codes.INVALID_DATA):
            read_classifier_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"id2label": {"0": 5}}')
    with failing(codes.INVALID_DATA) as caught:
        read_classifier_folder(tmp_path)
    assert "id2label: a label is no text" in str(caught.value)


def test_a_model_of_several_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"problem_type": "multi_label_classification"}')
    with failing(codes.NOT_SUPPORTED, NotSupportedError):
        read_classifier_folder(tmp_path)
