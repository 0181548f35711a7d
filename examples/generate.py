"""A text that a local model goes on with, piece by piece. It answers no questions: `chat.py` does.

    python examples/generate.py [MODEL] [PROMPT]

MODEL is a catalog name, a `.gguf` file or an ONNX folder; the default is `smollm2`, which is downloaded once.
"""

from __future__ import annotations

import sys

import genai


def main() -> None:
    """Continue a prompt and say how it went."""
    source = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    prompt = sys.argv[2] if len(sys.argv) > 2 else "Once upon a time, in a small village by the sea, there lived"
    with genai.load(source) as model:
        stream = model.stream(prompt, max_new_tokens=100, temperature=0.7, top_p=0.95, seed=1)
        for piece in stream:
            print(piece, end="", flush=True)
        print()
        result = stream.result
        print(f"{len(result.token_ids)} tokens, finished by {result.finish_reason.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
