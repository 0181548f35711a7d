"""Enlarged pictures against Pillow's: the same rule, but for rounding. Reductions follow another one there."""

from __future__ import annotations

import numpy as np
import pytest

from winml_lite import ImageResizeMode, ImageTensorOptions, Runtime, TensorChannelOrder

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

pytestmark = pytest.mark.peer

# (source, target), both (width, height)
ENLARGEMENTS = [((7, 5), (7, 5)), ((7, 5), (14, 10)), ((7, 5), (19, 23)), ((1, 1), (5, 4)), ((60, 40), (61, 640))]


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize(("size", "target"), ENLARGEMENTS)
def test_an_enlarged_picture(runtime: Runtime, mode: str, size: tuple[int, int], target: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    picture = Image.fromarray(noise).convert(mode)
    order = TensorChannelOrder.GRAY if mode == "L" else TensorChannelOrder.RGB
    options = ImageTensorOptions(channel_order=order, size=target)
    found = runtime.tensor_from_image(picture, options=options).to_numpy()[0].transpose(1, 2, 0)
    expected = np.asarray(picture.resize(target, Image.Resampling.BILINEAR), np.float32).reshape(found.shape)
    # Pillow rounds after the columns and after the rows.
    assert np.abs(found - expected).max() <= 1.01


def test_a_cropped_and_enlarged_picture(runtime: Runtime) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (30, 50, 3), np.uint8)
    options = ImageTensorOptions(size=(64, 64), resize_mode=ImageResizeMode.CENTER_CROP)
    found = runtime.tensor_from_image(noise, options=options).to_numpy()[0].transpose(1, 2, 0)
    resized = Image.fromarray(noise).resize((64, 64), Image.Resampling.BILINEAR, box=(10, 0, 40, 30))
    inside = np.abs(found - np.asarray(resized, np.float32))[:, 2:-2]  # Pillow does not look beyond the box
    assert inside.max() <= 1.01
