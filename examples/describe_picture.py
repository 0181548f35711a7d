"""A model that sees describes pictures, and answers questions about them.

    python examples/describe_picture.py MODEL.gguf PROJECTOR.gguf PICTURE [PICTURE ...]

PROJECTOR is the file that was published with the model for this, often named mmproj. Questions come from standard
input, one a line; the pictures are encoded once.
"""

from __future__ import annotations

import argparse
import sys

import genai


def main() -> None:
    """Describe the pictures, then answer questions; tell on standard error what each answer cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", metavar="MODEL.gguf", help="a model that sees")
    parser.add_argument(
        "projector", metavar="PROJECTOR.gguf", help="the file that was published with it, often named mmproj"
    )
    parser.add_argument("pictures", nargs="+", metavar="PICTURE", help="a picture: PNG, JPEG ...")
    given = parser.parse_args()
    with genai.load(given.model, projector=given.projector) as model:
        chat = model.chat()
        answer(chat.stream("Describe what you see.", images=given.pictures, max_new_tokens=200))
        for line in sys.stdin:
            answer(chat.stream(line.strip(), max_new_tokens=200))


def answer(stream: genai.ChatStream) -> None:
    """Print an answer as it comes."""
    for piece in stream:
        print(piece, end="", flush=True)
    print()
    known, all_tokens = stream.reused_token_count, stream.result.prompt_token_count
    print(f"({all_tokens} tokens in the prompt, {known} of them known from before)", file=sys.stderr)


if __name__ == "__main__":
    main()
