"""The token loop by hand: a stage, tensors and a tokenizer, for a GGUF file and for an ONNX folder by the same code.

    python examples/token_loop.py MODEL [PROMPT]

MODEL is a `.gguf` file or a folder with `model.onnx` and its tokenizer. Greedy; the answer goes to standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genai import Tokenizer
from winml_lite import Model, NotSupportedError, Pipeline, Runtime, Stage

CONTEXT_LENGTH = 2048
MAX_NEW_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a decoder takes tokens, mask and positions, where its logits come out, and which pairs carry its state."""

    tokens: int = 0
    mask: int | None = None
    positions: int | None = None
    logits: int = 0
    states: tuple[tuple[int, int], ...] = ()


def find_ports(model: Model) -> Ports:
    """Read the ports from the names of an ONNX graph; a GGUF stage has one input, one output and its own state."""
    try:
        names = model.ort_schema()
    except NotSupportedError:
        return Ports()
    schema = model.schema()
    inputs = {names.input_name(index): index for index in range(schema.input_count)}
    pasts = [name for name in inputs if name.startswith("past_key_values.")]
    return Ports(
        inputs["input_ids"],
        inputs.get("attention_mask"),
        inputs.get("position_ids"),
        names.find_output("logits"),
        tuple((inputs[name], names.find_output(name.replace("past_key_values", "present"))) for name in pasts),
    )


def build_decoder(runtime: Runtime, model: Model, ports: Ports) -> tuple[Pipeline, Stage]:
    """Make a pipeline of one stage whose state stays in the engine between runs."""
    with runtime.create_pipeline_builder() as builder:
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.set_sequence_capacity_hint(CONTEXT_LENGTH)
        for past, present in ports.states:
            stage.add_state_tensor_pair(past, present)
        stage.request_output(ports.logits)
        return builder.build(), stage


def bind_tokens(runtime: Runtime, stage: Stage, ports: Ports, tokens: list[int]) -> None:
    """Bind the tokens of the next run, and the mask and positions where the graph asks for them."""
    start = stage.sequence_position
    end = start + len(tokens)
    stage.bind_input(ports.tokens, runtime.tensor_from_numpy(np.array([tokens], np.int64)))
    if ports.mask is not None:
        stage.bind_input(ports.mask, runtime.tensor_from_numpy(np.ones((1, end), np.int64)))
    if ports.positions is not None:
        stage.bind_input(ports.positions, runtime.tensor_from_numpy(np.arange(start, end, dtype=np.int64)[None]))


def generate(runtime: Runtime, model: Model, prompt: list[int], stops: frozenset[int]) -> Iterator[int]:
    """Yield token ids until a stop token: first the whole prompt in one run, then one token a run."""
    ports = find_ports(model)
    pipeline, stage = build_decoder(runtime, model, ports)
    with pipeline, stage:
        tokens = prompt
        for _ in range(min(MAX_NEW_TOKENS, CONTEXT_LENGTH - len(prompt))):
            bind_tokens(runtime, stage, ports, tokens)
            pipeline.run()
            with stage.output(ports.logits) as logits:
                rows = logits.to_numpy()
            token = int(rows.reshape(-1, rows.shape[-1])[-1].argmax())
            if token in stops:
                return
            yield token
            tokens = [token]


def main() -> None:
    """Answer one prompt."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a .gguf file, or a folder with model.onnx")
    parser.add_argument(
        "prompt", nargs="?", default="What is the capital of France?", metavar="PROMPT", help="default: %(default)s"
    )
    given = parser.parse_args()
    source, prompt = given.model, given.prompt
    file = source / "model.onnx" if source.is_dir() else source
    with Tokenizer.from_file(source) as tokenizer, Runtime() as runtime, runtime.load_model(file) as model:
        if tokenizer.has_chat_template:
            tokens = tokenizer.encode_conversation([("system", "Answer in one short sentence."), ("user", prompt)])
        else:
            tokens = tokenizer.encode(prompt)
        decoder = tokenizer.create_decoder(skip_special_tokens=True)
        for token in generate(runtime, model, tokens, frozenset(tokenizer.eos_token_ids)):
            print(decoder.decode_token(token), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
