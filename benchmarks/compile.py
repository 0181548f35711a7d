"""Loading a compiled model against loading its source: SmolLM2 from the file to a stage that is ready to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from winml_lite import CompiledModelForm, Runtime

from . import subjects
from .measure import Plan, Row, alternate, main, shorter

SUBJECTS = {("plain", "f16"): ("<= 0.85", "<= 0.65"), ("gqa", "q8"): ("<= 1.05", "<= 0.9")}
"""Operators and weights, with what the ratio must be.

With fused operators on 8-bit weights nearly all of the time goes into packing the weights, which every load does.
"""
FORMS = {"for the device": CompiledModelForm.DEVICE_TARGETED, "durable": CompiledModelForm.DURABLE}


def load(runtime: Runtime, path: Path, threads: int) -> None:
    """Load a model and build a stage of it, and let both go."""
    with runtime.load_model(path) as model, runtime.create_pipeline_builder() as builder:
        with builder.add_model_stage(model, runtime.create_cpu_target()) as stage:
            stage.ort_options().set_thread_count(threads)
            builder.build().close()


def compiled(runtime: Runtime, source: Path, form: CompiledModelForm, folder: str) -> Path:
    """Compile a model, with its weights beside it as those of the source lie."""
    path = Path(folder, "model.onnx")
    with runtime.load_model(source) as model:
        runtime.create_cpu_target().compile_to_file(model, path, f"{path.name}.data", form)
    return path


def measure(plan: Plan) -> Iterator[Row]:
    """Milliseconds of a load, in turn."""
    turns = replace(plan, chunks=2 * plan.repeats, steps=1, dropped=0)
    with Runtime() as runtime, TemporaryDirectory() as folder:
        for ((operators, weights), bounds), (name, form) in product(SUBJECTS.items(), FORMS.items()):
            source = subjects.onnx_folder(operators, weights, plan.quick) / "model.onnx"
            made = compiled(runtime, source, form, folder)
            ours, other = (partial(load, runtime, path, plan.threads) for path in (made, source))
            ours()
            other()
            seconds = alternate(ours, other, turns)
            title = f"load of {operators} {weights}, compiled {name}"
            amounts = (seconds[0] * 1e3, seconds[1] * 1e3)
            yield shorter(title, "load of its source", amounts, "ms", bounds)


if __name__ == "__main__":
    main(measure, __doc__)
