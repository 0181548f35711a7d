"""Two ONNX graphs and a GGUF model in one pipeline: what a language model thinks of the next words.

    python examples/mixed_pipeline.py MODEL.gguf [PROMPT]

      prepare (ONNX)      decoder (GGUF)       rank (ONNX)
    ids ──newest 1,024──► ids ──logits──► softmax, the five best ──► probabilities, ids
     ▲                                                                        │
     └─────────────── the best one is the input of the next iteration ────────┘

The best five with their probabilities are shown for the word after the prompt; then the text goes on by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from onnx import parser

from winml_lite import Pipeline, Runtime, Stage, Vocabulary

CONTEXT_LENGTH = 2048
MAX_NEW_TOKENS = 40

PREPARE = """
<ir_version: 9, opset_import: ["": 18]>
prepare (int64[1, length] ids) => (int64[1, kept] newest)
<int64[1] first = {-1024}, int64[1] end = {9223372036854775807}, int64[1] axis = {1}>
{
    newest = Slice (ids, first, end, axis)
}
"""

RANK = """
<ir_version: 9, opset_import: ["": 18]>
rank (float[1, vocabulary] logits) => (float[1, 5] probabilities, int64[1, 5] ids, int64[1, 1] best)
<int64[1] count = {5}, int64[1] first = {0}, int64[1] second = {1}, int64[1] axis = {1}>
{
    every = Softmax <axis = 1> (logits)
    probabilities, ids = TopK (every, count)
    best = Slice (ids, first, second, axis)
}
"""


def build(runtime: Runtime, path: str) -> tuple[Pipeline, Stage, Stage]:
    """Connect the three stages; the prompt goes into input 0 of the first, the ranks come out of the last."""
    with runtime.create_pipeline_builder() as builder:
        graphs = (parser.parse_model(text).SerializeToString() for text in (PREPARE, RANK))
        prepare, rank = (
            builder.add_model_stage(runtime.load_model_from_buffer(graph), name=name)
            for graph, name in zip(graphs, ("prepare", "rank"), strict=True)
        )
        decoder = builder.add_model_stage(runtime.load_model(path), name="decoder")
        decoder.set_sequence_capacity_hint(CONTEXT_LENGTH)
        builder.connect(prepare, 0, decoder, 0)
        builder.connect(decoder, 0, rank, 0)
        builder.connect_next_iteration(rank, 2, prepare, 0)
        rank.request_output(0)
        rank.request_output(1)
        return builder.build(), prepare, rank


def text_of(vocabulary: Vocabulary, token: int) -> str:
    """Spell a token; one that ends in the middle of a character shows a replacement character."""
    return vocabulary.piece(token).decode("utf-8", "replace")


def main() -> None:
    """Rank the words after one prompt and let the text go on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", metavar="MODEL.gguf", help="a model that generates text")
    parser.add_argument(
        "prompt", nargs="?", default="The capital of France is", metavar="PROMPT", help="default: %(default)s"
    )
    given = parser.parse_args()
    if Path(given.model).suffix != ".gguf":
        parser.error(f"{given.model} is no .gguf file")
    with Vocabulary.from_file(given.model) as vocabulary, Runtime() as runtime:
        pipeline, prepare, rank = build(runtime, given.model)
        ids = vocabulary.encode(given.prompt.encode(), add_special=True)
        prepare.bind_input(0, runtime.tensor_from_numpy(np.array([ids], np.int64)))
        tokens: list[int] = []
        for _ in range(MAX_NEW_TOKENS):
            pipeline.run()
            probabilities, best = (rank.output(index).to_numpy()[0] for index in (0, 1))
            if not tokens:
                for probability, token in zip(probabilities, best, strict=True):
                    print(f"{probability:7.1%}  {text_of(vocabulary, token)!r}")
            if int(best[0]) in vocabulary.end_of_generation_ids:
                break
            tokens.append(int(best[0]))
        print(given.prompt + b"".join(map(vocabulary.piece, tokens)).decode("utf-8", "replace"))


if __name__ == "__main__":
    main()
