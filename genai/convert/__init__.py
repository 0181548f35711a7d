"""Models of other formats as ONNX folders, without torch: decoders from GGUF files, classifiers from torch weights,
speech recognition from CTranslate2 models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conversion import ConvertedModel as ConvertedModel
    from .conversion import convert_gguf as convert_gguf
    from .efficientnet import ConvertedClassifier as ConvertedClassifier
    from .efficientnet import convert_efficientnet as convert_efficientnet
    from .whisper import ConvertedSpeechModel as ConvertedSpeechModel
    from .whisper import convert_whisper as convert_whisper

CONVERTER_VERSION = 2
"""Raised with every change of what a conversion writes, so that caches are made anew."""

_HOMES = {
    "ConvertedClassifier": ".efficientnet",
    "ConvertedModel": ".conversion",
    "ConvertedSpeechModel": ".whisper",
    "convert_efficientnet": ".efficientnet",
    "convert_gguf": ".conversion",
    "convert_whisper": ".whisper",
}

__all__ = [
    "ConvertedClassifier",
    "ConvertedModel",
    "ConvertedSpeechModel",
    "convert_efficientnet",
    "convert_gguf",
    "convert_whisper",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
