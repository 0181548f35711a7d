"""What the files beside an image classifier say: labels, and what is done to a picture, as Hugging Face has them.

Read are `config.json` (`id2label`), `labels.txt` and `preprocessor_config.json`. Not here: the graph itself
(`classifier_loading.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winml_lite import ImageResizeMode, NotSupportedError, TensorChannelOrder, TensorNormalization, WinMLError

from .class_labels import labels_of, read_labels
from .codes import INVALID_DATA, NOT_SUPPORTED
from .image_preprocessing import Size
from .reading import read_json_if_there

_CONTEXT = "genai.load_classifier"
_CROPPED_BELOW = 384
"""Pictures of `crop_pct` are cut when they are smaller than this, as ConvNeXT does it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How a picture comes to the size of the model."""

    size: Size
    resized: Size
    """What it has before its middle of `size` is cut out."""
    resize_mode: ImageResizeMode


@dataclass(frozen=True, slots=True)
class ClassifierFolder:
    """What a folder says; None where it says nothing."""

    labels: tuple[str, ...] | None = None
    sizes: Sizes | None = None
    normalization: TensorNormalization | None = None
    channel_order: TensorChannelOrder | None = None


def read_classifier_folder(folder: Path) -> ClassifierFolder:
    """Read how a folder wants its model used.

    WinMLError 0x8007000D for broken files, NotSupportedError 0x80070032 for steps that are not done here, by name.
    """
    config = read_json_if_there(folder / "config.json", _CONTEXT)
    if config.get("problem_type") == "multi_label_classification":
        text = f"{folder / 'config.json'}: the model gives several labels to a picture; one label is found here"
        raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
    labels = _labels(folder, config)
    path = folder / "preprocessor_config.json"
    steps = read_json_if_there(path, _CONTEXT)
    if not steps:
        return ClassifierFolder(labels)
    try:
        order = TensorChannelOrder.BGR if steps.get("do_flip_channel_order") is True else TensorChannelOrder.RGB
        return ClassifierFolder(labels, _sizes(steps), _normalization(steps), order)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{path}: {error}") from None


def _labels(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...] | None:
    path = folder / "labels.txt"
    if path.is_file():
        return read_labels(path)
    if not config.get("id2label"):
        return None
    try:
        return labels_of(config["id2label"])
    except ValueError as error:
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{folder / 'config.json'}: id2label: {error}") from None


def _sizes(steps: Mapping[str, Any]) -> Sizes:
    if steps.get("do_resize", True) is not True:
        raise ValueError("it does not resize; give size")
    size = steps.get("size")
    crops = steps.get("do_center_crop", "crop_size" in steps) is True
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return _of_shortest_edge(steps, _count(size["shortest_edge"], "size"), crops)
    if isinstance(size, int) and crops:
        return _of_shortest_edge(steps, _count(size, "size"), crops)
    resized = _pair(size, "size")
    cut = _pair(steps.get("crop_size"), "crop_size") if crops else resized
    _check_cut(cut, resized)
    return Sizes(cut, resized, ImageResizeMode.STRETCH)


def _of_shortest_edge(steps: Mapping[str, Any], edge: int, crops: bool) -> Sizes:
    """The shorter side becomes `edge` pixels long, and the middle is cut out."""
    share = steps.get("crop_pct")
    if crops:
        cut = _pair(steps.get("crop_size"), "crop_size")
    elif share is None:
        raise ValueError("pictures keep their proportions and are not cut, so their sizes differ; give size")
    else:
        cut = edge, edge
        if edge >= _CROPPED_BELOW:
            return Sizes(cut, cut, ImageResizeMode.STRETCH)
        edge = int(edge / _number(share, "crop_pct"))
    _check_cut(cut, (edge, edge))
    return Sizes(cut, (edge, edge), ImageResizeMode.CENTER_CROP)


def _check_cut(cut: Size, resized: Size) -> None:
    if cut[0] > resized[0] or cut[1] > resized[1]:
        raise ValueError(f"{cut[0]} x {cut[1]} cannot be cut out of {resized[0]} x {resized[1]} pixels; give size")


def _normalization(steps: Mapping[str, Any]) -> TensorNormalization:
    """Turn `(value * factor + offset - mean) / deviation` into `(value - mean) * scale`."""
    factor, offset = 1.0, 0.0
    if steps.get("do_rescale", True) is True:
        factor = _number(steps.get("rescale_factor", 1 / 255), "rescale_factor")
        offset = -1.0 if steps.get("rescale_offset") is True else 0.0
    means, deviations = [0.0], [1.0]
    if steps.get("do_normalize", "image_mean" in steps) is True:
        means, deviations = (_numbers(steps.get(name), name) for name in ("image_mean", "image_std"))
    if steps.get("include_top") is True:  # of EfficientNet: its last layer was trained on values divided twice
        deviations = [value * value for value in deviations]
    scales = [factor / value for value in deviations]
    centres = [(value - offset) / factor for value in means]
    return TensorNormalization(_four(scales), _four(centres))


def _four(values: list[float]) -> tuple[float, float, float, float]:
    if len(values) == 1:
        values = values * 3
    red, green, blue = values
    return red, green, blue, 0.0


def _numbers(values: Any, name: str) -> list[float]:
    found = values if isinstance(values, list) else [values]
    if len(found) not in (1, 3):
        raise ValueError(f"{name} has {len(found)} numbers, not one or three")
    return [_number(value, name, may_be_zero=name == "image_mean") for value in found]


def _number(value: Any, name: str, may_be_zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is missing or no number")
    if not may_be_zero and not value > 0:
        raise ValueError(f"{name} must be above 0, not {value}")
    return float(value)


def _pair(size: Any, name: str) -> Size:
    """Return width and height."""
    if isinstance(size, Mapping):
        return _count(size.get("width"), name), _count(size.get("height"), name)
    return _count(size, name), _count(size, name)


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 14:
        raise ValueError(f"{name} is missing or no number of pixels")
    return value
