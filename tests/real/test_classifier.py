"""Image classifiers on ONNX Runtime: tiny ones, against plain ONNX Runtime and plain NumPy."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

import genai
from fakes.model_files import require_engine
from fakes.reference_efficientnet import logits as reference_logits
from fakes.rig import failing
from genai import codes
from genai.convert import convert_efficientnet
from models.classifier_models import (
    COLOURS,
    SMALL_SIDE,
    ColourShape,
    colour_graph,
    efficientnet_weights,
    write_colour_folder,
)
from models.onnx_models import add
from models.torch_files import archive, state, torch_file
from winml_lite import ExecutionTargetKind, ImageResizeMode, NotSupportedError, TensorChannelOrder, TensorNormalization

pytestmark = pytest.mark.real

RED, GREEN, BLUE = ([255, 0, 0], [0, 255, 0], [0, 0, 255])


@pytest.fixture(autouse=True)
def engine() -> None:
    """Every test here runs a graph."""
    require_engine("ort")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The colour classifier as a model folder."""
    return write_colour_folder(tmp_path / "colours")


@pytest.fixture
def model(folder: Path) -> Iterator[genai.ImageClassifier]:
    """The colour classifier, loaded."""
    with genai.load_classifier(folder, threads=1) as model:
        yield model


def plain(colour: list[int], height: int = 8, width: int = 8) -> npt.NDArray[np.uint8]:
    """A picture of one colour."""
    return np.full((height, width, 3), colour, np.uint8)


def saved(folder: Path, shape: ColourShape) -> Path:
    """A colour classifier in a file of its own."""
    path = folder / "model.onnx"
    onnx.save(colour_graph(shape), path)
    return path


def loaded(folder: Path, shape: ColourShape, **options: Any) -> genai.ImageClassifier:
    """A colour classifier without a folder that says how it is used."""
    return genai.load_classifier(saved(folder, shape), **{"normalization": "unit", "threads": 1, **options})


def names(labels: tuple[genai.ImageLabel, ...]) -> list[str]:
    """The labels alone."""
    return [label.label for label in labels]


# Answers


def test_labels_come_with_their_probabilities_the_likeliest_first(model: genai.ImageClassifier) -> None:
    # Red is (1, -1, -1) for the model: logits 8, -4, -4 and -1.
    red, gray, green, blue = model.classify(plain(RED))
    assert (red.index, red.label) == (0, "red")
    assert [label.label for label in (gray, green, blue)] == ["gray", "green", "blue"]
    assert red.probability == pytest.approx(np.exp(8) / (np.exp(8) + 2 * np.exp(-4) + np.exp(-1)), rel=1e-6)
    assert sum(label.probability for label in (red, gray, green, blue)) == pytest.approx(1, abs=1e-6)


def test_top_labels_only(model: genai.ImageClassifier) -> None:
    assert names(model.classify(plain(BLUE), top=2)) == ["blue", "gray"]
    assert len(model.classify(plain(BLUE), top=1000)) == 4
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error):
            model.classify(plain(BLUE), top=wrong)  # type: ignore[arg-type]


def test_several_pictures_at_once(model: genai.ImageClassifier) -> None:
    pictures = [plain(RED), plain(GREEN, 30, 20), plain(BLUE)]
    assert [names(labels) for labels in model.classify(pictures, top=1)] == [["red"], ["green"], ["blue"]]
    assert [names(labels) for labels in model.classify(iter(pictures), top=1)] == [["red"], ["green"], ["blue"]]
    assert model.classify([]) == []
    assert model.logits([]).shape == (0, 4)


def test_more_pictures_than_a_run_takes(model: genai.ImageClassifier) -> None:
    found = model.classify([plain(RED), plain(BLUE)] * 20, top=1)
    assert [labels[0].label for labels in found] == ["red", "blue"] * 20


def test_logits_are_those_of_the_graph(model: genai.ImageClassifier) -> None:
    assert model.logits(plain(RED)).tolist() == pytest.approx([8, -4, -4, -1], abs=1e-5)
    assert model.logits([plain(RED)]).shape == (1, 4)


def test_logits_equal_plain_onnx_runtime_over_the_same_input(model: genai.ImageClassifier, folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    picture = np.random.default_rng(3).integers(0, 256, (40, 50, 3), np.uint8)
    [wanted] = session.run(None, {"pixels": model.preprocess(picture)})
    assert model.logits(picture).tobytes() == wanted[0].tobytes()


def test_a_graph_that_gives_probabilities_is_believed(tmp_path: Path) -> None:
    with loaded(tmp_path, ColourShape(gives_probabilities=True)) as model:
        red = model.classify(plain(RED))[0]
        assert (red.label, red.probability) == ("class 0", pytest.approx(model.logits(plain(RED))[0]))
        # logits 4, -2, -2, 1
        assert red.probability == pytest.approx(np.exp(4) / (np.exp(4) + 2 * np.exp(-2) + np.exp(1)), rel=1e-6)


# Pictures


def test_every_kind_of_picture(model: genai.ImageClassifier, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(plain(GREEN, 20, 30))
    path = tmp_path / "green.png"
    picture.save(path)
    for source in (
        picture,
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        io.BytesIO(path.read_bytes()),
    ):
        assert model.classify(source, top=1)[0].label == "green"
    with path.open("rb") as file:
        assert model.classify(file, top=1)[0].label == "green"
    assert names(model.classify(np.full((5, 5), 200, np.uint8), top=1)) == ["gray"]


def test_a_photo_is_turned_upright(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = plain(RED, 10, 20)
    pixels[:, 10:] = BLUE
    exif = image.Exif()
    exif[274] = 6  # to be turned clockwise: what is on the right comes to the bottom
    image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    with loaded(tmp_path, ColourShape(), resize_mode=ImageResizeMode.STRETCH) as model:
        turned = model.preprocess(tmp_path / "photo.png")[0]
    assert (turned[0, 0, 0], turned[2, 0, 0]) == (1, 0)
    assert (turned[0, 7, 0], turned[2, 7, 0]) == (0, 1)


def test_what_is_no_picture(model: genai.ImageClassifier, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "text.png").write_text("text")
    for source, code in ((tmp_path / "text.png", codes.FILE_CORRUPT), (tmp_path / "no.png", codes.FILE_NOT_FOUND)):
        with failing(code) as caught:
            model.classify(source)
        assert source.name in str(caught.value)
    for wrong in (5, None, [5], [None], plain(RED).astype(np.float32)):
        with pytest.raises(TypeError):
            model.classify(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="height, width"):
        model.classify(np.zeros((2, 8, 8, 3), np.uint8))


# Graphs


@pytest.mark.parametrize(
    "shape",
    [
        ColourShape(layout="NHWC"),
        ColourShape(batch=1),
        ColourShape(batch=3),
        ColourShape(element_type=TensorProto.FLOAT16),
        ColourShape(class_count="classes"),
        ColourShape(layout="NHWC", batch=1, element_type=TensorProto.FLOAT16),
    ],
    ids=str,
)
def test_every_form_of_a_graph(tmp_path: Path, shape: ColourShape) -> None:
    with loaded(tmp_path, shape, labels=COLOURS) as model:
        assert model.class_count == 4
        found = model.classify([plain(RED), plain(GREEN), plain(BLUE), plain(RED)], top=1)
    assert [labels[0].label for labels in found] == ["red", "green", "blue", "red"]


def test_a_graph_of_bytes_takes_pixels_as_they_are(tmp_path: Path) -> None:
    with loaded(tmp_path, ColourShape(element_type=TensorProto.UINT8), normalization=None) as model:
        assert model.preprocess(plain(RED)).dtype == np.uint8
        assert model.logits(plain(RED)).tolist() == [1020, -510, -510, 255]


def test_a_graph_of_any_size_needs_one(tmp_path: Path) -> None:
    with failing(codes.NOT_SUPPORTED, NotSupportedError) as caught:
        loaded(tmp_path, ColourShape(side="side"))
    assert "the graph takes pictures of any size; give size" in str(caught.value)
    with loaded(tmp_path, ColourShape(side="side"), size=(12, 20)) as model:
        assert model.preprocess(plain(RED)).shape == (1, 3, 20, 12)
    with loaded(tmp_path, ColourShape(side="side"), size=6) as model:
        assert model.preprocess(plain(RED)).shape == (1, 3, 6, 6)


def test_a_graph_of_blue_green_red(tmp_path: Path) -> None:
    with loaded(tmp_path, ColourShape(), channel_order=TensorChannelOrder.BGR, labels=COLOURS) as model:
        assert model.classify(plain(RED), top=1)[0].label == "blue"


def test_a_graph_of_one_channel_takes_gray(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 18]> f (float[n, 1, 2, 2] x) => (float[n, 4] y) { y = Flatten (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "gray.onnx")
    with genai.load_classifier(tmp_path / "gray.onnx", normalization="none") as model:
        assert model.logits(plain(RED, 2, 2)).tolist() == [76, 76, 76, 76]  # 0.299 * 255 = 76.2
    with pytest.raises(ValueError, match=r"channel_order is BGR, and the pictures of .* have 1 channels"):
        genai.load_classifier(tmp_path / "gray.onnx", normalization="none", channel_order=TensorChannelOrder.BGR)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet"])
def test_graphs_of_the_field(name: str) -> None:
    # Known networks with weights that are all alike, in the package onnx; outputs are [1, 1000] or [1, 1000, 1, 1].
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    with genai.load_classifier(folder / f"light_{name}.onnx", normalization="imagenet", threads=2) as model:
        assert (model.class_count, model.preprocessing.size) == (1000, (224, 224))
        assert sum(label.probability for label in model.classify(plain(RED), top=1000)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "red", "green"), [("imagenet", 2.2489083, -2.0357143), ("symmetric", 1, -1), ("none", 255, 0)]
)
def test_normalizations_by_name(tmp_path: Path, name: Any, red: float, green: float) -> None:
    # (1 - 0.485) / 0.229 = 2.2489; (0 - 0.456) / 0.224 = -2.0357
    with loaded(tmp_path, ColourShape(), normalization=name) as model:
        found = model.preprocess(plain(RED))[0, :2, 0, 0]
    assert found.tolist() == pytest.approx([red, green], abs=1e-5)


def graph_of(inputs: list[Any], outputs: list[Any], folder: Path) -> Path:
    """A graph with these ports and one node for each output."""
    nodes = [helper.make_node("Identity", [inputs[0].name], [output.name]) for output in outputs]
    graph = helper.make_graph(nodes, "other", inputs, outputs)
    path = folder / "other.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def port(name: str, kind: int, *dimensions: int | str) -> Any:
    """An input or an output."""
    return helper.make_tensor_value_info(name, kind, dimensions)


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ([port("x", FLOAT, 1, 3, 8)], [port("y", FLOAT, 1, 4)], "its input 'x' is FLOAT32 [1, 3, 8]"),
        ([port("x", INT64, 1, 3, 8, 8)], [port("y", FLOAT, 1, 4)], "its input 'x' is INT64 [1, 3, 8, 8]"),
        ([port("x", FLOAT, "n", 4, 8, 8)], [port("y", FLOAT, 1, 4)], "[any, 4, 8, 8]; neither the second nor the last"),
        ([port("x", FLOAT, 1, 3, 8, 8)], [port("y", INT64, 1, 4)], "its output 'y' is INT64 [1, 4]"),
        ([port("x", FLOAT, 1, 3, 8, 8)], [port("y", FLOAT, 4)], "its output 'y' is FLOAT32 [4]"),
        ([port("x", FLOAT, 1, 3, 8, 8)], [port("y", FLOAT, 1, 9, 8, 8)], "[1, 9, 8, 8], not a number for each class"),
        (
            [port("x", FLOAT, 1, 3, 8, 8)],
            [port("y", FLOAT, 1, 4), port("z", FLOAT, 1, 4)],
            "has the outputs ['y', 'z'], and none of them is called 'logits'",
        ),
    ],
)
def test_other_graphs_are_refused_with_their_ports(tmp_path: Path, inputs: Any, outputs: Any, said: str) -> None:
    with failing(codes.NOT_SUPPORTED, NotSupportedError) as caught:
        genai.load_classifier(graph_of(inputs, outputs, tmp_path), normalization="unit")
    assert said in str(caught.value)


def test_a_graph_of_two_inputs_is_refused(tmp_path: Path) -> None:
    onnx.save(add(), tmp_path / "add.onnx")
    with failing(codes.NOT_SUPPORTED, NotSupportedError) as caught:
        genai.load_classifier(tmp_path / "add.onnx")
    assert "it has the inputs ['A', 'B'], not one picture" in str(caught.value)


def test_an_output_whose_shape_is_known_only_when_it_is_there(tmp_path: Path) -> None:
    path = graph_of([port("x", FLOAT, "n", 3, 8, 8)], [port("y", FLOAT, "n", "c", "h", "w")], tmp_path)
    with failing(codes.INVALID_DATA) as caught:
        genai.load_classifier(path, normalization="unit")
    assert "the model gives the shape [1, 3, 8, 8], not a number for each class" in str(caught.value)


def test_numbers_that_are_none(tmp_path: Path) -> None:
    nothing = TensorNormalization((float("nan"),) * 4)
    with loaded(tmp_path, ColourShape(), normalization=nothing) as model, failing(codes.INVALID_DATA) as caught:
        model.classify(plain(RED))
    assert "the model gave NaN or infinity" in str(caught.value)


# What must be known


def test_a_model_whose_colours_are_not_known_is_refused(tmp_path: Path) -> None:
    with failing(codes.NOT_SUPPORTED, NotSupportedError) as caught:
        genai.load_classifier(saved(tmp_path, ColourShape()))
    assert "give normalization, one of 'imagenet', 'unit', 'symmetric', 'none'" in str(caught.value)


def test_files_beside_a_lone_file_count(folder: Path) -> None:
    with genai.load_classifier(folder / "model.onnx") as model:
        assert model.labels == COLOURS
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    with genai.load_classifier(folder) as model:
        assert model.labels == COLOURS


def test_arguments_win_over_the_folder(folder: Path) -> None:
    with genai.load_classifier(folder, labels=["a", "b", "c", "d"], normalization="unit", size=8) as model:
        assert model.classify(plain(RED), top=1)[0].label == "a"
        assert (model.preprocessing.size, model.preprocessing.resized) == ((8, 8), (8, 8))
        assert model.logits(plain(RED)).tolist() == pytest.approx([4, -2, -2, 1], abs=1e-5)
    with genai.load_classifier(folder, resize_mode=ImageResizeMode.LETTERBOX) as model:
        assert model.preprocessing.resize_mode is ImageResizeMode.LETTERBOX


def test_labels_and_sizes_that_do_not_fit(folder: Path) -> None:
    with failing(codes.INVALID_DATA) as caught:
        genai.load_classifier(folder, labels=["a"])
    assert "has 4 classes, and there are 1 labels" in str(caught.value)
    with pytest.raises(ValueError, match="takes pictures of 8 x 8, not of 9 x 9"):
        genai.load_classifier(folder, size=9)
    steps = {"size": 9, "do_normalize": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(steps))
    with failing(codes.INVALID_DATA) as caught:
        genai.load_classifier(folder)
    assert "takes pictures of 8 x 8, not of 9 x 9 as its folder says" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"size": (1, 2, 3)}, ValueError),
        ({"size": 0}, ValueError),
        ({"size": "8"}, TypeError),
        ({"normalization": "other"}, ValueError),
        ({"normalization": 5}, TypeError),
        ({"resize_mode": 7}, ValueError),
        ({"channel_order": TensorChannelOrder.GRAY}, ValueError),
        ({"labels": 5}, TypeError),
        ({"threads": 0}, ValueError),
        ({"target": "CPU"}, TypeError),
    ],
    ids=str,
)
def test_arguments_that_cannot_be(folder: Path, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        genai.load_classifier(folder, **options)


def test_other_sources(tmp_path: Path) -> None:
    with failing(codes.FILE_NOT_FOUND):
        genai.load_classifier(tmp_path / "missing.onnx")
    with failing(codes.FILE_NOT_FOUND) as caught:
        genai.load_classifier("efficientnet-lite")
    assert "did you mean 'efficientnet-lite0'" in str(caught.value)
    with failing(codes.E_INVALIDARG) as caught:
        genai.load_classifier("smollm2")
    assert "genai.load('smollm2')" in str(caught.value)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with failing(codes.E_INVALIDARG) as caught:
        genai.load_classifier(tmp_path / "model.gguf")
    assert "an image classifier is an .onnx or .ort file" in str(caught.value)


def test_other_loaders_say_what_loads_a_classifier(folder: Path) -> None:
    with failing(codes.NOT_SUPPORTED) as caught:
        genai.load(folder)
    assert "if it classifies pictures, load it with genai.load_classifier" in str(caught.value)
    with failing(codes.E_INVALIDARG) as caught:
        genai.load("efficientnet-lite0")
    assert "genai.load_classifier('efficientnet-lite0')" in str(caught.value)


# Life of a model


def test_a_closed_model_says_so(folder: Path) -> None:
    with genai.load_classifier(folder, target=ExecutionTargetKind.CPU) as model:
        assert repr(model).startswith("<ImageClassifier 'colours' on ONNX Runtime, 4 classes, pictures of 8 x 8, ")
    model.close()
    assert repr(model) == "<ImageClassifier 'colours' (closed)>"
    for call in (lambda: model.classify(plain(RED)), lambda: model.preprocess(plain(RED)), lambda: model.__enter__()):
        with pytest.raises(RuntimeError, match="ImageClassifier is closed"):
            call()


def test_tasks_take_turns(model: genai.ImageClassifier) -> None:
    async def run() -> list[tuple[genai.ImageLabel, ...]]:
        async with model:
            calls = [model.aclassify(plain(colour), top=1) for colour in (RED, GREEN, BLUE) * 10]
            return await asyncio.gather(*calls)

    wanted = model.classify([plain(colour) for colour in (RED, GREEN, BLUE) * 10], top=1)
    assert asyncio.run(run()) == wanted
    with pytest.raises(RuntimeError, match="closed"):
        model.classify(plain(RED))


def test_a_task_that_is_cancelled_leaves_the_model_usable(model: genai.ImageClassifier) -> None:
    wanted = model.logits(plain(RED))

    async def run() -> npt.NDArray[np.float32]:
        task = asyncio.create_task(model.alogits([plain(BLUE)] * 400))
        await asyncio.sleep(0.002)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await model.alogits(plain(RED))

    for _ in range(5):
        np.testing.assert_array_equal(asyncio.run(run()), wanted)


def test_threads_take_turns(model: genai.ImageClassifier) -> None:
    wanted = {"red": RED, "green": GREEN, "blue": BLUE}
    found: dict[str, set[str]] = {name: set() for name in wanted}

    def classify(name: str) -> None:
        for _ in range(30):
            found[name].add(model.classify(plain(wanted[name]), top=1)[0].label)

    threads = [threading.Thread(target=classify, args=(name,)) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: {name} for name in wanted}


# An EfficientNet-Lite


@pytest.mark.parametrize("write", [torch_file, lambda tensors: archive(state(tensors), _storages(tensors))])
def test_a_converted_network_computes_what_numpy_computes(tmp_path: Path, write: Any) -> None:
    tensors = efficientnet_weights()
    (tmp_path / "weights.pth").write_bytes(write(tensors))
    made = convert_efficientnet(tmp_path / "weights.pth", tmp_path / "out", size=SMALL_SIDE)
    picture = np.random.default_rng(4).integers(0, 256, (60, 90, 3), np.uint8)
    with genai.load_classifier(made.folder, threads=1) as model:
        pixels, found = model.preprocess(picture), model.logits(picture)
    wanted = reference_logits(tensors, pixels.astype(np.float64), [1, 2, 1, 2, 2, 1, 1, 2, 1])
    assert pixels.shape == (1, 3, SMALL_SIDE, SMALL_SIDE)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(found, wanted[0], rtol=0, atol=1e-4)


def _storages(tensors: Any) -> dict[str, Any]:
    return {str(number): array for number, array in enumerate(tensors.values())}
