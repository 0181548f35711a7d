"""P10: peak memory of a process that generates 200 tokens, against the peer on the same file."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import subjects
from .llama_side import PLAIN_WEIGHTS
from .measure import Plan, Row, main, shorter

PEAK = """
try:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
except ImportError:
    import psutil
    peak = psutil.Process().memory_info().peak_wset
print(peak)
"""
OURS = """
import sys
import genai
path, prompt, tokens, threads, context = *sys.argv[1:3], *map(int, sys.argv[3:])
with genai.load(path, context_length=context, threads=threads) as model:
    for piece in model.stream(prompt, max_new_tokens=tokens):
        pass
"""
LLAMA = f"""
import sys
from llama_cpp import Llama
{PLAIN_WEIGHTS}
path, prompt, tokens, threads, context = *sys.argv[1:3], *map(int, sys.argv[3:])
llama = Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
for part in llama.create_completion(prompt, max_tokens=tokens, temperature=0.0, stream=True):
    pass
"""
GENAI = """
import sys
import onnxruntime_genai as og
path, prompt, tokens, threads, context = *sys.argv[1:3], *map(int, sys.argv[3:])
config = og.Config(path)
config.overlay('{"model": {"decoder": {"session_options": {"intra_op_num_threads": %d}}}}' % threads)
model = og.Model(config)
tokenizer = og.Tokenizer(model)
ids = tokenizer.encode(prompt)
settings = og.GeneratorParams(model)
settings.set_search_options(max_length=context, do_sample=False)
generator, stream = og.Generator(model, settings), tokenizer.create_stream()
generator.append_tokens(ids)
for _ in range(tokens):
    if generator.is_done():
        break
    generator.generate_next_token()
    stream.decode(generator.get_next_tokens()[0])
"""


def peak_bytes(program: str, path: Path, plan: Plan) -> float:
    """Median over a few processes of the largest resident size, in bytes."""
    tokens = "8" if plan.quick else "200"
    settings = [tokens, str(plan.threads), str(plan.context_length)]
    command = [sys.executable, "-c", program + PEAK, str(path), subjects.STORY, *settings]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(min(plan.repeats, 3))]
    return statistics.median(int(run.stdout.split()[-1]) for run in runs)


def measure(plan: Plan) -> Iterator[Row]:
    """P10 on both engines, in MB."""
    gguf, folder = subjects.gguf_file(plan.quick), subjects.onnx_folder("gqa", "q8", plan.quick)
    for name, other_side, path, program in (
        ("P10 peak memory, GGUF", "llama-cpp-python", gguf, LLAMA),
        ("P10 peak memory, ONNX gqa q8", "onnxruntime-genai", folder, GENAI),
    ):
        amounts = (peak_bytes(OURS, path, plan) / 1e6, peak_bytes(program, path, plan) / 1e6)
        yield shorter(name, other_side, amounts, "MB", ("<= 1.05", "<= 1.0"))


if __name__ == "__main__":
    main(measure, __doc__)
