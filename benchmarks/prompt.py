"""P3, P5: evaluation of a 512-token prompt, against a bare `llama_decode` in batches and against onnxruntime-genai."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import genai

from . import subjects
from .decode import genai_model
from .llama_side import BareLoop
from .measure import Plan, Row, alternate, faster, main

BATCH = 128
"""The pieces in which a prompt is evaluated here; the bare side does the same."""


def prompts(length: int, vocabulary_size: int) -> Callable[[], list[int]]:
    """New random ids at each call, so that nothing can be reused from the prompt before."""
    generator = random.Random(1)
    return lambda: [generator.randrange(3, vocabulary_size) for _ in range(length)]


def whole(plan: Plan) -> Plan:
    """A prompt is measured whole: one step a chunk."""
    return replace(plan, chunks=plan.repeats, steps=1, dropped=0)


def our_prompt(model: genai.LanguageModel, prompt: Callable[[], list[int]]) -> Callable[[], object]:
    """Evaluate a prompt and select one token."""
    return lambda: model.generate(prompt(), max_new_tokens=1)


def measure_gguf(plan: Plan, length: int) -> Iterator[Row]:
    """P3."""
    path = subjects.gguf_file(plan.quick)
    bare = BareLoop(path, plan.context_length, BATCH, plan.threads)
    prompt = prompts(length, bare.vocabulary_size)

    def other() -> None:
        bare.restart()
        bare.feed(prompt())
        bare.wait()

    with genai.load(path, threads=plan.threads, context_length=plan.context_length) as model:
        seconds = alternate(our_prompt(model, prompt), other, whole(plan))
    yield faster(f"P3 GGUF prompt of {length}", "bare llama_decode", seconds, length, (">= 0.97", ">= 1.0"))


def genai_prompt(folder: Path, plan: Plan, prompt: Callable[[], list[int]]) -> Callable[[], object]:
    """Evaluate a prompt and select one token with onnxruntime-genai."""
    import onnxruntime_genai as og

    model = genai_model(folder, plan.threads)

    def evaluate() -> None:
        settings = og.GeneratorParams(model)
        settings.set_search_options(max_length=plan.context_length, do_sample=False)
        generator = og.Generator(model, settings)
        generator.append_tokens(prompt())
        generator.generate_next_token()

    return evaluate


def measure_onnx(plan: Plan, length: int) -> Iterator[Row]:
    """P5, on each kind of folder."""
    for operators, weights in (("gqa", "q8"), ("gqa", "f32"), ("std", "f32")):
        folder = subjects.onnx_folder(operators, weights, plan.quick)
        with genai.load(folder, threads=plan.threads, context_length=plan.context_length) as model:
            prompt = prompts(length, model.tokenizer.token_count)
            seconds = alternate(our_prompt(model, prompt), genai_prompt(folder, plan, prompt), whole(plan))
        name = f"P5 ONNX prompt of {length}, {operators} {weights}"
        yield faster(name, "onnxruntime-genai", seconds, length, (">= 0.97", ">= 1.05"))


def measure(plan: Plan) -> Iterator[Row]:
    """All rows of this file."""
    length = 32 if plan.quick else 512
    yield from measure_gguf(plan, length)
    yield from measure_onnx(plan, length)


if __name__ == "__main__":
    main(measure, __doc__)
