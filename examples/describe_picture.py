"""A model that sees describes pictures, and answers questions about them.

    python examples/describe_picture.py MODEL.gguf PROJECTOR.gguf PICTURE [PICTURE ...]

PROJECTOR is the file that was published with the model for this, often named mmproj. Questions come from standard
input, one a line; the pictures are encoded once.
"""

from __future__ import annotations

import sys

import genai


def main() -> int:
    """Describe the pictures, then answer questions; tell on standard error what each answer cost."""
    if len(sys.argv) < 4:
        print(f"usage: python {sys.argv[0]} MODEL.gguf PROJECTOR.gguf PICTURE [PICTURE ...]", file=sys.stderr)
        return 1
    model_file, projector, *pictures = sys.argv[1:]
    with genai.load(model_file, projector=projector) as model:
        chat = model.chat()
        answer(chat.stream("Describe what you see.", images=pictures, max_new_tokens=200))
        for line in sys.stdin:
            answer(chat.stream(line.strip(), max_new_tokens=200))
    return 0


def answer(stream: genai.ChatStream) -> None:
    """Print an answer as it comes."""
    for piece in stream:
        print(piece, end="", flush=True)
    print()
    known, all_tokens = stream.reused_token_count, stream.result.prompt_token_count
    print(f"({all_tokens} tokens in the prompt, {known} of them known from before)", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
