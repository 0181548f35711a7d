"""What is in a picture: the five likeliest labels, and a drawing of them.

    python examples/classify_picture.py PICTURE [DRAWING] [MODEL]

PICTURE is a PNG, JPEG or other file that Pillow reads. DRAWING is where the picture goes with its labels beside it, by
default `labels.png`. MODEL is a catalog name, an `.onnx` file or a model folder; the default is `efficientnet-lite0`,
which is downloaded once and knows the 1,000 things of ImageNet.
"""

from __future__ import annotations

import sys

import genai


def main() -> None:
    """Classify one picture, and draw it."""
    if not 2 <= len(sys.argv) <= 4:
        sys.exit("usage: python examples/classify_picture.py PICTURE [DRAWING] [MODEL]")
    picture = sys.argv[1]
    drawing = sys.argv[2] if len(sys.argv) > 2 else "labels.png"
    source = sys.argv[3] if len(sys.argv) > 3 else "efficientnet-lite0"
    with genai.load_classifier(source) as model:
        labels = model.classify(picture, top=5)
    for label in labels:
        print(f"{label.probability:6.1%}  {label.label}")
    genai.draw_labels(picture, labels).save(drawing)
    print(f"drawn: {drawing}", file=sys.stderr)


if __name__ == "__main__":
    main()
