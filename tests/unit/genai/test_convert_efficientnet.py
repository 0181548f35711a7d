"""EfficientNet-Lite to an ONNX folder: what is written, and what is refused. The numbers are in tests/real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fakes.rig import failing
from genai import codes
from genai.convert import ConvertedClassifier, convert_efficientnet
from models.classifier_models import CLASSES, SMALL_SIDE, efficientnet_weights
from models.torch_files import torch_file

LABELS = ["a", "b", "c", "d", "e"]


def converted(folder: Path, changes: dict[str, Any] | None = None, **options: Any) -> ConvertedClassifier:
    """Convert the tiny network with some tensors changed; None takes one away."""
    tensors = {**efficientnet_weights(), **(changes or {})}
    path = folder / "weights.pth"
    path.write_bytes(torch_file({name: array for name, array in tensors.items() if array is not None}))
    return convert_efficientnet(path, folder / "out", **{"size": SMALL_SIDE, **options})


def test_the_folder_says_how_the_model_is_used(tmp_path: Path) -> None:
    made = converted(tmp_path, labels=LABELS)
    assert (made.folder, made.model_path) == (tmp_path / "out", tmp_path / "out" / "model.onnx")
    assert (made.class_count, made.input_size) == (CLASSES, SMALL_SIDE)
    assert made.size_in_bytes == sum(file.stat().st_size for file in made.folder.iterdir())
    config = json.loads((made.folder / "config.json").read_text("utf-8"))
    assert config["id2label"] == {"0": "a", "1": "b", "2": "c", "3": "d", "4": "e"}
    steps = json.loads((made.folder / "preprocessor_config.json").read_text("utf-8"))
    assert (steps["size"], steps["crop_size"]) == ({"shortest_edge": 72}, {"height": 40, "width": 40})
    assert (steps["do_rescale"], steps["image_mean"], steps["image_std"]) == (False, [127.0] * 3, [128.0] * 3)


def test_the_graph_takes_pictures_and_gives_logits(tmp_path: Path) -> None:
    model = onnx.load(converted(tmp_path).model_path)
    onnx.checker.check_model(model, full_check=True)
    [given], [result] = model.graph.input, model.graph.output
    assert (given.name, result.name, model.graph.name) == ("pixel_values", "logits", "efficientnet-lite")
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["batch", 3, 40, 40]
    assert [d.dim_param or d.dim_value for d in result.type.tensor_type.shape.dim] == ["batch", 5]
    kinds = [node.op_type for node in model.graph.node]
    assert (kinds.count("BatchNormalization"), kinds.count("Conv"), kinds.count("Add")) == (0, 28, 3)


def test_without_labels_there_are_none(tmp_path: Path) -> None:
    made = converted(tmp_path)
    assert "id2label" not in json.loads((made.folder / "config.json").read_text("utf-8"))


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(FileExistsError):
        converted(tmp_path)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"_fc.weight": None}, "there is no _fc.weight"),
        ({"_blocks.3._bn1.bias": None}, "there is no _blocks.3._bn1.bias"),
        ({"_blocks.3._se_reduce.weight": np.zeros((1, 1), np.float32)}, "_se_reduce.weight is of an EfficientNet-B"),
        ({"_extra.weight": np.zeros(3, np.float32)}, "_extra.weight is of no EfficientNet-Lite"),
        (
            {"_blocks.9._project_conv.weight": np.zeros((18, 32, 1, 1), np.float32)},
            "begins a stage after the last of 7",
        ),
    ],
)
def test_other_networks_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with failing(codes.NOT_SUPPORTED) as caught:
        converted(tmp_path, changes)
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"_fc.bias": np.zeros(4, np.float32)}, "_fc.bias has the shape [4] where [5] is wanted"),
        ({"_fc.weight": np.zeros(5, np.float32)}, "_fc.weight has the shape [5]"),
        ({"_conv_head.weight": np.zeros((20, 9, 1, 1), np.float32)}, "_conv_head.weight has the shape [20, 9, 1, 1]"),
        ({"_blocks.0._depthwise_conv.weight": np.zeros((5, 1, 3, 3), np.float32)}, "has 5 filters for 4 channels"),
        ({"_bn0.bias": np.array([0, 0, np.nan, 0], np.float32)}, "_bn0.bias holds numbers that are not finite"),
        ({"_bn0.running_var": np.array([1, -1, 1, 1], np.float32)}, "_bn0.running_var holds a negative number"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with failing(codes.INVALID_DATA) as caught:
        converted(tmp_path, changes)
    assert said in str(caught.value)


def test_labels_must_be_as_many_as_classes(tmp_path: Path) -> None:
    with failing(codes.INVALID_DATA) as caught:
        converted(tmp_path, labels=LABELS[:4])
    assert "there are 4 labels for 5 classes" in str(caught.value)


def test_the_size_of_an_unknown_network_must_be_given(tmp_path: Path) -> None:
    with failing(codes.NOT_SUPPORTED) as caught:
        converted(tmp_path, size=None)
    assert "9 blocks that end with 16 channels are none of Lite 0 to 4: give size" in str(caught.value)
    with pytest.raises(ValueError, match="size must be in 32"):
        converted(tmp_path, size=16)
