"""EfficientNet-Lite image classifiers, from the weights that torch saved to an ONNX model folder, without torch.

The network: Tan and Le, "EfficientNet", 2019, in its Lite form: a stem, seven stages of inverted bottlenecks (expand,
depthwise convolution, project; a shortcut where shapes allow), a head, the mean over all places, one linear layer.
Names of tensors are those of the port that the weights come from. Not here: reading the file (`torch_file.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from ..checks import index_value
from ..class_labels import LabelSource, read_labels
from ..codes import INVALID_DATA, NOT_SUPPORTED
from .config_files import MODEL_FILE, write_json
from .graph import GraphBuilder
from .new_folder import new_folder
from .torch_file import Array, read_torch_file

CONTEXT = "convert_efficientnet"
_OPSET = 18
_EPSILON = 1e-3
"""Of the batch norms."""
_STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Step of the first depthwise convolution of each stage."""
_SIZES = {(320, 16): 224, (320, 21): 240, (352, 21): 260, (384, 24): 280, (448, 30): 300}
"""Side of the pictures that Lite 0 to 4 were trained on, by channels of the last stage and number of blocks."""
_MARGIN = 32
"""Pixels that are cut off, half on each side, when a picture has been shrunk to `size + _MARGIN`."""
_MEAN, _DEVIATION = 127.0, 128.0
_COLOURS = 3


@dataclass(frozen=True, slots=True)
class ConvertedClassifier:
    """An ONNX folder of an image classifier that was made from the weights of another framework."""

    folder: Path
    model_path: Path
    """The `.onnx` file inside."""
    class_count: int
    input_size: int
    """Side of the square pictures that it takes, in pixels."""
    size_in_bytes: int
    """Of all files."""


def convert_efficientnet(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    labels: LabelSource | None = None,
    size: int | None = None,
) -> ConvertedClassifier:
    """Write an EfficientNet-Lite that `torch.save` wrote (`.pth`) as an ONNX model folder.

    The folder gets `model.onnx` (input `pixel_values` float32 [batch, 3, size, size], output `logits` float32 [batch,
    classes]; batch norms are folded into the convolutions) and the files that say how it is used, as Hugging Face has
    them: `preprocessor_config.json`, and `config.json` with the labels. `genai.load_classifier` takes the folder.

    labels: names of the classes, or a file of them (text with one a line, or JSON); without them classes have numbers
    only. size: side of the pictures, where the network is none of Lite 0 to 4, whose sizes are known.

    The folder must not exist or be empty (else FileExistsError); it appears complete under its name or not at all. The
    file of torch is read, never unpickled: nothing in it is executed. WinMLError: 0x80070002 for a missing file,
    0x80070570 for a broken one, 0x80070032 for another network, 0x8007000D for tensors or labels that do not fit.
    """
    path = os.fspath(source)
    tensors = _Tensors(path, read_torch_file(path))
    classes = tensors.shape("_fc.weight", 2)[0]
    names = None if labels is None else read_labels(labels)
    if names is not None and len(names) != classes:
        raise _invalid(path, f"there are {len(names)} labels for {classes} classes")
    side = tensors.input_size() if size is None else index_value(size, "size", 1 << 14, 32)
    with new_folder(Path(folder)) as partial:
        graph = GraphBuilder(None)
        _build(graph, tensors, side, classes)
        tensors.check_all_used()
        graph.save(partial / MODEL_FILE, _OPSET, "efficientnet-lite")
        write_json(partial / "preprocessor_config.json", _preprocessing(side), indent=2)
        write_json(partial / "config.json", _config(names, side), indent=2)
        total = sum(file.stat().st_size for file in partial.iterdir())
    return ConvertedClassifier(Path(folder), Path(folder) / MODEL_FILE, classes, side, total)


class _Tensors:
    """The tensors of the file; each is checked when it is taken, and none may be left over."""

    def __init__(self, path: str, arrays: dict[str, Array]) -> None:
        self.path = path
        self._arrays = arrays
        self._left = {name for name in arrays if not name.endswith(".num_batches_tracked")}
        foreign = next((name for name in arrays if "_se_reduce" in name), None)
        if foreign is not None:
            raise self._refused(f"{foreign} is of an EfficientNet-B; the Lite form is converted")

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor that must be there and be no empty one."""
        array = self._arrays.get(name)
        if array is None:
            raise self._refused(f"there is no {name}, as an EfficientNet-Lite has it")
        if array.ndim != rank or not array.size:
            raise _invalid(self.path, f"{name} has the shape {list(array.shape)}")
        return array.shape

    def take(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return a tensor of exactly that shape."""
        if self.shape(name, len(shape)) != shape:
            found = list(self._arrays[name].shape)
            raise _invalid(self.path, f"{name} has the shape {found} where {list(shape)} is wanted")
        self._left.discard(name)
        array = self._arrays[name].astype(np.float64)
        if not np.isfinite(array).all():
            raise _invalid(self.path, f"{name} holds numbers that are not finite")
        return array

    def blocks(self) -> Iterator[tuple[str, int]]:
        """Yield the prefix of each block and the step of its depthwise convolution."""
        stage, before = -1, 0
        for index in range(len(self._arrays)):
            prefix = f"_blocks.{index}."
            if f"{prefix}_project_conv.weight" not in self:
                return
            channels = self.shape(f"{prefix}_project_conv.weight", 4)[0]
            starts_stage = channels != before
            stage, before = stage + starts_stage, channels
            if stage >= len(_STRIDES):
                raise self._refused(f"{prefix}_project_conv.weight begins a stage after the last of {len(_STRIDES)}")
            yield prefix, _STRIDES[stage] if starts_stage else 1

    def input_size(self) -> int:
        """Return the side of the pictures of a network that is known."""
        names = [prefix for prefix, _ in self.blocks()]
        channels = self.shape(f"{names[-1]}_project_conv.weight", 4)[0] if names else 0
        if (channels, len(names)) not in _SIZES:
            raise self._refused(
                f"{len(names)} blocks that end with {channels} channels are none of Lite 0 to 4: give size"
            )
        return _SIZES[channels, len(names)]

    def check_all_used(self) -> None:
        """Refuse a network that has more than was converted."""
        if self._left:
            raise self._refused(f"{min(self._left)} is of no EfficientNet-Lite")

    def _refused(self, text: str) -> WinMLError:
        return WinMLError(NOT_SUPPORTED, CONTEXT, f"{self.path}: {text}")


def _invalid(path: str, text: str) -> WinMLError:
    return WinMLError(INVALID_DATA, CONTEXT, f"{path}: {text}")


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution and the batch norm behind it."""

    weight: str
    norm: str
    stride: int = 1
    is_depthwise: bool = False
    is_bounded: bool = True
    """Whether values are then bounded to 0..6."""


def _build(graph: GraphBuilder, tensors: _Tensors, side: int, classes: int) -> None:
    value = graph.input("pixel_values", np.float32, ["batch", _COLOURS, side, side])
    value, channels = _convolve(graph, tensors, value, _COLOURS, _Convolution("_conv_stem", "_bn0", stride=2))
    for prefix, stride in tensors.blocks():
        value, channels = _block(graph, tensors, (value, channels), prefix, stride)
    value, channels = _convolve(graph, tensors, value, channels, _Convolution("_conv_head", "_bn1"))
    flat = graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])
    weight = _weight(graph, "_fc.weight", tensors.take("_fc.weight", (classes, channels)))
    bias = _weight(graph, "_fc.bias", tensors.take("_fc.bias", (classes,)))
    logits = graph.output("logits", np.float32, ["batch", classes])
    graph.node("Gemm", [flat, weight, bias], output=logits, transB=1)


def _block(graph: GraphBuilder, tensors: _Tensors, given: tuple[str, int], prefix: str, stride: int) -> tuple[str, int]:
    """Add an inverted bottleneck; return its output and the channels of it."""
    value, channels = given
    if f"{prefix}_expand_conv.weight" in tensors:
        expand = _Convolution(f"{prefix}_expand_conv", f"{prefix}_bn0")
        value, channels = _convolve(graph, tensors, value, channels, expand)
    depthwise = _Convolution(f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride, is_depthwise=True)
    value, channels = _convolve(graph, tensors, value, channels, depthwise)
    project = _Convolution(f"{prefix}_project_conv", f"{prefix}_bn2", is_bounded=False)
    value, channels = _convolve(graph, tensors, value, channels, project)
    if stride == 1 and channels == given[1]:
        value = graph.node("Add", [value, given[0]])
    return value, channels


def _convolve(
    graph: GraphBuilder, tensors: _Tensors, value: str, channels: int, layer: _Convolution
) -> tuple[str, int]:
    """Add a convolution with its batch norm folded in; return its output and the channels of it."""
    outputs, _, height, width = tensors.shape(f"{layer.weight}.weight", 4)
    inputs = 1 if layer.is_depthwise else channels
    if layer.is_depthwise and outputs != channels:
        raise _invalid(tensors.path, f"{layer.weight}.weight has {outputs} filters for {channels} channels")
    weight = tensors.take(f"{layer.weight}.weight", (outputs, inputs, height, width))
    scale, shift, mean, variance = (
        tensors.take(f"{layer.norm}.{part}", (outputs,)) for part in ("weight", "bias", "running_mean", "running_var")
    )
    if variance.min() < 0:
        raise _invalid(tensors.path, f"{layer.norm}.running_var holds a negative number")
    scale = scale / np.sqrt(variance + _EPSILON)
    value = graph.node(
        "Conv",
        [
            value,
            _weight(graph, f"{layer.weight}.weight", weight * scale[:, None, None, None]),
            _weight(graph, f"{layer.weight}.bias", shift - mean * scale),
        ],
        kernel_shape=[height, width],
        strides=[layer.stride] * 2,
        auto_pad="SAME_UPPER",
        group=outputs if layer.is_depthwise else 1,
    )
    if layer.is_bounded:
        value = graph.node("Clip", [value, graph.number(0.0), graph.number(6.0)])
    return value, outputs


def _weight(graph: GraphBuilder, name: str, array: npt.NDArray[np.float64]) -> str:
    return graph.weight(name, array.shape, np.float32, [array.astype(np.float32)])


def _preprocessing(side: int) -> dict[str, object]:
    return {
        "do_resize": True,
        "size": {"shortest_edge": side + _MARGIN},
        "do_center_crop": True,
        "crop_size": {"height": side, "width": side},
        "do_rescale": False,
        "do_normalize": True,
        "image_mean": [_MEAN] * _COLOURS,
        "image_std": [_DEVIATION] * _COLOURS,
    }


def _config(names: tuple[str, ...] | None, side: int) -> dict[str, object]:
    labels = {} if names is None else {"id2label": {str(number): name for number, name in enumerate(names)}}
    return {"model_type": "efficientnet", "image_size": side, **labels}
