"""Which numbered statements of the behaviour have a test: `python tests/rules/statements.py [--missing [PART|topics]]`.

A test names the statement it takes: `test_r57_...` for the object model, `test_t12_...` for tensors, `test_g23_...` for
text generation, `test_s_tok_01_...` for a case. This script reads the names; it runs nothing. Not here: on which
engines the tests of a statement run (`engines.py`).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
STATEMENTS = {"r": ("object model", 150), "t": ("tensors", 88), "g": ("text generation", 132)}
PARTS: dict[str, dict[str, set[int]]] = {
    "object-model": {"r": set(range(1, 151)), "t": {*range(1, 32), *range(54, 63), 76, 87}},
    "text": {"g": set(range(1, 78))},
    "generation": {"g": set(range(78, 126))},
    "media": {"t": set(range(32, 54))},
    "compilation": {"t": {*range(63, 76), 88}},
    "engine-options": {"t": set(range(77, 87))},
    "speech": {"g": {126, 127, 128}},
    "server": {"g": {129, 130, 131, 132}},
}
"""Statements that belong together; each is in one part.

object-model: the runtime with its tensors, locks, factories, regions and processors. text: values, tokenizers,
conversations, constraints, selection. generation: sessions, streams, speculation, chat. media: images and samples as
tensors. compilation: compilers, weights in files of their own. engine-options: what only one engine has.
"""
_NUMBERED = re.compile(r"^\s*(?:async )?def test((?:_[rtg]\d+)+)_", re.MULTILINE)
_CASE = re.compile(r"^\s*(?:async )?def test_s_([a-z]+)_(\d+)_", re.MULTILINE)


def covered() -> dict[str, set[int]]:
    """Statement numbers with a test, by letter."""
    found: dict[str, set[int]] = {letter: set() for letter in STATEMENTS}
    for path in TESTS.rglob("test_*.py"):
        for names in _NUMBERED.findall(path.read_text(encoding="utf-8")):
            for name in names.strip("_").split("_"):
                found[name[0]].add(int(name[1:]))
    return found


def cases() -> set[str]:
    """Case ids with a test, such as `tok_01`."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return {f"{group}_{number}" for text in texts for group, number in _CASE.findall(text)}


def missing(part: str | None = None) -> dict[str, list[int]]:
    """Statement numbers without a test, by letter: of all statements, or of a part."""
    found = covered()
    wanted = PARTS[part] if part else {letter: set(range(1, count + 1)) for letter, (_, count) in STATEMENTS.items()}
    return {letter: sorted(numbers - found[letter]) for letter, numbers in wanted.items()}


def main() -> None:
    """Print the counts, and with `--missing` the numbers; of a part only what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--missing",
        nargs="?",
        const="all",
        choices=("all", "topics", *PARTS),
        help="list the statements without a test: all, those of one part, or part by part",
    )
    show = parser.parse_args().missing
    if show == "topics" or show in PARTS:
        for part in PARTS if show == "topics" else (show,):
            without = [f"{letter}{number}" for letter, numbers in missing(part).items() for number in numbers]
            print(f"{part}: " + (f"without {' '.join(without)}" if without else "every statement has a test"))
        return
    for letter, numbers in missing().items():
        name, count = STATEMENTS[letter]
        print(f"{letter}  {name:<16} {count - len(numbers):>3} of {count} statements have a test")
        if show and numbers:
            print("   without: " + " ".join(f"{letter}{number}" for number in numbers))
    print(f"s  {'cases':<16} {len(cases()):>3} cases have a test")


if __name__ == "__main__":
    main()
