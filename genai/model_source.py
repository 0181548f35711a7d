"""Where a model comes from and what it is to run on: what `genai.load` and the other loaders have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from winml_lite import WinMLError

from .adapters import Adapter, adapter_pairs
from .checks import index_value
from .codes import E_INVALIDARG, FILE_NOT_FOUND, NOT_SUPPORTED
from .placement import Placement

Engine = Literal["llama", "ort"]
Progress = Callable[[str, int, int], None]
"""Called with what is going on, the work done and the whole, in bytes. What goes on is "download" or "convert", and for
another model than the one that is loaded its name behind that, as in "download silero-vad".
"""

CustomOperators = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

ENGINE_NAMES: dict[Engine, str] = {"llama": "llama.cpp", "ort": "ONNX Runtime"}


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How the stage of a model is to be built."""

    context_length: int | None
    threads: int | None
    placement: Placement
    adapters: tuple[tuple[str, float], ...] = ()
    custom_operators: tuple[str, ...] = ()
    """Libraries of operators for ONNX models."""


@contextmanager
def naming(loader: str) -> Iterator[None]:
    """Have the errors of what `loader` shares with `genai.load` name `loader`; also a decorator of loaders."""
    try:
        yield
    except WinMLError as error:
        if error.context != "genai.load":
            raise
        named = type(error)(error.hresult, loader, error.native_message)
        raise named.with_traceback(error.__traceback__) from error.__cause__


def build_options(
    context_length: int | None,
    threads: int | None,
    placement: Placement,
    adapters: Iterable[Adapter],
    custom_operators: CustomOperators = (),
) -> BuildOptions:
    """Check what a caller gave. TypeError or ValueError for what cannot be."""
    return BuildOptions(
        index_value(context_length, "context_length", minimum=1) if context_length is not None else None,
        index_value(threads, "threads", 512, 1) if threads is not None else None,
        placement,
        adapter_pairs(adapters),
        _paths(custom_operators),
    )


def _paths(libraries: CustomOperators) -> tuple[str, ...]:
    listed = (libraries,) if isinstance(libraries, str | os.PathLike) else tuple(libraries)
    paths = tuple(os.fspath(library) for library in listed)
    if not all(isinstance(path, str) and path for path in paths):
        raise TypeError("custom_operators must be a path or several, each a nonempty str or os.PathLike")
    return tuple(map(str, paths))


def of_another_model(progress: Progress | None, name: str) -> Progress | None:
    """Return what to call while a model is fetched that another one needs: it is told with its name."""
    if progress is None:
        return None
    return lambda stage, done, total: progress(f"{stage} {name}", done, total)


def chosen_engine(engine: Engine | None, placement: Placement) -> Engine | None:
    """Return the engine that a caller named: an execution provider means ONNX Runtime.

    ValueError for what is no engine, or one without providers.
    """
    if engine is not None and engine not in ENGINE_NAMES:
        raise ValueError(f"engine must be 'llama', 'ort' or None, not {engine!r}")
    if placement.provider is None:
        return engine
    if engine == "llama":
        raise ValueError(f"llama.cpp has no execution provider {placement.provider!r}: provider goes with engine 'ort'")
    return "ort"


def resolve(
    source: str | os.PathLike[str],
    engine: Engine | None,
    offline: bool,
    progress: Progress | None,
    kinds: tuple[str, ...] = ("text",),
) -> tuple[str, Path]:
    """Return the model's name and its file or folder. An existing path wins over an equal catalog name.

    kinds: those of the catalog that can be loaded; another one is refused with what loads it, and so is a folder that
    can be told to be of another kind.
    """
    text = os.fspath(source)
    if not isinstance(text, str):
        raise TypeError(f"source must be a path or a name, not {type(source).__name__}")
    if not text:
        raise ValueError("source must not be empty")
    path = Path(text)
    if path.exists():
        if "speech" not in kinds and (path / "whisper.json").is_file():
            mend = f"it recognises speech: load it with genai.load_speech({text!r}), or run `winml-lite transcribe`"
            raise WinMLError(E_INVALIDARG, "genai.load", f"{path} is no model of this kind; {mend}")
        return path.stem if path.is_file() else path.resolve().name, path
    from .named_models import fetch  # a path needs neither the catalog nor downloads

    return fetch(source, engine, offline, progress, kinds)


def projector_path(given: str | os.PathLike[str]) -> str:
    """Check the path of a projector, before a model is loaded that may take minutes: 0x80070002 for no such file."""
    path = os.fspath(given)
    if not isinstance(path, str):
        raise TypeError(f"projector must be a path, not {type(given).__name__}")
    if not os.path.isfile(path):
        raise WinMLError(FILE_NOT_FOUND, "genai.load", f"there is no projector file {path!r}")
    return path


def check_engine(path: Path, own: Engine, wanted: Engine | None) -> None:
    """Refuse an engine that is not the one of the file."""
    if wanted is not None and wanted != own:
        mend = (
            f"convert it with `winml-lite convert {path} FOLDER` and load the folder"
            if own == "llama"
            else "llama.cpp reads .gguf files only"
        )
        raise WinMLError(
            E_INVALIDARG, "genai.load", f"{path} runs on {ENGINE_NAMES[own]}, not on {ENGINE_NAMES[wanted]}: {mend}"
        )


def refuse_custom_operators(path: Path, options: BuildOptions) -> None:
    """Refuse libraries of operators for a GGUF model."""
    if options.custom_operators:
        text = f"{path} runs on llama.cpp; custom operators go with ONNX models only"
        raise WinMLError(NOT_SUPPORTED, "genai.load", text)


def single_gguf(folder: Path) -> Path | None:
    """Return the GGUF model of a folder, its first file where there are several; None where there is none."""
    files = sorted(folder.glob("*.gguf"))
    if not files:
        return None
    first = [path for path in files if "-of-" not in path.stem or "-00001-of-" in path.stem]
    if len(first) != 1:
        raise WinMLError(NOT_SUPPORTED, "genai.load", f"{folder} holds several GGUF models: name one of them")
    return first[0]
