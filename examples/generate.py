"""A text that a local model goes on with, piece by piece. It answers no questions: `chat.py` does.

    python examples/generate.py [MODEL] [PROMPT]

MODEL is a catalog name, a `.gguf` file or an ONNX folder; the default is `smollm2`, which is downloaded once.
"""

from __future__ import annotations

import argparse
import sys

import genai

PROMPT = "Once upon a time, in a small village by the sea, there lived"


def main() -> None:
    """Continue a prompt and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model",
        nargs="?",
        default="smollm2",
        metavar="MODEL",
        help="file, folder or catalog name; default: %(default)s",
    )
    parser.add_argument("prompt", nargs="?", default=PROMPT, metavar="PROMPT", help="how the text begins")
    given = parser.parse_args()
    with genai.load(given.model) as model:
        stream = model.stream(given.prompt, max_new_tokens=100, temperature=0.7, top_p=0.95, seed=1)
        for piece in stream:
            print(piece, end="", flush=True)
        print()
        result = stream.result
        print(f"{len(result.token_ids)} tokens, finished by {result.finish_reason.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
