"""`winml-lite classify`: what is in a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import genai
import winml_lite

from . import completion, terminal
from .options import ModelChoice, custom_operators_option, gather, json_option, onnx_model_options
from .several_files import (
    STANDARD_INPUT,
    check_all_read,
    check_before_loading,
    targets,
    tell_unreadable,
    why_unreadable,
    writing,
)

_BAR = 24
_RESIZE_MODES = {"crop": "CENTER_CROP", "stretch": "STRETCH", "letterbox": "LETTERBOX"}
_PREPROCESSING = ("labels", "size", "normalization", "resize_mode", "bgr", "custom_operators")


def _preprocessing_options(command: Any) -> Any:
    """Add what a model is used with whose folder does not say it; the command gets `settings`."""
    command = gather(_PREPROCESSING, _settings, "settings")(command)
    for option in (
        custom_operators_option,
        click.option("--bgr", is_flag=True, help="The model takes blue, green, red."),
        click.option("--resize-mode", type=click.Choice(list(_RESIZE_MODES)), help="How a picture gets its size."),
        click.option(
            "--normalization",
            type=click.Choice(["imagenet", "unit", "symmetric", "none"]),
            help="Mean and deviation of ImageNet, 0..1, -1..1, 0..255.",
        ),
        click.option("--size", metavar="N|WxH", help="Pixels of the pictures that the model takes."),
        click.option(
            "--labels",
            metavar="FILE",
            help="Names of the classes: one a line, or JSON.",
            shell_complete=completion.files,
        ),
    ):
        command = option(command)
    return command


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of `genai.load_classifier`."""
    mode = values["resize_mode"]
    return {
        "labels": values["labels"],
        "size": None if values["size"] is None else _size(values["size"]),
        "normalization": values["normalization"],
        "resize_mode": None if mode is None else winml_lite.ImageResizeMode[_RESIZE_MODES[mode]],
        "channel_order": winml_lite.TensorChannelOrder.BGR if values["bgr"] else None,
        "custom_operators": values["custom_operators"],
    }


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    try:
        return int(width), int(height or width)
    except ValueError:
        raise click.UsageError(f"--size takes a number, or two as in 320x240, not {text!r}") from None


@click.command("classify")
@click.argument("pictures", nargs=-1, required=True, metavar="PICTURE...", shell_complete=completion.files)
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="How many labels to show.")
@click.option("--save", type=click.Path(path_type=Path), help="Draw picture and labels into a file; see above.")
@click.option("--dark", is_flag=True, help="Draw light on dark.")
@onnx_model_options("efficientnet-lite0", "image-classifier")
@_preprocessing_options
@json_option
def command(
    pictures: tuple[str, ...],
    top: int,
    save: Path | None,
    dark: bool,
    choice: ModelChoice,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    """Say what is in pictures.

    \b
    winml-lite classify cat.jpg
    winml-lite classify cat.jpg --save labels.png
    winml-lite classify *.jpg --top 1 --json > labels.json

    PICTURE is a file that Pillow reads (PNG, JPEG, WebP, GIF ...), or "-" for standard input. A picture that cannot be
    read is told, the others are classified all the same, and the exit code is 3; with --json its entry has an "error"
    in place of labels.

    --save draws one picture into the file that it names (.png, .jpg ...), several into a folder.

    The model is a name, an image classifier (.onnx), or its folder. What a folder of Hugging Face says about labels and
    pictures is read; else say it with the options.
    """
    check_before_loading(pictures, "PIL", "reading pictures needs Pillow")
    drawings = targets(pictures, save, "--save", ".png", unnamed="picture")
    for target in drawings:
        if target is not None:
            _check_drawable(target)
    with _loaded(choice, settings) as model:
        if not choice.quiet:
            terminal.note(f"{model.name} on {model.engine}, {model.class_count} classes: {model.file}")
        records: list[dict[str, Any]] = []
        try:
            for picture, target in zip(pictures, drawings, strict=True):
                try:
                    data = sys.stdin.buffer.read() if picture == STANDARD_INPUT else picture
                    labels = model.classify(data, top=top)
                except genai.WinMLError as error:
                    text = why_unreadable(picture, error)
                    records.append({"picture": picture, "error": text})
                    tell_unreadable(text, is_only=len(pictures) == 1)
                    continue
                records.append({"picture": picture, "labels": [asdict(label) for label in labels]})
                if not as_json:
                    terminal.answer("".join(_lines(picture if len(pictures) > 1 else None, labels)))
                if target is not None:
                    drawing = genai.draw_labels(data, labels, dark=dark)
                    with writing(target):
                        drawing.save(target)
                    if not choice.quiet:
                        terminal.note(f"drawn: {target}")
        finally:  # also what was found before a drawing could not be written
            if as_json:
                terminal.answer_json({"model": model.name, "file": model.file, "pictures": records})
    check_all_read(sum("error" not in record for record in records), len(pictures))


def _check_drawable(target: Path) -> None:
    """Refuse a file name whose ending says no form of picture that can be written."""
    from PIL import Image

    form = Image.registered_extensions().get(target.suffix.lower())
    if form not in Image.SAVE:
        raise click.UsageError(f"--save {target}: the ending must say the form of a picture, as .png and .jpg do")


def _loaded(choice: ModelChoice, settings: dict[str, Any]) -> genai.ImageClassifier:
    try:
        return choice.load_with(genai.load_classifier, **settings)
    except ValueError as error:  # a size that the graph does not take
        raise click.UsageError(str(error)) from None


def _lines(picture: str | None, labels: tuple[genai.ImageLabel, ...]) -> Iterator[str]:
    """Yield a line for each label, with a bar where somebody looks at it."""
    if picture is not None:
        yield f"{picture}\n"
    bars = terminal.is_terminal(sys.stdout)
    for label in labels:
        bar = f"{'█' * round(label.probability * _BAR):{_BAR}}  " if bars else ""
        yield f"{label.probability:7.1%}  {bar}{label.label}\n"
