"""The names of the classes of a classifier, from the files that they come in.

Not here: what belongs to the rest of a model folder (`classifier_folder.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from winml_lite import WinMLError

from .codes import INVALID_DATA
from .reading import read_bytes

LabelSource: TypeAlias = str | os.PathLike[str] | Iterable[str]
"""A file of labels, or the labels themselves in the order of the classes."""

_SYNSET = re.compile(r"n\d{8}\s+")


def read_labels(source: LabelSource) -> tuple[str, ...]:
    """Return the labels, the one of class 0 first.

    A text file has one a line; a WordNet number in front of them (`n02123045 tabby cat`) is left out. A `.json` file
    holds a list, or an object from numbers to labels; that may be the `id2label` of a `config.json`, and labels may be
    pairs of a WordNet number and a name.

    WinMLError: 0x80070002 for a missing file, 0x8007000D for one that holds no labels. TypeError for labels that are no
    texts.
    """
    if not isinstance(source, str | os.PathLike):
        labels = tuple(source) if isinstance(source, Iterable) else None
        if labels is None or not all(isinstance(label, str) for label in labels):
            raise TypeError("labels must be a file, or texts in the order of the classes")
        return labels
    place = os.fspath(source)
    try:
        text = read_bytes(place).decode("utf-8-sig")
        if not place.lower().endswith(".json"):
            lines = text.splitlines()
            return tuple(_SYNSET.sub("", line.strip(), count=1) for line in lines[: _used(lines)])
        content = json.loads(text)
        return labels_of(content.get("id2label", content) if isinstance(content, dict) else content)
    except (ValueError, RecursionError) as error:
        raise WinMLError(INVALID_DATA, place, f"the file holds no labels: {error}") from None


def labels_of(content: Any) -> tuple[str, ...]:
    """Return labels from a list, or from an object whose keys are the numbers of the classes; ValueError otherwise."""
    if isinstance(content, dict):
        numbered = {_number(key): value for key, value in content.items()}
        if sorted(numbered) != list(range(len(content))):
            raise ValueError("the keys are not the numbers 0, 1, 2 ...")
        content = [numbered[number] for number in range(len(content))]
    if not isinstance(content, list) or not content:
        raise ValueError("it is no list of labels")
    names = [item[-1] if isinstance(item, list) and item else item for item in content]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a label is no text")
    return tuple(names)


def _number(key: str) -> int:
    if not key.isascii() or not key.isdigit():
        raise ValueError(f"{key[:40]!r} is no number of a class")
    return int(key)


def _used(lines: list[str]) -> int:
    """How many lines there are without empty ones at the end."""
    return max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
