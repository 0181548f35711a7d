"""A model that calls Python functions: it computes and looks things up before it answers.

    python examples/tools.py MODEL [QUESTION]

MODEL is a file, a folder or a name, of a model that was trained to call tools.
"""

from __future__ import annotations

import argparse
import sys

import genai

QUESTION = "What is 127 times 31, and how many people live in Łódź?"
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


def main() -> None:
    """Ask, show the calls on standard error, print the answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", metavar="MODEL", help="file, folder or catalog name of a model that calls tools")
    parser.add_argument("question", nargs="?", default=QUESTION, metavar="QUESTION", help="what is asked")
    given = parser.parse_args()
    with genai.load(given.model) as model:
        chat = model.chat("Use the tools for figures.", tools=[multiply, population], on_call=show)
        for piece in chat.stream(given.question, max_new_tokens=500):
            print(piece, end="", flush=True)
        print()


def show(call: genai.ToolCall) -> None:
    """Print a call and what the model was told."""
    print(f"{call} -> {call.result}", file=sys.stderr)


if __name__ == "__main__":
    main()
