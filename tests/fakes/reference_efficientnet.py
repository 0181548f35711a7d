"""An EfficientNet-Lite in plain NumPy, with its batch norms as they are: what converted graphs are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Tensors = Mapping[str, npt.NDArray[Any]]


def convolution(values: Floats, weight: npt.NDArray[Any], stride: int, groups: int = 1) -> Floats:
    """Convolve (batch, channels, rows, columns) with zeros around, as TensorFlow's "SAME": the odd one behind."""
    kernel = weight.shape[2]
    size = values.shape[2]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    before = total // 2
    edges = (before, total - before)
    padded = np.pad(values, ((0, 0), (0, 0), edges, edges))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    wide = weight.astype(np.float64)
    result: Floats = (
        np.einsum("bcijkl,ckl->bcij", windows, wide[:, 0])
        if groups > 1
        else np.einsum("bcijkl,ockl->boij", windows, wide)
    )
    return result


def normalized(values: Floats, tensors: Tensors, name: str) -> Floats:
    """Apply a batch norm."""
    weight, bias, mean, variance = (
        tensors[f"{name}.{part}"].astype(np.float64)[:, None, None]
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (values - mean) / np.sqrt(variance + 1e-3) * weight + bias


def logits(tensors: Tensors, pixels: npt.NDArray[Any], strides: list[int]) -> Floats:
    """Return the logits of pictures (batch, 3, side, side); `strides` has one number for each block."""
    values = np.clip(normalized(convolution(pixels, tensors["_conv_stem.weight"], 2), tensors, "_bn0"), 0, 6)
    for index, stride in enumerate(strides):
        name, before = f"_blocks.{index}.", values
        if f"{name}_expand_conv.weight" in tensors:
            values = convolution(values, tensors[f"{name}_expand_conv.weight"], 1)
            values = np.clip(normalized(values, tensors, f"{name}_bn0"), 0, 6)
        values = convolution(values, tensors[f"{name}_depthwise_conv.weight"], stride, groups=values.shape[1])
        values = np.clip(normalized(values, tensors, f"{name}_bn1"), 0, 6)
        values = normalized(convolution(values, tensors[f"{name}_project_conv.weight"], 1), tensors, f"{name}_bn2")
        if values.shape == before.shape:
            values = values + before
    values = np.clip(normalized(convolution(values, tensors["_conv_head.weight"], 1), tensors, "_bn1"), 0, 6)
    result: Floats = values.mean(axis=(2, 3)) @ tensors["_fc.weight"].astype(np.float64).T + tensors["_fc.bias"]
    return result
