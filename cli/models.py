"""`winml-lite models`: the models that have names, and what of them is on this machine."""

from __future__ import annotations

from functools import partial

import click

from genai import catalog, download, named_models

from . import completion, terminal
from .failure import ModelFailure
from .options import json_option


@click.group("models")
def command() -> None:
    """List, fetch and remove the models that have names."""


@command.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List the models and where they lie."""
    found = [(entry, named_models.prepared(entry)) for entry in catalog.entries()]
    if as_json:
        return terminal.answer_json(
            [
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "description": entry.description,
                    "loaded_by": catalog.LOADERS[entry.kind],
                    "bytes": entry.byte_size,
                    "download_bytes": entry.download_size,
                    "needs": entry.needs,
                    "licence": entry.licence,
                    "can_chat": entry.can_chat,
                    "sources": list(entry.sources),
                    "path": str(path) if path is not None else None,
                }
                for entry, path in found
            ]
        )
    for entry, path in found:
        state = "here" if path is not None else "-"
        files = "file" if len(entry.files) == 1 else "files"
        sizes = f"{terminal.size_text(entry.download_size)} download, {terminal.size_text(entry.byte_size)} {files}"
        needs = f"; ONNX Runtime needs the extra {entry.needs}" if entry.needs else ""
        place = f"{entry.name:18} {state:5} {entry.kind:17} {sizes:34} {entry.licence:20}"
        terminal.answer(f"{place} {entry.description}{needs}\n")
    terminal.note(f"cache: {download.cache_folder()}")


@command.command("pull")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.names)
@click.option("--offline", is_flag=True, help="Use installed packages and local files only.")
def pull(names: tuple[str, ...], offline: bool) -> None:
    """Fetch models into the cache and print their paths.

    A download that was interrupted goes on. What is printed can be loaded: a file, or a folder that is made of the
    files once.

    \b
    Example:  winml-lite models pull smollm2 whisper-tiny.en
    """
    for entry in [_entry(name) for name in names]:
        terminal.note(f"{entry.name}: {entry.description}; {catalog.LOADERS[entry.kind]}({entry.name!r}) loads it")
        terminal.note(f"licence: {entry.licence} {entry.licence_url}")
        for source in entry.sources:
            terminal.note(f"source: {source}")
        if entry.needs:
            terminal.note(f"on ONNX Runtime it needs the extra: pip install 'winml-lite[{entry.needs}]'")
        progress = terminal.Progress(entry.name)
        try:
            path = (
                download.pull(entry, offline=offline, progress=partial(progress, "download"))
                if entry.is_gguf
                else named_models.prepare(entry, offline=offline, progress=progress)
            )
        finally:
            progress.finish()
        terminal.answer(f"{path}\n")


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.names)
def remove(names: tuple[str, ...]) -> None:
    """Remove models, and what was converted from them, from the cache."""
    for entry in [_entry(name) for name in names]:
        terminal.note(f"{entry.name}: {'removed' if download.remove(entry) else 'was not in the cache'}")


@command.command("path")
@click.argument("name", shell_complete=completion.names)
def path(name: str) -> None:
    """Print the file or folder of a model that is in the cache."""
    entry = _entry(name)
    found = named_models.prepared(entry)
    if found is None:
        raise ModelFailure(f"{entry.name} is not in the cache; `winml-lite models pull {entry.name}` fetches it")
    terminal.answer(f"{found}\n")


def _entry(name: str) -> catalog.CatalogEntry:
    entry = catalog.find(name)
    if entry is None:
        known = ", ".join(entry.name for entry in catalog.entries())
        raise ModelFailure(f"there is no model named {name!r}; the names are {known}")
    return entry
