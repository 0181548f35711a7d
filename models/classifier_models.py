"""Tiny image classifiers: one that names the colour of a picture, and an EfficientNet-Lite with a few channels.

All are built on demand and the same on every machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

COLOURS = ("red", "green", "blue", "gray")
SIDE = 8
"""Pixels of the pictures of the colour classifier."""


@dataclass(frozen=True, slots=True)
class ColourShape:
    """How the graph of a colour classifier looks from outside."""

    layout: Literal["NCHW", "NHWC"] = "NCHW"
    batch: int | str = "batch"
    side: int | str = SIDE
    element_type: int = TensorProto.FLOAT
    gives_probabilities: bool = False
    class_count: int | str = len(COLOURS)
    """What the graph declares."""


def colour_graph(shape: ColourShape = ColourShape()) -> onnx.ModelProto:
    """Return a classifier of red, green, blue and gray.

    `logits` are 4 r - 2 g - 2 b and so on for the colours, and r + g + b for gray, of the means of the channels.
    """
    is_planar = shape.layout == "NCHW"
    axes = [2, 3] if is_planar else [1, 2]
    sides = [shape.side, shape.side]
    dimensions = [shape.batch, 3, *sides] if is_planar else [shape.batch, *sides, 3]
    weights = np.array([[4, -2, -2], [-2, 4, -2], [-2, -2, 4], [1, 1, 1]], np.float32)
    result = "logits" if not shape.gives_probabilities else "sums"
    nodes = [
        helper.make_node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["means"], keepdims=0),
        helper.make_node("Gemm", ["means", "weights"], [result], transB=1),
    ]
    if shape.gives_probabilities:
        nodes.append(helper.make_node("Softmax", ["sums"], ["logits"], axis=-1))
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("pixels", shape.element_type, dimensions)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [shape.batch, shape.class_count])],
        [numpy_helper.from_array(np.array(axes, np.int64), "axes"), numpy_helper.from_array(weights, "weights")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, producer_name="winml-lite", ir_version=10, opset_imports=opsets)


def write_colour_folder(folder: str | os.PathLike[str]) -> Path:
    """Write the colour classifier as a model folder of Hugging Face, pictures in -1..1; return the folder."""
    path = Path(folder)
    path.mkdir(parents=True)
    onnx.save(colour_graph(), path / "model.onnx")
    steps = {
        "do_resize": True,
        "size": {"shortest_edge": SIDE + 2},
        "do_center_crop": True,
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    labels = {str(number): name for number, name in enumerate(COLOURS)}
    (path / "preprocessor_config.json").write_text(json.dumps(steps), encoding="utf-8")
    (path / "config.json").write_text(json.dumps({"model_type": "colours", "id2label": labels}), encoding="utf-8")
    return path


# An EfficientNet-Lite


@dataclass(frozen=True, slots=True)
class Block:
    """An inverted bottleneck."""

    channels: int
    kernel: int
    expansion: int = 2


BLOCKS = (
    Block(4, 3, 1),
    Block(6, 3),
    Block(6, 3),
    Block(8, 5),
    Block(10, 3),
    Block(12, 5),
    Block(12, 5),
    Block(14, 5),
    Block(16, 3),
)
"""Seven stages, as there are widths; two of them have two blocks."""
STEM, HEAD, CLASSES = 4, 20, 5
SMALL_SIDE = 40


def efficientnet_weights() -> dict[str, npt.NDArray[np.generic]]:
    """Return the tensors of a tiny EfficientNet-Lite, by the names of the port of it to torch."""
    rng = np.random.default_rng(5)
    tensors: dict[str, npt.NDArray[np.generic]] = {}

    def add(convolution: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        spread = 1 / np.sqrt(inputs * kernel * kernel)
        weight = rng.normal(0, 2 * spread, (outputs, inputs, kernel, kernel))
        tensors[f"{convolution}.weight"] = weight.astype(np.float32)
        tensors[f"{norm}.weight"] = rng.uniform(0.5, 1.5, outputs).astype(np.float32)
        tensors[f"{norm}.bias"] = rng.normal(0.3, 0.3, outputs).astype(np.float32)
        tensors[f"{norm}.running_mean"] = rng.normal(0, 0.2, outputs).astype(np.float32)
        tensors[f"{norm}.running_var"] = rng.uniform(0.5, 2, outputs).astype(np.float32)
        tensors[f"{norm}.num_batches_tracked"] = np.array(7, np.int64)

    add("_conv_stem", "_bn0", STEM, 3, 3)
    channels = STEM
    for index, block in enumerate(BLOCKS):
        name, inner = f"_blocks.{index}.", channels * block.expansion
        if block.expansion > 1:
            add(f"{name}_expand_conv", f"{name}_bn0", inner, channels, 1)
        add(f"{name}_depthwise_conv", f"{name}_bn1", inner, 1, block.kernel)
        add(f"{name}_project_conv", f"{name}_bn2", block.channels, inner, 1)
        channels = block.channels
    add("_conv_head", "_bn1", HEAD, channels, 1)
    tensors["_fc.weight"] = rng.normal(0, 0.5, (CLASSES, HEAD)).astype(np.float32)
    tensors["_fc.bias"] = rng.normal(0, 0.5, CLASSES).astype(np.float32)
    return tensors
