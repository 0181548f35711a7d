"""P8: microseconds to choose one token, ours against llama.cpp's sampler chain, on the same rows.

Cold: 64 MB are read before each call, as a decode would do; this is the figure that counts. Hot: calls back to back.
llama.cpp gets its token array ready-made: a template is copied into place by one memmove, which is timed, because
`llama_sampler_sample` fills the same array from the row. Both sides alternate call by call.
"""

from __future__ import annotations

import ctypes
import random
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter_ns

import llama_cpp
import numpy as np
import numpy.typing as npt

from genai.options import TextGenerationOptions
from genai.sampling import TokenSelector

from .measure import Plan, main, shorter
from .measure import Row as Figure

VOCABULARIES = (49_152, 151_936, 262_144)
CHAINS: dict[str, dict[str, float]] = {
    "top-k 40, top-p .95, min-p .05, T .8": {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "top-p .95, min-p .05, T .8": {"top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "top-p .95, T .8": {"top_p": 0.95, "temperature": 0.8},
    "T .8": {"temperature": 0.8},
    "greedy": {},
}
TOP_K_BOUNDS = {49_152: ("<= 1.8", "<= 1.2"), 151_936: ("<= 1.0", "<= 0.6"), 262_144: ("<= 1.0", "<= 0.5")}
OTHER_BOUNDS = ("<= 0.7", "<= 0.5")
Row = npt.NDArray[np.float32]
Side = Callable[[int], int]


def logits(vocabulary_size: int, count: int) -> list[Row]:
    """Rows with the long tail of a language model: most tokens near 0, a few dozen far above."""
    generator = np.random.default_rng(vocabulary_size)
    rows = generator.standard_normal((count, vocabulary_size)).astype(np.float32) * 2
    for row in rows:
        row[generator.integers(0, vocabulary_size, 60)] += generator.exponential(4, 60).astype(np.float32)
    return list(rows)


def ours(options: dict[str, float], rows: list[Row]) -> Side:
    selector = TokenSelector(TextGenerationOptions(seed=1, **options), rows[0].size)  # type: ignore[arg-type]

    def select(index: int) -> int:
        token_id = selector.select(rows[index])
        selector.accept(token_id)
        return token_id

    return select


def llama(options: dict[str, float], rows: list[Row]) -> Side:
    """The same filters as a llama.cpp chain."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    add = llama_cpp.llama_sampler_chain_add
    if not options:
        add(chain, llama_cpp.llama_sampler_init_greedy())
    if "top_k" in options:
        add(chain, llama_cpp.llama_sampler_init_top_k(int(options["top_k"])))
    if "temperature" in options:
        add(chain, llama_cpp.llama_sampler_init_temp(options["temperature"]))
    if "top_p" in options:
        add(chain, llama_cpp.llama_sampler_init_top_p(options["top_p"], 1))
    if "min_p" in options:
        add(chain, llama_cpp.llama_sampler_init_min_p(options["min_p"], 1))
    if options:
        add(chain, llama_cpp.llama_sampler_init_dist(1))

    size = rows[0].size
    layout = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    templates = []
    for row in rows:
        template = np.zeros(size, layout)
        template["id"], template["logit"] = np.arange(size), row
        templates.append(template)
    work = np.zeros(size, layout)
    sources, target = [template.ctypes.data for template in templates], work.ctypes.data
    data = ctypes.cast(target, ctypes.POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(data, size, -1, False)
    reference, apply = ctypes.byref(array), llama_cpp.llama_sampler_apply

    def sample(index: int) -> int:
        ctypes.memmove(target, sources[index], work.nbytes)
        array.size, array.selected, array.sorted = size, -1, False
        apply(chain, reference)
        return int(array.data[array.selected].id)

    sample.keep = (templates, work)  # type: ignore[attr-defined]
    return sample


def medians(
    mine: Side, other: Side, rows: int, calls: int, flush: npt.NDArray[np.float64] | None
) -> tuple[float, float]:
    """Return the median microseconds of both sides, alternated call by call in random order."""
    times: dict[Side, list[int]] = {mine: [], other: []}
    for call in range(calls + 5):
        for side in random.sample((mine, other), 2):
            if flush is not None:
                flush.sum()
            start = perf_counter_ns()
            side(call % rows)
            times[side].append(perf_counter_ns() - start)
    return statistics.median(times[mine][5:]) / 1000, statistics.median(times[other][5:]) / 1000


def measure(plan: Plan) -> Iterator[Figure]:
    """P8 outside a model, for each chain and vocabulary, cold and hot."""
    flush = np.zeros(8 << 20)
    calls = plan.chunks * plan.steps
    for name, options in CHAINS.items():
        for vocabulary_size in VOCABULARIES[:1] if plan.quick else VOCABULARIES:
            rows = logits(vocabulary_size, 6)
            mine, other = ours(options, rows), llama(options, rows)
            bounds = TOP_K_BOUNDS[vocabulary_size] if "top_k" in options else OTHER_BOUNDS
            for state, scan in (("cold", flush), ("hot", None)):
                amounts = medians(mine, other, len(rows), calls, scan)
                yield shorter(f"P8 {name}, V {vocabulary_size:,}, {state}", "llama.cpp chain", amounts, "µs", bounds)


if __name__ == "__main__":
    main(measure, __doc__)
