"""P1, P2, P4: speed of one token through the streaming API, greedy and sampled, against the engines' own loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import genai

from . import subjects
from .llama_side import BareLoop, use_plain_weights
from .measure import Plan, Row, Step, alternate, endless, faster, main
from .subjects import SAMPLING, new_tokens, stream_step

OPTIONS: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": SAMPLING}


def bare_step(loop: BareLoop, sampled: bool) -> Step:
    """Decode one token: one that the chain of llama.cpp chooses, or a fixed one without a look at the logits."""
    loop.restart()
    loop.feed(loop.tokenize(subjects.STORY))
    return (lambda: loop.step(loop.sample())) if sampled else loop.step


def llama_step(llama: Any, mode: str, plan: Plan) -> Step:
    """Take the next chunk of llama-cpp-python's stream."""
    options = OPTIONS[mode] or {"temperature": 0.0}
    count = new_tokens(plan)
    step = endless(lambda: llama.create_completion(subjects.STORY, max_tokens=count, stream=True, **options))
    step()
    return step


def genai_model(folder: Path, threads: int) -> Any:
    """Load a folder with onnxruntime-genai."""
    import onnxruntime_genai as og

    config = og.Config(str(folder))
    config.overlay(f'{{"model": {{"decoder": {{"session_options": {{"intra_op_num_threads": {threads}}}}}}}}}')
    return og.Model(config)


def genai_step(folder: Path, plan: Plan) -> Step:
    """Take the next token and its text from onnxruntime-genai."""
    import onnxruntime_genai as og

    model = genai_model(folder, plan.threads)
    tokenizer = og.Tokenizer(model)
    prompt = genai.Tokenizer.from_file(folder).encode(subjects.STORY)

    def pieces() -> Iterator[str]:
        settings = og.GeneratorParams(model)
        settings.set_search_options(max_length=len(prompt) + new_tokens(plan), do_sample=False)
        generator, stream = og.Generator(model, settings), tokenizer.create_stream()
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()
            yield stream.decode(generator.get_next_tokens()[0])

    step = endless(pieces)
    step()
    return step


def measure_gguf(plan: Plan) -> Iterator[Row]:
    """P1 and P2."""
    import llama_cpp

    path = subjects.gguf_file(plan.quick)
    with genai.load(path, threads=plan.threads, context_length=plan.context_length) as model:
        bare = BareLoop(path, plan.context_length, 512, plan.threads)
        bare.use_sampler(SAMPLING["top_k"], SAMPLING["top_p"], SAMPLING["min_p"], SAMPLING["temperature"])
        for mode, aim in zip(OPTIONS, (">= 0.99", ">= 0.985"), strict=True):
            seconds = alternate(stream_step(model, plan, **OPTIONS[mode]), bare_step(bare, False), plan)
            yield faster(f"P1 GGUF decode, {mode}", "bare llama_decode", seconds, 1, (">= 0.97", aim))
        seconds = alternate(stream_step(model, plan, **SAMPLING), bare_step(bare, True), plan)
        other_side = "llama_decode and llama_sampler_sample"
        yield faster("P1 GGUF decode, sampled", other_side, seconds, 1, (">= 0.98", ">= 0.99"))
        use_plain_weights()
        llama = llama_cpp.Llama(
            str(path), n_ctx=plan.context_length, n_threads=plan.threads, n_threads_batch=plan.threads, verbose=False
        )
        for mode, options in OPTIONS.items():
            seconds = alternate(stream_step(model, plan, **options), llama_step(llama, mode, plan), plan)
            yield faster(f"P2 GGUF decode, {mode}", "llama-cpp-python stream", seconds, 1, (">= 1.05", ">= 1.15"))
        llama.close()


def onnx_seconds(folder: Path, plan: Plan) -> tuple[float, float]:
    """Median seconds of a step of both sides, means of two rounds: of two sessions in one process that which was made
    first is slower, by 6 % and more on the machine of the table, whoever made it. So each side is made first once.
    """
    load = partial(genai.load, folder, threads=plan.threads, context_length=plan.context_length)
    with load() as model:
        first = alternate(stream_step(model, plan), genai_step(folder, plan), plan)
    other = genai_step(folder, plan)
    with load() as model:
        second = alternate(stream_step(model, plan), other, plan)
    return (first[0] + second[0]) / 2, (first[1] + second[1]) / 2


def measure_onnx(plan: Plan) -> Iterator[Row]:
    """P4, on each kind of folder."""
    for operators, weights in (("gqa", "q8"), ("gqa", "f32"), ("std", "f32")):
        folder = subjects.onnx_folder(operators, weights, plan.quick)
        seconds = onnx_seconds(folder, plan)
        yield faster(f"P4 ONNX decode, {operators} {weights}", "onnxruntime-genai", seconds, 1, (">= 0.97", ">= 1.03"))


def measure(plan: Plan) -> Iterator[Row]:
    """All rows of this file."""
    yield from measure_gguf(plan)
    yield from measure_onnx(plan)


if __name__ == "__main__":
    main(measure, __doc__)
