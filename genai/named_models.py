"""From a name of the catalog to the file or folder that is loaded: downloaded, and converted for ONNX Runtime.

Not here: loading (`loading.py` and others), which import this module only when they are given a name; a path needs none
of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from winml_lite import WinMLError

from . import catalog, download
from .catalog import LOADERS
from .codes import E_INVALIDARG, FILE_NOT_FOUND, INVALID_DATA, MODULE_NOT_FOUND

if TYPE_CHECKING:
    from .convert.conversion import Operators, Weights
    from .convert.whisper import Weights as WhisperWeights
    from .model_source import Engine, Progress

Told: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Conversion:
    """What is to be made: of the file or folder `source` the folder `folder`, which does not exist."""

    entry: catalog.CatalogEntry
    source: Path
    folder: Path
    progress: Told | None


def _whisper(asked: _Conversion) -> None:
    from .convert import convert_whisper  # brings `onnx`, which only a conversion needs

    weights = cast("WhisperWeights", asked.entry.variant.removeprefix("whisper-"))
    convert_whisper(asked.source, asked.folder, weights=weights, progress=asked.progress)


def _decoder(asked: _Conversion) -> None:
    from .convert import convert_gguf

    operators, _, weights = asked.entry.variant.partition("-")
    convert_gguf(
        asked.source,
        asked.folder,
        operators=cast("Operators", operators),
        weights=cast("Weights", weights),
        context_length=asked.entry.convert_context_length,
        progress=asked.progress,
    )


def _efficientnet(asked: _Conversion) -> None:
    from .convert import convert_efficientnet

    convert_efficientnet(asked.source / "weights.pth", asked.folder, labels=asked.source / "labels.json")


CONVERSIONS: dict[str, Callable[[_Conversion], None]] = {
    "whisper-f16": _whisper,
    "whisper-f32": _whisper,
    "whisper-q8": _whisper,
    "efficientnet-lite": _efficientnet,
}
"""What makes the folder of an entry, by its `variant`; that of a GGUF file names operators and weights."""

_OTHERS: dict[tuple[str, ...], str] = {
    ("speech",): "; `winml-lite convert` makes folders of the CTranslate2 models of faster-whisper"
}
"""Where models come from that the catalog does not have, by what is to be loaded."""


def fetch(
    source: str | os.PathLike[str],
    engine: Engine | None,
    offline: bool,
    progress: Progress | None,
    kinds: tuple[str, ...] = ("text",),
) -> tuple[str, Path]:
    """Return the name of a catalog entry and its file or folder, converted where it has to be.

    engine: what a GGUF file is for; None is llama.cpp where it is installed.
    kinds: what can be loaded; WinMLError 0x80070057 for an entry of another kind, with what loads it.
    WinMLError 0x80070002 when there is no such entry. A path object is never a name.
    """
    entry = catalog.find(source) if isinstance(source, str) else None
    if entry is None:
        raise WinMLError(FILE_NOT_FOUND, LOADERS[kinds[0]], unknown_model(os.fspath(source), kinds))
    if entry.kind not in kinds:
        kind = f"an {entry.kind}" if entry.kind[0] in "aeiou" else f"a {entry.kind}"
        raise WinMLError(
            E_INVALIDARG,
            LOADERS[kinds[0]],
            f"{entry.name} is {kind} model: {catalog.loaded_by(entry.kind, entry.name)}",
        )
    return entry.name, prepare(entry, engine, offline, progress)


def prepare(
    entry: catalog.CatalogEntry,
    engine: Engine | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Return the file or folder of an entry that can be loaded, after getting and converting what is not there."""
    if not is_made(entry, engine):
        return download.pull(entry, offline=offline, progress=_stage(progress, "download"))
    _check_conversion(entry)
    if not entry.is_gguf and _is_converted(entry):  # what it was made of may be gone
        return download.converted_folder(entry)
    source = download.pull(entry, offline=offline, progress=_stage(progress, "download"))
    return _converted(source, entry, progress)


def prepared(entry: catalog.CatalogEntry) -> Path | None:
    """Return what `prepare` would return without an engine, if it is there."""
    if entry.is_gguf or not entry.variant:
        return download.cached(entry)
    return download.converted_folder(entry) if _is_converted(entry) else None


def is_made(entry: catalog.CatalogEntry, engine: Engine | None) -> bool:
    """Tell whether an entry is loaded from a folder that is made of its files."""
    if entry.is_gguf:
        return (engine or ("llama" if _has_llama() else "ort")) == "ort"
    return bool(entry.variant)


def _check_conversion(entry: catalog.CatalogEntry) -> None:
    """Refuse before anything is downloaded what could not be converted afterwards."""
    if not entry.is_gguf and entry.variant not in CONVERSIONS:
        known = ", ".join(CONVERSIONS)
        raise WinMLError(INVALID_DATA, "catalog", f"convert of {entry.name} is {entry.variant!r}; known are {known}")
    if not entry.needs or _is_converted(entry) or importlib.util.find_spec(catalog.NEEDED_MODULES[entry.needs]):
        return
    raise WinMLError(
        MODULE_NOT_FOUND,
        "genai.load",
        f"{entry.name} on ONNX Runtime needs the extra {entry.needs}: pip install 'winml-lite[{entry.needs}]'; "
        "or take llama.cpp: pip install 'winml-lite[gguf]'",
    )


def _is_converted(entry: catalog.CatalogEntry) -> bool:
    """Conversions appear whole or not at all."""
    return download.converted_folder(entry).is_dir()


def unknown_model(text: str, kinds: tuple[str, ...] = tuple(LOADERS)) -> str:
    """Say that `text` is no model, with the names that are, of some kinds."""
    if os.path.dirname(text) or Path(text).suffix.lower() in (".gguf", ".onnx", ".ort"):
        return f"no file or folder {text!r}{_OTHERS.get(kinds, '')}"
    names = [entry.name for entry in catalog.entries() if entry.kind in kinds]
    close = get_close_matches(text, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(names)}"
    return f"{text!r} is neither a file or folder nor a model of the catalog; {hint}{_OTHERS.get(kinds, '')}"


def _has_llama() -> bool:
    return importlib.util.find_spec("llama_cpp") is not None


def _stage(progress: Progress | None, stage: str) -> Told | None:
    if progress is None:
        return None
    return lambda done, total: progress(stage, done, total)


def _converted(source: Path, entry: catalog.CatalogEntry, progress: Progress | None) -> Path:
    """Return the folder made of the files of an entry, making it at the first use."""
    folder = download.converted_folder(entry)
    if not _is_converted(entry):
        with download.locked(folder):
            if not _is_converted(entry):
                convert = _decoder if entry.is_gguf else CONVERSIONS[entry.variant]
                convert(_Conversion(entry, source, folder, _stage(progress, "convert")))
    return folder
