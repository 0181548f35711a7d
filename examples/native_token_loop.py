"""A token loop inside one pipeline: embedding, decoder, choice, feedback. Python starts it, and reads what comes out.

    python examples/native_token_loop.py MODEL [PROMPT]

MODEL is a `.gguf` file, or a folder with a decoder in two graphs, `embedding.onnx` and `decoder.onnx`, and its
tokenizer. To make such a folder, in the folder of the sources (`models` is not installed):

    winml-lite convert MODEL.gguf FOLDER
    python -m models.split_decoder FOLDER

The tokens live in a ring, an array of all ids so far. In each iteration the decoder computes logits, and the last stage
writes the likeliest token to the next place of the ring. A GGUF decoder takes that as its next input; its first one is
the whole prompt. An ONNX decoder takes rows of the embedding: a stage before it looks up the token at the present
position. So the prompt, too, goes through one token at a time, which is right for short prompts only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from genai import Tokenizer
from winml_lite import Pipeline, Processor, Runtime, Tensor, TensorAccessMode, TensorDataType, Vocabulary

CONTEXT_LENGTH = 2048
MAX_NEW_TOKENS = 200
ITERATIONS = 16
"""Tokens between two looks at the ring."""


@dataclass(frozen=True, slots=True)
class TokenLoop:
    """The built pipeline, and the ring that it writes tokens to."""

    pipeline: Pipeline
    ring: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Choice:
    """The processor that chooses tokens, and tensors that it changes."""

    processor: Processor
    ring: Tensor
    position: Tensor
    length: Tensor


def make_choice(runtime: Runtime, vocabulary_size: int, array: npt.NDArray[np.int32], position: int) -> Choice:
    """Make the processor whose first token goes to the place after `position` in the array."""
    ring, observed = shared(runtime, array), runtime.create_tensor(TensorDataType.INT32, (1,))
    place, length = (runtime.tensor_from_numpy(np.array([n], np.int32)) for n in (position, position + 1))
    processor = runtime.create_decode_sample_processor(vocabulary_size, True, ring, place, length, observed)
    return Choice(processor, ring, place, length)


def shared(runtime: Runtime, array: npt.NDArray[np.int32]) -> Tensor:
    """A tensor on the memory of an array."""
    return runtime.tensor_from_buffer(array, TensorDataType.INT32, array.shape, access=TensorAccessMode.READWRITE)


def embedding_table(runtime: Runtime, path: Path, vocabulary_size: int) -> Tensor:
    """Run the embedding graph once, on every token: float32 [1, vocabulary, width]."""
    with runtime.load_model(path) as model, runtime.create_pipeline_builder() as builder:
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.bind_input(0, runtime.tensor_from_tokens(range(vocabulary_size)))
        stage.request_output(0)
        with builder.build() as pipeline:
            pipeline.run()
            return stage.output(0)


def build_loop(runtime: Runtime, folder: Path, threads: int = 0) -> TokenLoop:
    """Connect the stages. Tensors that the last stage changes are bound directly where others read them.

    `threads` is for the decoder; 0 = as many as this process may use CPUs.
    """
    with runtime.load_model(folder / "decoder.onnx") as model, runtime.create_pipeline_builder() as builder:
        names, schema = model.ort_schema(), model.schema()
        rows, logits = names.find_input("inputs_embeds"), names.find_output("logits")
        width, vocabulary_size = schema.input_desc(rows)[1][-1], schema.output_desc(logits)[1][-1]

        ring = np.zeros(CONTEXT_LENGTH, np.int32)
        choice = make_choice(runtime, vocabulary_size, ring, 0)
        hidden = runtime.create_tensor(TensorDataType.FLOAT32, (1, 1, width))
        embed = runtime.create_decode_embed_processor(vocabulary_size, width, CONTEXT_LENGTH, hidden)

        embedding = builder.add_processor_stage(embed, name="embedding")
        decoder = builder.add_model_stage(model, runtime.create_cpu_target(), "decoder")
        last = builder.add_processor_stage(choice.processor, name="choice")
        embedding.bind_input(0, choice.ring)
        embedding.bind_input(1, choice.position)  # of the first iteration; later ones get it from the choice
        embedding.bind_input(2, embedding_table(runtime, folder / "embedding.onnx", vocabulary_size))
        decoder.bind_input(names.find_input("sequence_length"), choice.length)
        decoder.set_sequence_capacity_hint(CONTEXT_LENGTH)
        decoder.ort_options().set_thread_count(threads)
        for index in range(schema.input_count):
            name = names.input_name(index)
            if name.startswith("past_key_values."):
                present = names.find_output(name.replace("past_key_values", "present"))
                decoder.add_state_tensor_pair(index, present)
        builder.connect(embedding, 0, decoder, rows)
        builder.connect(decoder, logits, last, 0)
        builder.connect_next_iteration(last, 2, embedding, 1)
        return TokenLoop(builder.build(), ring)


def build_gguf_loop(runtime: Runtime, path: Path, prompt: list[int], threads: int = 0) -> TokenLoop:
    """Connect a GGUF decoder with the choice: its first input is the prompt, each later one the token chosen last."""
    with runtime.load_model(path) as model, runtime.create_pipeline_builder() as builder:
        ring = np.zeros(CONTEXT_LENGTH, np.int32)
        ring[: len(prompt)] = prompt
        with Vocabulary.from_file(path) as vocabulary:
            choice = make_choice(runtime, vocabulary.token_count, ring, len(prompt) - 1)
        decoder = builder.add_model_stage(model, runtime.create_cpu_target(), "decoder")
        last = builder.add_processor_stage(choice.processor, name="choice")
        decoder.bind_input(0, runtime.tensor_from_tokens(prompt))
        decoder.set_sequence_capacity_hint(CONTEXT_LENGTH)
        decoder.llama_options().thread_count = threads
        builder.connect(decoder, 0, last, 0)
        builder.connect_next_iteration(last, 0, decoder, 0)
        return TokenLoop(builder.build(), ring)


def read_prompt(loop: TokenLoop, prompt: list[int]) -> None:
    """Run the prompt through the loop, but for its last token; the next tokens take the place of those chosen."""
    loop.ring[0] = prompt[0]
    for index, token in enumerate(prompt[1:], start=1):
        loop.pipeline.run()
        loop.ring[index] = token


def generate(loop: TokenLoop, start: int, stops: frozenset[int]) -> Iterator[int]:
    """Yield the tokens from `start` on until a stop token; each submission runs without this program."""
    iterations = loop.pipeline.iteration_execution()
    end = min(start + MAX_NEW_TOKENS, CONTEXT_LENGTH)
    while start < end:
        count = min(ITERATIONS, end - start)
        iterations.submit_iterations(count).wait()
        for token in loop.ring[start : start + count].tolist():
            if token in stops:
                return
            yield token
        start += count


def main() -> None:
    """Answer one prompt."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="a .gguf file, or a folder with a decoder in two graphs"
    )
    parser.add_argument(
        "prompt", nargs="?", default="What is the capital of France?", metavar="PROMPT", help="default: %(default)s"
    )
    given = parser.parse_args()
    source, question = given.model, given.prompt
    if source.is_dir() and not (source / "decoder.onnx").exists():
        sys.exit(f"{source} has no decoder.onnx; make it in the source folder: python -m models.split_decoder {source}")
    with Tokenizer.from_file(source) as tokenizer, Runtime() as runtime:
        if tokenizer.has_chat_template:
            prompt = tokenizer.encode_conversation([("system", "Answer in one short sentence."), ("user", question)])
        else:
            prompt = tokenizer.encode(question)
        decoder = tokenizer.create_decoder(skip_special_tokens=True)
        if source.is_dir():
            loop = build_loop(runtime, source)
            read_prompt(loop, prompt)
        else:
            loop = build_gguf_loop(runtime, source, prompt)
        with loop.pipeline:
            for token in generate(loop, len(prompt), frozenset(tokenizer.eos_token_ids)):
                print(decoder.decode_token(token), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
