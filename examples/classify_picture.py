"""What is in a picture: the five likeliest labels, and a drawing of them.

    python examples/classify_picture.py PICTURE [DRAWING] [MODEL]

PICTURE is a PNG, JPEG or other file that Pillow reads. DRAWING is where the picture goes with its labels beside it, by
default `labels.png`. MODEL is a catalog name, an `.onnx` file or a model folder; the default is `efficientnet-lite0`,
which is downloaded once and knows the 1,000 things of ImageNet.
"""

from __future__ import annotations

import argparse
import sys

import genai


def main() -> None:
    """Classify one picture, and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("picture", metavar="PICTURE", help="a picture: PNG, JPEG ...")
    parser.add_argument(
        "drawing",
        nargs="?",
        default="labels.png",
        metavar="DRAWING",
        help="where the drawing goes; default: %(default)s",
    )
    parser.add_argument(
        "model",
        nargs="?",
        default="efficientnet-lite0",
        metavar="MODEL",
        help="file, folder or catalog name; default: %(default)s",
    )
    given = parser.parse_args()
    with genai.load_classifier(given.model) as model:
        labels = model.classify(given.picture, top=5)
    for label in labels:
        print(f"{label.probability:6.1%}  {label.label}")
    genai.draw_labels(given.picture, labels).save(given.drawing)
    print(f"drawn: {given.drawing}", file=sys.stderr)


if __name__ == "__main__":
    main()
