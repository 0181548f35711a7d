"""Pictures and sound from files, for the commands that send messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import genai

from .options import Command, gather

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class MediaFiles:
    """What `--image` and `--audio` name."""

    images: tuple[Path, ...] = ()
    audio: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.images or self.audio)

    def read(self, model: genai.LanguageModel) -> dict[str, list[genai.ChatMedia]]:
        """Read the files, as keyword arguments of a turn; nothing where there are none."""
        named = {"image": ("images", self.images), "audio": ("audio", self.audio)}
        found: dict[str, list[genai.ChatMedia]] = {}
        for kind, (name, paths) in named.items():
            if paths and not takes(model, kind):
                raise click.UsageError(f"--{kind}: {refusal(model, kind)}")
            if paths:
                found[name] = [read_media(kind, path) for path in paths]
        return found


def takes(model: genai.LanguageModel, kind: str) -> bool:
    """Whether a model takes pictures ("image") or sound ("audio")."""
    return model.takes_images if kind == "image" else model.takes_audio


def refusal(model: genai.LanguageModel, kind: str) -> str:
    """Say why a model takes none, and how to mend that."""
    what = "pictures" if kind == "image" else "sound"
    return f"{model.name} takes no {what} as it was started; a GGUF model does with the right --projector FILE"


def read_media(kind: str, path: Path) -> genai.ChatMedia:
    """Read a picture ("image") or a sound ("audio"); WinMLError for a file that is none."""
    return genai.ChatMedia.image(path) if kind == "image" else genai.ChatMedia.audio(path)


def media_options(command: Command) -> Command:
    """Add `--image` and `--audio`; the command gets `media`, a `MediaFiles`."""
    command = gather(("images", "audio"), _files, "media")(command)
    for name, values, text in (
        ("--audio", "audio", "Play this sound to the model; give several."),
        ("--image", "images", "Show this picture to the model; give several."),
    ):
        command = click.option(name, values, multiple=True, type=_FILE, metavar="FILE", help=text)(command)
    return command


def _files(values: dict[str, Any]) -> MediaFiles:
    return MediaFiles(**values)
