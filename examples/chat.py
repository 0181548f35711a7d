"""A chat that remembers what was said, in thirty lines.

    python examples/chat.py [MODEL]

Each line of standard input is a turn; an empty line or the end of the input leaves.
"""

from __future__ import annotations

import argparse
import sys

import genai


def main() -> None:
    """Read turns, stream answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model",
        nargs="?",
        default="smollm2",
        metavar="MODEL",
        help="file, folder or catalog name; default: %(default)s",
    )
    with genai.load(parser.parse_args().model) as model:
        chat = model.chat(system="Answer in one short sentence.")
        print("> ", end="", flush=True, file=sys.stderr)
        for line in sys.stdin:
            if not line.strip():
                break
            for piece in chat.stream(line.strip(), max_new_tokens=200):
                print(piece, end="", flush=True)
            print()
            print("> ", end="", flush=True, file=sys.stderr)


if __name__ == "__main__":
    main()
