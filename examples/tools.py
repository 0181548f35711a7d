"""A model that calls Python functions: it computes and looks things up before it answers.

    python examples/tools.py MODEL [QUESTION]

MODEL is a file, a folder or a name, of a model that was trained to call tools.
"""

from __future__ import annotations

import sys

import genai

INHABITANTS = {"Warszawa": 1_861_644, "Kraków": 807_644, "Wrocław": 672_545, "Łódź": 645_693}


def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    product = a * b
    return int(product) if product.is_integer() else product


def population(city: str) -> int:
    """Look up how many people live in a city of Poland.

    Args:
        city: The name of the city, in Polish.
    """
    if city not in INHABITANTS:
        raise LookupError(f"only {', '.join(INHABITANTS)} are known")  # the model is told, and may try again
    return INHABITANTS[city]


def main() -> int:
    """Ask, show the calls on standard error, print the answer."""
    if len(sys.argv) not in (2, 3):
        print("usage: python examples/tools.py MODEL [QUESTION]", file=sys.stderr)
        return 1
    question = sys.argv[2] if len(sys.argv) == 3 else "What is 127 times 31, and how many people live in Łódź?"
    with genai.load(sys.argv[1]) as model:
        chat = model.chat("Use the tools for figures.", tools=[multiply, population], on_call=show)
        for piece in chat.stream(question, max_new_tokens=500):
            print(piece, end="", flush=True)
        print()
    return 0


def show(call: genai.ToolCall) -> None:
    """Print a call and what the model was told."""
    print(f"{call} -> {call.result}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
