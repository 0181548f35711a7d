"""A chat that remembers what was said, in thirty lines.

    python examples/chat.py [MODEL]

Each line of standard input is a turn; an empty line or the end of the input leaves.
"""

from __future__ import annotations

import sys

import genai


def main() -> None:
    """Read turns, stream answers."""
    source = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    with genai.load(source) as model:
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
