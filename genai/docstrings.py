"""What a docstring says of a function and of its parameters, in the three usual styles: Google, NumPy, Sphinx.

Only the description and the parameters are read; types written in docstrings are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_GOOGLE_PARAMETERS = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*")
_GOOGLE_SECTION = re.compile(
    r"(Args|Arguments|Attributes|Examples?|Keyword Arg(ument)?s|Note|Notes|Parameters|Params|Raises|References|Returns?"
    r"|See Also|Todo|Warnings?|Yields?):\s*"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w+)([^:]*):\s*(.*)")
_SPHINX_PARAMETERS = ("param", "parameter", "arg", "argument", "keyword", "key")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description, and the descriptions of parameters by name; `text` is without common indentation."""
    lines = text.splitlines()
    first = next((index for index in range(len(lines)) if _begins_section(lines, index)), len(lines))
    description = "\n".join(map(" ".join, _paragraphs(lines[:first])))
    return description, dict(_parameters(lines))


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    is_numpy = index + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[index + 1]) is not None and bool(line.strip())
    return is_numpy or bool(_GOOGLE_SECTION.fullmatch(line) or _SPHINX_FIELD.match(line))


def _paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line.strip())
        elif paragraph:
            yield paragraph
            paragraph = []


def _parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines):
        sphinx = _SPHINX_FIELD.match(line)
        if sphinx is not None and sphinx[1] in _SPHINX_PARAMETERS and sphinx[2].strip():
            yield sphinx[2].split()[-1].lstrip("*"), _joined([sphinx[3], *_indented(lines, index + 1)])
        elif _GOOGLE_PARAMETERS.fullmatch(line):
            yield from _entries(_indented(lines, index + 1), _GOOGLE_ENTRY)
        elif line.strip() == "Parameters" and _begins_section(lines, index):
            end = next((i for i in range(index + 2, len(lines)) if _begins_section(lines, i)), len(lines))
            yield from _entries(lines[index + 2 : end], _NUMPY_ENTRY)


def _indented(lines: list[str], start: int) -> list[str]:
    """The lines from `start` on that are indented or empty."""
    end = next((index for index in range(start, len(lines)) if lines[index][:1].strip()), len(lines))
    return lines[start:end]


def _entries(lines: list[str], entry: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Entries of a section: a line at its left margin begins one, lines further right go on with it."""
    margin = min((_margin(line) for line in lines if line.strip()), default=0)
    names: list[str] = []
    pieces: list[str] = []
    for line in [*lines, None]:
        begun = entry.fullmatch(line.strip()) if line is not None and _margin(line) == margin else None
        if line is not None and begun is None:
            pieces.append(line)
            continue
        for name in names:
            yield name, _joined(pieces)
        if begun is not None:
            names = [name.strip().lstrip("*") for name in begun[1].split(",")]
            pieces = [begun[2]] if entry is _GOOGLE_ENTRY else []


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
