"""`genai.load_classifier`: from a path or a catalog name to a model that says what is in a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from winml_lite import (
    ImageResizeMode,
    Model,
    NotSupportedError,
    Runtime,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorNormalization,
    WinMLError,
)

from .checks import enum_value, index_value
from .class_labels import LabelSource, read_labels
from .classifier import ImageClassifier
from .classifier_folder import ClassifierFolder, Sizes, read_classifier_folder
from .classifier_stage import ClassifierStage
from .codes import E_INVALIDARG, INVALID_DATA, NOT_SUPPORTED
from .endpoints import FREE_DIMENSION
from .image_preprocessing import ImagePreprocessing, Size
from .model_folder import find_model_file
from .model_source import CustomOperators, Progress, build_options, naming, resolve
from .placement import Target, placement
from .session_settings import SessionSettings, session_settings

Normalization: TypeAlias = TensorNormalization | Literal["imagenet", "unit", "symmetric", "none"]
"""What is done to values 0..255; by name: mean and deviation of ImageNet, to 0..1, to -1..1, nothing."""

_CONTEXT = "genai.load_classifier"
_LARGEST_SIDE = 1 << 14
_NORMALIZATIONS = {
    "imagenet": TensorNormalization.imagenet(),
    "unit": TensorNormalization.unit(),
    "symmetric": TensorNormalization((1 / 127.5,) * 4, (127.5,) * 4),
    "none": TensorNormalization.identity(),
}
_INPUT_TYPES = (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8)
_OUTPUT_TYPES = (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.FLOAT64)


@naming(_CONTEXT)
def load_classifier(
    source: str | os.PathLike[str] = "efficientnet-lite0",
    *,
    labels: LabelSource | None = None,
    size: int | Size | None = None,
    normalization: Normalization | None = None,
    resize_mode: ImageResizeMode | None = None,
    channel_order: TensorChannelOrder | None = None,
    threads: int | None = None,
    target: Target = None,
    provider: str | None = None,
    provider_options: Mapping[str, str] | None = None,
    custom_operators: CustomOperators = (),
    offline: bool = False,
    progress: Progress | None = None,
) -> ImageClassifier:
    """Load a model that names what is in a picture.

    `source` is a name of the catalog, an `.onnx` or `.ort` file, or a model folder as Hugging Face has it: `model.onnx`
    there or in `onnx/`, `config.json` or `labels.txt` with the labels, `preprocessor_config.json` with what is done to
    a picture. For a lone file the files beside it count as the folder's. The graph has one input of four dimensions
    (NCHW or NHWC; float32, float16 or uint8) and one output with a number per class.

    What the folder says can be said, or overruled, by arguments:

    labels: a file of labels (one a line, or JSON), or the labels themselves. Without any, labels are "class 281".
    size: (width, height) of the model's pictures, or one number for both; needed where the graph does not say it.
    normalization: a `TensorNormalization`, "imagenet" (its mean and deviation), "unit" (0..1), "symmetric" (-1..1) or
        "none" (0..255). A model of floats whose folder does not say it needs it: a wrong one gives wrong answers that
        nothing betrays. Models of uint8 take pixels as they are.
    resize_mode: CENTER_CROP where nothing else is said. channel_order: RGB, BGR, or GRAY for models of one channel.
    threads, target, provider, provider_options, custom_operators, offline, progress: as for `genai.load`.

    Raises WinMLError: 0x80070002 for a missing file, 0x80070570 for an unreadable one, 0x80070032 for a graph that is
    no such classifier or whose use is not known, 0x80070057 for a model of another kind, 0x8007000D for files that
    contradict each other.
    """
    place = placement(target, provider, provider_options)
    options = build_options(None, threads, place, (), custom_operators)
    wanted = _Wanted(
        None if labels is None else read_labels(labels),
        None if size is None else _checked_size(size),
        None if normalization is None else _checked_normalization(normalization),
        None if resize_mode is None else enum_value(resize_mode, ImageResizeMode, "resize_mode"),
        None if channel_order is None else enum_value(channel_order, TensorChannelOrder, "channel_order"),
    )
    name, path = resolve(source, "ort", offline, progress, ("image-classifier",))
    if path.suffix.lower() == ".gguf":
        text = f"{path} is a GGUF model; an image classifier is an .onnx or .ort file, or its folder"
        raise WinMLError(E_INVALIDARG, _CONTEXT, text)
    file = find_model_file(path) if path.is_dir() else path
    folder = path if path.is_dir() else path.parent
    if folder.name == "onnx" and not (folder / "preprocessor_config.json").is_file():
        folder = folder.parent
    said = read_classifier_folder(folder)
    runtime = Runtime()
    with runtime.load_model(file) as model:
        ports = _ports(model, file)
        preprocessing = _preprocessing(file, ports, wanted, said)
        stage = _build(runtime, model, ports, session_settings(options, file))
    classes = ports.class_count
    if classes is None:  # the graph does not say it: what it gives does
        classes = stage.run(preprocessing.array(runtime, np.zeros((1, 1, 3), np.uint8))).shape[1]
    found = wanted.labels or said.labels
    if found is not None and len(found) != classes:
        stage.close()
        raise WinMLError(INVALID_DATA, _CONTEXT, f"{file} has {classes} classes, and there are {len(found)} labels")
    return ImageClassifier(name, str(file), stage, preprocessing, found, classes)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the caller says; None where nothing is said."""

    labels: tuple[str, ...] | None
    size: Size | None
    normalization: TensorNormalization | None
    resize_mode: ImageResizeMode | None
    channel_order: TensorChannelOrder | None


def _checked_size(size: int | Size) -> Size:
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"size must be width and height, or one number for both, not {size!r}")
    width, height = (index_value(side, "size", _LARGEST_SIDE, 1) for side in pair)
    return width, height


def _checked_normalization(value: Normalization) -> TensorNormalization:
    if isinstance(value, TensorNormalization):
        return value
    if not isinstance(value, str):
        raise TypeError(f"normalization must be a TensorNormalization or a name, not {type(value).__name__}")
    if value not in _NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {', '.join(_NORMALIZATIONS)}, not {value!r}")
    return _NORMALIZATIONS[value]


@dataclass(frozen=True, slots=True)
class _Ports:
    """What the graph takes and gives."""

    layout: TensorLayout
    channels: int
    size: tuple[int | None, int | None]
    """Width and height; None where the graph leaves them open."""
    data_type: TensorDataType
    batch: int | None
    output: int
    class_count: int | None


def _ports(model: Model, file: Path) -> _Ports:
    """Find the picture and the classes; NotSupportedError 0x80070032 that names the ports of another graph."""
    schema, names = model.schema(), model.ort_schema()
    inputs = {names.input_name(index): schema.input_desc(index) for index in range(schema.input_count)}
    outputs = {names.output_name(index): schema.output_desc(index) for index in range(schema.output_count)}
    if len(inputs) != 1:
        raise _refused(f"{file} is no image classifier: it has the inputs {list(inputs)}, not one picture")
    [(name, (data_type, dimensions))] = inputs.items()
    shown = f"its input {name!r} is {data_type.name} {_shown(dimensions)}"
    if len(dimensions) != 4 or data_type not in _INPUT_TYPES:
        text = "a picture has 4 dimensions of FLOAT32, FLOAT16 or UINT8"
        raise _refused(f"{file} is no image classifier: {shown}; {text}")
    if dimensions[1] in (1, 3):
        layout, channels, height, width = TensorLayout.NCHW, *dimensions[1:]
    elif dimensions[3] in (1, 3):
        layout, height, width, channels = TensorLayout.NHWC, *dimensions[1:]
    else:
        raise _refused(f"{file}: {shown}; neither the second nor the last dimension is 1 or 3 channels")
    output, class_count = _output(file, outputs)
    size = _known(width), _known(height)
    return _Ports(layout, channels, size, data_type, _known(dimensions[0]), output, class_count)


def _output(file: Path, outputs: Mapping[str, tuple[TensorDataType, tuple[int, ...]]]) -> tuple[int, int | None]:
    """Return the index of the output with the classes, and their number if the graph says it."""
    name = next(iter(outputs)) if len(outputs) == 1 else "logits"
    if name not in outputs:
        raise _refused(f"{file} has the outputs {list(outputs)}, and none of them is called 'logits'")
    data_type, dimensions = outputs[name]
    classes = [size for size in dimensions[1:] if size != 1]
    known = [size for size in classes if size != FREE_DIMENSION]
    if data_type not in _OUTPUT_TYPES or len(dimensions) < 2 or len(known) > 1:
        text = f"its output {name!r} is {data_type.name} {_shown(dimensions)}, not a number for each class"
        raise _refused(f"{file} is no image classifier: {text}")
    return list(outputs).index(name), known[0] if len(classes) == 1 and known else None


def _preprocessing(file: Path, ports: _Ports, wanted: _Wanted, said: ClassifierFolder) -> ImagePreprocessing:
    sizes = _sizes(file, ports, wanted, said.sizes)
    normalization = wanted.normalization or said.normalization
    if normalization is None:
        if ports.data_type != TensorDataType.UINT8:
            names = ", ".join(repr(name) for name in _NORMALIZATIONS)
            text = f"neither the graph nor a preprocessor_config.json says it; give normalization, one of {names}"
            raise _refused(f"{file}: how are the colours of a picture brought to the numbers of the model? {text}")
        normalization = TensorNormalization.identity()
    order = wanted.channel_order or said.channel_order or TensorChannelOrder.RGB
    if ports.channels == 1:
        order = wanted.channel_order or TensorChannelOrder.GRAY
    expected = {1: (TensorChannelOrder.GRAY,), 3: (TensorChannelOrder.RGB, TensorChannelOrder.BGR)}[ports.channels]
    if order not in expected:
        raise ValueError(f"channel_order is {order.name}, and the pictures of {file} have {ports.channels} channels")
    return ImagePreprocessing(
        size=sizes.size,
        normalization=normalization,
        resize_mode=sizes.resize_mode,
        resized=sizes.resized,
        channel_order=order,
        layout=ports.layout,
        data_type=ports.data_type,
    )


def _sizes(file: Path, ports: _Ports, wanted: _Wanted, said: Sizes | None) -> Sizes:
    """Settle the size of the pictures: what the caller says, else the folder, else the graph."""
    width, height = ports.size
    size = wanted.size or (said.size if said is not None else None)
    if size is None and width is not None and height is not None:
        size = width, height
    if size is None:
        raise _refused(f"{file}: the graph takes pictures of any size; give size, that of those it was trained on")
    if (width or size[0], height or size[1]) != size:
        graph = " x ".join("any" if side is None else str(side) for side in ports.size)
        text = f"{file} takes pictures of {graph}, not of {size[0]} x {size[1]}"
        raise ValueError(text) if wanted.size else WinMLError(INVALID_DATA, _CONTEXT, f"{text} as its folder says")
    if said is None or wanted.size is not None or wanted.resize_mode is not None:
        return Sizes(size, size, ImageResizeMode.CENTER_CROP if wanted.resize_mode is None else wanted.resize_mode)
    return said


def _build(runtime: Runtime, model: Model, ports: _Ports, session: SessionSettings) -> ClassifierStage:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, session.make_target(runtime), "classifier")
    session.prepare(stage)
    stage.request_output(ports.output)
    pipeline = builder.build()
    session.check([stage])
    return ClassifierStage(runtime, stage, pipeline, ports.output, ports.batch)


def _known(dimension: int) -> int | None:
    return None if dimension == FREE_DIMENSION else dimension


def _shown(dimensions: tuple[int, ...]) -> str:
    return "[" + ", ".join("any" if size == FREE_DIMENSION else str(size) for size in dimensions) + "]"


def _refused(text: str) -> NotSupportedError:
    return NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
