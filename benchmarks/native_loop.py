"""A token loop that is one pipeline, against the loop by hand: the same decoder, greedy; the ONNX one is split.

Both sides run on a thread of their own for each step, as submitted work does. For OpenMP, which llama.cpp uses, keeps a
team of threads for every thread that has called it: with the teams of two living callers on as many CPUs as one has
threads, each waits by sleeping, and both are about half as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

from examples import native_token_loop, token_loop
from genai import Tokenizer
from models.split_decoder import split_decoder
from winml_lite import Runtime

from . import subjects
from .measure import Plan, Row, Step, alternate, faster, main

TOKENS = native_token_loop.ITERATIONS
"""Tokens of one measured step, which is one submission."""


def native_step(runtime: Runtime, source: Path, prompt: list[int], plan: Plan) -> Step:
    """Submit a few iterations of the pipeline and wait for them."""
    if source.is_dir():
        loop = native_token_loop.build_loop(runtime, source, plan.threads)
        native_token_loop.read_prompt(loop, prompt)
    else:
        loop = native_token_loop.build_gguf_loop(runtime, source, prompt, plan.threads)
    iterations = loop.pipeline.iteration_execution()
    return lambda: iterations.submit_iterations(TOKENS).wait()


def hand_step(runtime: Runtime, source: Path, prompt: list[int], plan: Plan) -> Step:
    """Bind, run, read the logits and choose, a few times."""
    file = source / "model.onnx" if source.is_dir() else source
    with runtime.load_model(file) as model, runtime.create_pipeline_builder() as builder:
        ports = token_loop.find_ports(model)
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.set_sequence_capacity_hint(native_token_loop.CONTEXT_LENGTH)
        if source.is_dir():
            stage.ort_options().set_thread_count(plan.threads)
        else:
            stage.llama_options().thread_count = plan.threads
        for past, present in ports.states:
            stage.add_state_tensor_pair(past, present)
        stage.request_output(ports.logits)
        pipeline = builder.build()

    def choose(tokens: list[int]) -> int:
        token_loop.bind_tokens(runtime, stage, ports, tokens)
        pipeline.run()
        with stage.output(ports.logits) as logits:
            return int(logits.to_numpy().reshape(-1).argmax())

    last = list(prompt)

    def choose_some() -> None:
        for _ in range(TOKENS):
            last[:] = [choose(last)]

    def step() -> None:
        thread = Thread(target=choose_some)
        thread.start()
        thread.join()

    return step


def measure(plan: Plan) -> Iterator[Row]:
    """One row for each engine."""
    plan = replace(plan, steps=max(plan.steps // 4, 2), dropped=1)
    folder = split_decoder(subjects.onnx_folder("gqa", "q8", plan.quick))
    for name, source in (("ONNX gqa q8", folder), ("GGUF", subjects.gguf_file(plan.quick))):
        with Tokenizer.from_file(source) as tokenizer, Runtime() as runtime:
            prompt = tokenizer.encode(subjects.STORY)
            ours, other = (make(runtime, source, prompt, plan) for make in (native_step, hand_step))
            seconds = alternate(ours, other, plan)
        yield faster(f"token loop in one pipeline, {name}", "loop by hand", seconds, TOKENS, (">= 0.97", ">= 1.0"))


if __name__ == "__main__":
    main(measure, __doc__)
