"""Search by meaning: the paragraphs of a folder that say most nearly what is asked.

    python examples/search_texts.py FOLDER QUESTION [MODEL]

Reads the `.txt` and `.md` files in FOLDER and below it. MODEL embeds texts: a catalog name, a `.gguf` file or a model
folder; the default is `minilm`, which is downloaded once.

Every paragraph becomes a vector of length 1, and so does the question. The scalar product of two of them is the cosine
of the angle between them: 1 for the same meaning, about 0 for texts that have nothing to do with each other.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import genai

SHOWN = 5
WIDTH = 70


@dataclass(frozen=True)
class Paragraph:
    """A piece of a file."""

    place: str
    """The file and the line on which it begins."""
    text: str


def paragraphs(folder: Path) -> Iterator[Paragraph]:
    """Yield what stands between empty lines."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in (".txt", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in re.finditer(r"(?m)(?:^.*\S.*\n?)+", text):
            line = text.count("\n", 0, match.start()) + 1
            yield Paragraph(f"{path.relative_to(folder).as_posix()}:{line}", " ".join(match.group().split()))


def main() -> None:
    """Print the nearest paragraphs with their cosines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what is searched: .txt and .md files")
    parser.add_argument("question", metavar="QUESTION", help="what is asked")
    parser.add_argument(
        "model", nargs="?", default="minilm", metavar="MODEL", help="file, folder or catalog name; default: %(default)s"
    )
    given = parser.parse_args()
    found = list(paragraphs(given.folder))
    if not found:
        sys.exit(f"{given.folder} holds no .txt or .md file with text in it")
    with genai.load_embedding(given.model) as model:
        rows = model.embed([paragraph.text for paragraph in found], truncate=True)
        question = model.embed(given.question, truncate=True)
    cosines = rows @ question
    for index in np.argsort(-cosines)[:SHOWN]:
        text = found[index].text
        print(
            f"{cosines[index]:5.2f}  {found[index].place}  {text if len(text) <= WIDTH else text[: WIDTH - 3] + '...'}"
        )


if __name__ == "__main__":
    main()
