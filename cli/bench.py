"""`winml-lite bench`: the speed of a model on this machine."""

from __future__ import annotations

import statistics
import time
from typing import Any

import click

import genai

from . import terminal
from .options import ModelChoice, json_option, model_options

_TEXT = "The quick brown fox jumps over the lazy dog while seven wizards mix a strange potion. "


@click.command("bench")
@model_options
@click.option("--prompt-tokens", type=click.IntRange(1), default=256, show_default=True, help="Length of the prompt.")
@click.option("--new-tokens", type=click.IntRange(2), default=64, show_default=True, help="Most tokens to generate.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Runs; medians are shown.")
@json_option
def command(choice: ModelChoice, prompt_tokens: int, new_tokens: int, runs: int, as_json: bool) -> None:
    """Measure the speed of a model on this machine.

    Greedy decoding of one prompt, one warm-up run and then the medians of several. Run nothing else meanwhile.
    """
    started = time.perf_counter()
    with choice.load() as model:
        load_seconds = time.perf_counter() - started
        prompt = _prompt(model.tokenizer, prompt_tokens)
        results = [_run(model, prompt, index, new_tokens) for index in range(runs + 1)][1:]
        record = {
            "model": model.name,
            "engine": model.engine,
            "device": model.target.name,
            "file": model.file,
            "load_seconds": load_seconds,
            **_medians(results),
            "runs": runs,
        }
    if as_json:
        return terminal.answer_json(record)
    terminal.answer(
        f"load          {load_seconds:8.2f} s\n"
        f"prompt        {record['prompt_tokens_per_second']:8.1f} tokens/s ({record['prompt_token_count']} tokens)\n"
        f"first token   {record['first_token_seconds']:8.3f} s\n"
        f"decode        {record['decode_tokens_per_second']:8.1f} tokens/s ({record['generated_token_count']} tokens)\n"
    )


def _prompt(tokenizer: genai.Tokenizer, length: int) -> list[int]:
    ids = tokenizer.encode(_TEXT, False)
    return (ids * (length // len(ids) + 1))[:length]


def _run(model: genai.LanguageModel, prompt: list[int], index: int, new_tokens: int) -> genai.TextGenerationResult:
    """Generate once. Each run begins with another token, or the model would still know the prompt of the run before."""
    start = index % len(prompt)
    return model.generate(prompt[start:] + prompt[:start], max_new_tokens=new_tokens)


def _medians(results: list[genai.TextGenerationResult]) -> dict[str, Any]:
    def median(name: str) -> float:
        return float(statistics.median(getattr(result.timings, name) for result in results))

    return {
        "prompt_token_count": results[0].prompt_token_count,
        "generated_token_count": max(result.generated_token_count for result in results),
        "first_token_seconds": median("first_token_seconds"),
        "prompt_tokens_per_second": median("prompt_tokens_per_second"),
        "decode_tokens_per_second": median("decode_tokens_per_second"),
    }
