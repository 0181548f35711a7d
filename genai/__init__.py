"""Text from local models: `genai.load` for the short road, `genai.tasks` and `genai.runtime` for the long one.

Names are imported at first use, so that `import genai` costs next to nothing and loads no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winml_lite import NotSupportedError as NotSupportedError
    from winml_lite import WinMLError as WinMLError

    from .cancellation import CancellationSource as CancellationSource
    from .chat import Chat as Chat
    from .constraint import TokenConstraint as TokenConstraint
    from .decoder import TokenizerDecoder as TokenizerDecoder
    from .language_model import LanguageModel as LanguageModel
    from .loading import load as load
    from .options import TextGenerationOptions as TextGenerationOptions
    from .results import TextGenerationFinishReason as TextGenerationFinishReason
    from .results import TextGenerationResult as TextGenerationResult
    from .results import TextGenerationTimings as TextGenerationTimings
    from .text_stream import TextStream as TextStream
    from .tokenizer import Tokenizer as Tokenizer

__version__ = "0.1.0"

_HOMES = {
    "CancellationSource": ".cancellation",
    "Chat": ".chat",
    "LanguageModel": ".language_model",
    "NotSupportedError": "winml_lite",
    "TextGenerationFinishReason": ".results",
    "TextGenerationOptions": ".options",
    "TextGenerationResult": ".results",
    "TextGenerationTimings": ".results",
    "TextStream": ".text_stream",
    "TokenConstraint": ".constraint",
    "Tokenizer": ".tokenizer",
    "TokenizerDecoder": ".decoder",
    "WinMLError": "winml_lite",
    "load": ".loading",
}

__all__ = [
    "CancellationSource",
    "Chat",
    "LanguageModel",
    "NotSupportedError",
    "TextGenerationFinishReason",
    "TextGenerationOptions",
    "TextGenerationResult",
    "TextGenerationTimings",
    "TextStream",
    "TokenConstraint",
    "Tokenizer",
    "TokenizerDecoder",
    "WinMLError",
    "load",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "convert", "runtime", "tasks"])
