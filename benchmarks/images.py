"""Pictures to normalized float32 tensors: ours against Pillow's resize and NumPy.

Enlarging, both follow the same rule. Reducing, Pillow filters all pixels and we look at four for each one of the
result, so the numbers differ and the times compare two ways to feed a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from winml_lite import ImageResizeMode, ImageTensorOptions, Runtime, TensorLayout, TensorNormalization

from .measure import Plan, Row, Step, alternate, main, shorter

Floats = npt.NDArray[np.float32]
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
DEVIATION = np.array([0.229 * 255, 0.224 * 255, 0.225 * 255], np.float32)
BOUNDS = ("<= 1.1", "<= 0.8")


@dataclass(frozen=True, slots=True)
class Case:
    """A picture and the tensor it becomes; sizes are (width, height)."""

    source: tuple[int, int]
    target: tuple[int, int]
    mode: ImageResizeMode = ImageResizeMode.STRETCH
    layout: TensorLayout = TensorLayout.NCHW

    @property
    def name(self) -> str:
        """As in `640x480 to 640x640 letterbox NCHW`."""
        mode = "" if self.mode is ImageResizeMode.STRETCH else f" {self.mode.name.lower()}"
        return f"{_size(self.source)} to {_size(self.target)}{mode} {self.layout.name}"


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


CASES = (
    Case((1920, 1080), (224, 224)),
    Case((1920, 1080), (224, 224), layout=TensorLayout.NHWC),
    Case((640, 480), (224, 224)),
    Case((640, 480), (640, 640), ImageResizeMode.LETTERBOX),
    Case((1920, 1080), (640, 640), ImageResizeMode.LETTERBOX),
    Case((224, 224), (224, 224)),
    Case((4000, 3000), (1024, 1024)),
    Case((640, 480), (1280, 960)),
)
QUICK_CASES = (Case((64, 48), (32, 32)), Case((64, 48), (64, 64), ImageResizeMode.LETTERBOX))


def picture(size: tuple[int, int]) -> Image.Image:
    """A smooth picture of random colours."""
    coarse = np.random.default_rng(0).integers(0, 256, (size[1] // 8, size[0] // 8, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def pillow(case: Case) -> Callable[[Image.Image], Floats]:
    """What people write: resize, paste, subtract, divide, transpose."""

    def convert(image: Image.Image) -> Floats:
        pixels = np.asarray(resized(image)).astype(np.float32)
        pixels -= MEAN
        pixels /= DEVIATION
        return (
            pixels[None] if case.layout is TensorLayout.NHWC else np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
        )

    def resized(image: Image.Image) -> Image.Image:
        if case.mode is not ImageResizeMode.LETTERBOX:
            return image if image.size == case.target else image.resize(case.target, Image.Resampling.BILINEAR)
        ratio = min(case.target[0] / image.width, case.target[1] / image.height)
        size = (round(image.width * ratio), round(image.height * ratio))
        inside = image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)
        whole = Image.new("RGB", case.target)
        whole.paste(inside, ((case.target[0] - size[0]) // 2, (case.target[1] - size[1]) // 2))
        return whole

    return convert


def ours(case: Case) -> Callable[[Any], object]:
    """The same with one call."""
    runtime = Runtime()
    options = ImageTensorOptions(
        size=case.target,
        resize_mode=case.mode,
        layout=case.layout,
        normalization=TensorNormalization.imagenet(),
    )
    return lambda image: runtime.tensor_from_image(image, options=options)


def rows_of(case: Case, plan: Plan) -> Iterator[Row]:
    """The case from a Pillow picture and from an array."""
    image = picture(case.source)
    array = np.asarray(image)
    mine, other = ours(case), pillow(case)
    sides: tuple[tuple[str, Step, Step], ...] = (
        ("a Pillow picture", lambda: mine(image), lambda: other(image)),
        ("an array", lambda: mine(array), lambda: other(Image.fromarray(array))),
    )
    for kind, left, right in sides:
        seconds = alternate(left, right, plan)
        amounts = (seconds[0] * 1000, seconds[1] * 1000)
        yield shorter(f"{case.name} from {kind}", "Pillow and NumPy", amounts, "ms", BOUNDS)


def measure(plan: Plan) -> Iterator[Row]:
    """All cases."""
    for case in QUICK_CASES if plan.quick else CASES:
        yield from rows_of(case, plan)


if __name__ == "__main__":
    main(measure, __doc__)
