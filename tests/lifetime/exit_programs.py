"""Programs for `test_exit.py` and `test_forks.py`, each in its own process: `exit_programs.py PROGRAM MODEL ENGINE`.

MODEL is the graph `add` for ONNX Runtime and a small decoder for llama.cpp.
"""

from __future__ import annotations

import atexit
import builtins
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

early: list[Callable[[], None]] = []
"""What to call at exit after all handlers of the package: those that were registered first come last."""


@atexit.register
def call_early() -> None:
    for act in early:
        act()


from winml_lite import Pipeline, Runtime, Stage, Tensor, Vocabulary  # noqa: E402

HANGING = 100
"""Seconds after which a child that hangs is ended."""
kept: dict[str, Any] = {}
"""What is still there when the interpreter ends."""


def build(path: str, engine: str) -> tuple[Runtime, Stage, Pipeline]:
    """A pipeline of one stage with everything bound."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    if engine == "ort":
        for index in (0, 1):
            stage.bind_input(index, runtime.tensor_from_numpy(np.array([1, 2], np.float32)))
    else:
        stage.set_sequence_capacity_hint(64)
        stage.bind_input(0, runtime.tensor_from_tokens([1]))
    stage.request_output(0)
    return runtime, stage, builder.build()


def compute(path: str, engine: str) -> Tensor:
    """Load, build and run once; return the output, with everything else kept alive by it or gone."""
    _, stage, pipeline = build(path, engine)
    pipeline.run()
    return stage.output(0)


def refused(work: Callable[[], object], text: str) -> None:
    """`work` must be refused with a RuntimeError that says `text`; a failure is printed."""
    try:
        work()
    except RuntimeError as error:
        if text not in str(error):
            print(f"another text: {error}")
    else:
        print("it was not refused")


# Exit


def exit_while_daemon_threads_load(path: str, engine: str) -> None:
    """Threads load, build, run and drop without end; the exit meets them anywhere."""

    def work() -> None:
        while True:
            compute(path, engine)

    start(work, work)
    time.sleep(float(os.environ["EXIT_AFTER"]))


def exit_while_daemon_threads_submit(path: str, engine: str) -> None:
    def work() -> None:
        _, stage, pipeline = build(path, engine)
        execution = pipeline.execution()
        while True:
            execution.submit().wait()
            stage.output(0).to_numpy()
            pipeline.reset()

    start(work, work)
    time.sleep(float(os.environ["EXIT_AFTER"]))


def exit_with_submitted_work(path: str, engine: str) -> None:
    _, stage, pipeline = build(path, engine)
    kept["all"] = stage, pipeline, pipeline.execution().submit()


def use_after_the_exit_handlers(path: str, engine: str) -> None:
    """What was made before is refused, and so is new work; results can still be read."""
    runtime, stage, pipeline = build(path, engine)
    pipeline.run()
    output = stage.output(0)
    expected = output.to_numpy()
    if engine == "llama":
        kept["vocabulary"] = Vocabulary.from_file(path)

    def use() -> None:
        refused(pipeline.run, "the interpreter is exiting")
        refused(pipeline.execution().submit, "the interpreter is exiting")
        refused(lambda: compute(path, engine), "the interpreter is exiting")
        if engine == "llama":
            refused(pipeline.reset, "the interpreter is exiting")
            refused(lambda: stage.set_sequence_capacity(32), "the interpreter is exiting")
            refused(lambda: kept["vocabulary"].encode(b"a", True), "the interpreter is exiting")
            refused(lambda: Vocabulary.from_file(path), "the interpreter is exiting")
        assert np.array_equal(output.to_numpy(), expected)
        runtime.close()

    early.append(use)


def use_while_the_interpreter_goes(path: str, engine: str) -> None:
    """A finalizer of the program's own uses a pipeline when most of the interpreter is gone."""
    _, _, pipeline = build(path, engine)
    pipeline.run()

    class Owner:
        def __del__(self) -> None:
            refused(pipeline.run, "the interpreter is exiting")

    builtins.owner = Owner()  # type: ignore[attr-defined]


def work_in_an_exit_function(path: str, engine: str) -> None:
    """An exit function that was registered after the first model was loaded may do everything."""

    def last() -> None:
        before = kept["output"].to_numpy()
        assert np.array_equal(compute(path, engine).to_numpy(), before)

    kept["output"] = compute(path, engine)
    atexit.register(last)


# Forks


def fork_before_the_first_use(path: str, engine: str) -> None:
    expect(in_child(lambda: compute(path, engine)), 0)
    compute(path, engine)


def fork_and_use_what_was_loaded(path: str, engine: str) -> None:
    runtime, stage, pipeline = build(path, engine)
    pipeline.run()
    output = stage.output(0)
    before = output.to_numpy()

    def use() -> None:
        refused(pipeline.run, "'spawn'")
        refused(lambda: pipeline.execution().submit().wait(), "'spawn'")
        if engine == "llama":
            refused(pipeline.reset, "'spawn'")
            refused(lambda: stage.set_sequence_capacity(32), "'spawn'")
        assert np.array_equal(output.to_numpy(), before)
        pipeline.close()
        runtime.close()

    expect(in_child(use), 0)
    pipeline.reset()
    pipeline.run()
    assert np.array_equal(stage.output(0).to_numpy(), before)


def fork_and_load_again(path: str, engine: str) -> None:
    """ONNX Runtime makes new sessions in the child, llama.cpp cannot."""
    kept["output"] = compute(path, engine)
    before = kept["output"].to_numpy()

    def load() -> None:
        if engine == "llama":
            refused(lambda: compute(path, engine), "'spawn'")
        else:
            assert np.array_equal(compute(path, engine).to_numpy(), before)

    expect(in_child(load), 0)


def fork_and_leave(path: str, engine: str) -> None:
    """The child ends with everything of its parent still there, by the end of the program or by `sys.exit`."""
    kept["all"] = build(path, engine)
    kept["all"][2].run()
    for code in (0, 7):
        pid = os.fork()
        if pid == 0:
            signal.alarm(HANGING)
            sys.exit(code)
        expect(os.waitpid(pid, 0)[1], code << 8)


def fork_in_a_child(path: str, engine: str) -> None:
    kept["all"] = build(path, engine)
    kept["all"][2].run()
    expect(in_child(lambda: expect(in_child(lambda: None), 0)), 0)


def fork_while_another_thread_works(path: str, engine: str) -> None:
    """Whatever lock the other thread holds at that moment, the child does not wait for it."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            compute(path, engine)

    thread = threading.Thread(target=work)
    thread.start()
    runtime, _, pipeline = build(path, engine)
    pipeline.run()

    def use() -> None:
        refused(pipeline.run, "'spawn'")
        runtime.tensor_from_tokens([1]).to_numpy()
        try:
            compute(path, engine)
        except RuntimeError as error:
            assert "'spawn'" in str(error), error

    for _ in range(20):
        time.sleep(0.003)
        expect(in_child(use), 0)
    stop.set()
    thread.join()


def keep_the_file_of_a_model_from_a_buffer(path: str, engine: str) -> None:
    """A child that ends does not delete what its parent needs."""
    with open(path, "rb") as file:
        model = Runtime().load_model_from_buffer(file.read())
    expect(in_child(model.close), 0)
    pid = os.fork()
    if pid == 0:
        sys.exit()
    expect(os.waitpid(pid, 0)[1], 0)
    kept["model"] = model
    assert os.path.exists(model.underlying_object.artifact.path)


def processes_of_every_kind(path: str, engine: str) -> None:
    """`spawn` and `forkserver` do all; `fork` works before the parent has used a model."""
    expected = None
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            results = pool.starmap_async(in_process, [(path, engine)] * 2).get(120)
        expected = expected or compute(path, engine).to_numpy().tolist()
        assert results == [expected, expected], method


def in_process(path: str, engine: str) -> object:
    return compute(path, engine).to_numpy().tolist()


def in_child(work: Callable[[], object]) -> int:
    """Do the work in a forked child and return how it ended."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGING)
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def expect(status: int, wanted: int) -> None:
    assert status == wanted, f"the child ended with {status} (signal {status & 127}, code {status >> 8})"


def start(*work: Callable[[], None]) -> None:
    for target in work:
        threading.Thread(target=target, daemon=True).start()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
