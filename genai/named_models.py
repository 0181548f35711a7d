"""From a name of the catalog to the file or folder that is loaded: downloaded, and converted for ONNX Runtime.

Not here: loading (`loading.py`), which imports this module only when it is given a name; a path needs none of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, cast

from winml_lite import WinMLError

from . import catalog, download
from .codes import FILE_NOT_FOUND, MODULE_NOT_FOUND

if TYPE_CHECKING:
    from .convert.conversion import Operators, Weights
    from .model_source import Engine, Progress


def fetch(
    source: str | os.PathLike[str], engine: Engine | None, offline: bool, progress: Progress | None
) -> tuple[str, Path]:
    """Return the name of a catalog entry and its file or folder; 0x80070002 when there is no such entry.

    A path object is never a name.
    """
    entry = catalog.find(source) if isinstance(source, str) else None
    if entry is None:
        raise WinMLError(FILE_NOT_FOUND, "genai.load", unknown_model(os.fspath(source)))
    is_llama = (engine or ("llama" if _has_llama() else "ort")) == "llama"
    if not is_llama:
        _check_needs(entry)
    gguf = download.pull(entry, offline=offline, progress=_stage(progress, "download"))
    return entry.name, gguf if is_llama else _converted(gguf, entry, progress)


def _check_needs(entry: catalog.CatalogEntry) -> None:
    """Refuse before anything is downloaded what could not be converted afterwards."""
    if not entry.needs or _is_converted(entry) or importlib.util.find_spec(catalog.NEEDED_MODULES[entry.needs]):
        return
    raise WinMLError(
        MODULE_NOT_FOUND,
        "genai.load",
        f"{entry.name} on ONNX Runtime needs the extra {entry.needs}: pip install 'winml-lite[{entry.needs}]'; "
        "or take llama.cpp: pip install 'winml-lite[gguf]'",
    )


def _is_converted(entry: catalog.CatalogEntry) -> bool:
    return (download.converted_folder(entry) / "genai_config.json").is_file()


def unknown_model(text: str) -> str:
    """Say that `text` is no model, with the names that are."""
    if os.path.dirname(text) or Path(text).suffix.lower() in (".gguf", ".onnx", ".ort"):
        return f"no file or folder {text!r}"
    names = [entry.name for entry in catalog.entries()]
    close = get_close_matches(text, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(names)}"
    return f"{text!r} is neither a file or folder nor a model of the catalog; {hint}"


def _has_llama() -> bool:
    return importlib.util.find_spec("llama_cpp") is not None


def _stage(progress: Progress | None, stage: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(stage, done, total)


def _converted(gguf: Path, entry: catalog.CatalogEntry, progress: Progress | None) -> Path:
    """Return the ONNX decoder made from a catalog file, converting it at the first use."""
    folder = download.converted_folder(entry)
    if not _is_converted(entry):
        from .convert import convert_gguf  # brings `onnx`, which only a conversion needs

        operators, weights = entry.variant.split("-")
        with download.locked(folder):
            if not _is_converted(entry):
                convert_gguf(
                    gguf,
                    folder,
                    operators=cast("Operators", operators),
                    weights=cast("Weights", weights),
                    context_length=entry.convert_context_length,
                    progress=_stage(progress, "convert"),
                )
    return folder
