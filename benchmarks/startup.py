"""P9, P11: `import genai` against `import llama_cpp`, and process start to the first token of an answer."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import subjects
from .llama_side import PLAIN_WEIGHTS
from .measure import Plan, Row, main, shorter

LLAMA_SCRIPT = f"""
import sys
from llama_cpp import Llama
{PLAIN_WEIGHTS}
path, prompt, threads, context = *sys.argv[1:3], *map(int, sys.argv[3:])
llama = Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
for part in llama.create_completion(prompt, max_tokens=8, temperature=0.0, stream=True):
    print(part["choices"][0]["text"], end="", flush=True)
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Installed packages are compiled; a checkout must be allowed to keep its compiled files too."""


def seconds_to_first_output(command: Sequence[str]) -> float:
    """Start a process and wait for the first byte that it prints."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - start
        process.stdout.read()
    if process.returncode != 0 or not first:
        raise RuntimeError(f"{command} printed nothing or failed with {process.returncode}")
    return seconds


def seconds_to_run(command: Sequence[str]) -> float:
    """Run a process to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start


def medians(ours: Sequence[str], other: Sequence[str], plan: Plan, first_output: bool) -> tuple[float, float]:
    """Medians of both commands, alternating, after one run of each that is not counted."""
    clock = seconds_to_first_output if first_output else seconds_to_run
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(plan.repeats + 1):
        times[0].append(clock(ours))
        times[1].append(clock(other))
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def import_seconds(plan: Plan) -> tuple[float, float]:
    """Time of the import statements alone: the start of Python itself is taken off both sides."""
    ours, other = ([sys.executable, "-c", f"import {module}"] for module in ("genai", "llama_cpp"))
    bare = medians([sys.executable, "-c", ""], [sys.executable, "-c", ""], plan, False)[0]
    seconds = medians(ours, other, plan, False)
    return seconds[0] - bare, seconds[1] - bare


def command(path: Path, plan: Plan) -> list[str]:
    """`winml-lite generate` of this checkout or installation."""
    program = "import sys; from cli.main import main; sys.exit(main())"
    sizes = ["--max-new-tokens", "8", "--threads", str(plan.threads), "--context-length", str(plan.context_length)]
    return [sys.executable, "-c", program, "generate", "--raw", "--model", str(path), *sizes, subjects.STORY]


def measure(plan: Plan) -> Iterator[Row]:
    """P9 and P11, in milliseconds."""
    ours, other = import_seconds(plan)
    yield shorter("P9 import genai", "import llama_cpp", (ours * 1e3, other * 1e3), "ms", ("<= 0.7", "<= 0.25"))
    path = subjects.gguf_file(plan.quick)
    settings = [str(plan.threads), str(plan.context_length)]
    script = [sys.executable, "-c", LLAMA_SCRIPT, str(path), subjects.STORY, *settings]
    ours, other = medians(command(path, plan), script, plan, True)
    amounts = (ours * 1e3, other * 1e3)
    yield shorter("P11 start to first token", "llama-cpp-python script", amounts, "ms", ("<= 1.0", "<= 0.75"))


if __name__ == "__main__":
    main(measure, __doc__)
