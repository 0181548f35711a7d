"""How the benchmarks measure: two sides alternating in chunks within one run, medians per step, and their ratio.

Whole runs differ by several percent on a shared machine; medians of single steps taken in turn agree to about one.
Nothing else may run meanwhile: two busy thread pools spin on each other.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured pair. `ratio` is ours over the other side, in the direction of the target."""

    measure: str
    other_side: str
    ours: float
    other: float
    unit: str
    ratio: float
    must: str
    aim: str

    @property
    def met(self) -> str:
        """`"aim"`, `"must"` or `"missed"`."""
        if _holds(self.ratio, self.aim):
            return "aim"
        return "must" if _holds(self.ratio, self.must) else "missed"


def _holds(ratio: float, bound: str) -> bool:
    relation, limit = bound.split()
    return ratio >= float(limit) if relation == ">=" else ratio <= float(limit)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    chunks: int = 8
    steps: int = 24
    """Steps of one side in a chunk."""
    dropped: int = 2
    """First steps of a chunk that are not counted: they find the other side's data in the caches."""
    repeats: int = 9
    """Repetitions of what is measured whole: a start, a prompt."""
    threads: int = 2
    quick: bool = False
    """Tiny models and a few steps: proves that the benchmark runs, measures nothing."""
    context_length: int = 1024


QUICK_NOTE = "This was a quick run on tiny models: it shows that the benchmarks run, the figures mean nothing."
QUICK = Plan(chunks=2, steps=4, dropped=1, repeats=2, threads=1, quick=True, context_length=512)


def alternate(ours: Step, other: Step, plan: Plan) -> tuple[float, float]:
    """Median seconds of a step of both sides, in alternating chunks; who begins a pair of chunks alternates too."""
    times: dict[Step, list[float]] = {ours: [], other: []}
    gc.collect()
    gc.disable()
    try:
        for chunk in range(plan.chunks):
            for side in (ours, other) if chunk % 2 == 0 else (other, ours):
                times[side] += [_timed(side) for _ in range(plan.steps)][plan.dropped :]
    finally:
        gc.enable()
    return statistics.median(times[ours]), statistics.median(times[other])


def _timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def endless(make: Callable[[], Iterable[object]]) -> Step:
    """A step that takes the next item of an iterable and makes a new one when it ends."""

    def items() -> Iterator[object]:
        while True:
            yield from make()

    iterator = items()
    return lambda: next(iterator)


def faster(measure: str, other_side: str, seconds: tuple[float, float], work: float, bounds: tuple[str, str]) -> Row:
    """A row in units of work per second: more is better."""
    ours, other = work / seconds[0], work / seconds[1]
    return Row(measure, other_side, ours, other, "tokens/s", ours / other, *bounds)


def shorter(measure: str, other_side: str, amounts: tuple[float, float], unit: str, bounds: tuple[str, str]) -> Row:
    """A row in a unit of which less is better."""
    return Row(measure, other_side, *amounts, unit, amounts[0] / amounts[1], *bounds)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| measure | other side | ours | other | unit | ratio | must | aim | holds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (row.measure, row.other_side, f"{row.ours:.4g}", f"{row.other:.4g}", row.unit, f"{row.ratio:.3f}")
        lines.append("| " + " | ".join((*cells, row.must, row.aim, row.met)) + " |")
    return "\n".join(lines)


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark takes."""
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help="tiny models, few steps: proves that it runs")
    made.add_argument("--threads", type=int, default=2, help="threads of both sides")
    made.add_argument("--json", type=Path, help="write the rows to this file as JSON")
    return made


def main(measure: Callable[[Plan], Iterable[Row]], description: str | None) -> None:
    """Run one benchmark from the command line: print its table, write its JSON."""
    arguments = parser(description).parse_args()
    plan = QUICK if arguments.quick else Plan(threads=arguments.threads)
    rows: list[Row] = []
    for row in measure(plan):
        rows.append(row)
        print(f"{row.measure} / {row.other_side}: {row.ratio:.3f} ({row.met})", file=sys.stderr, flush=True)
    print(table(rows))
    if plan.quick:
        print(f"\n{QUICK_NOTE}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
