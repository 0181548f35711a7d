"""From a GGUF file to an ONNX decoder folder, without torch: `convert_gguf` (design 4a)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conversion import ConvertedModel as ConvertedModel
    from .conversion import convert_gguf as convert_gguf

CONVERTER_VERSION = 2
"""Raised with every change of what a conversion writes, so that caches are made anew."""

__all__ = ["ConvertedModel", "convert_gguf"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(".conversion", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
