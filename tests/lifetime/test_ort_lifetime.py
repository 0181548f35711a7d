"""ONNX stages made and dropped: no memory grows, no order of closing and no exit crashes. One subprocess per test."""

from __future__ import annotations

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_python

pytestmark = pytest.mark.real


def run_program(text: str, quiet: bool = True) -> str:
    """Run a program in a fresh process; its output, and nothing on standard error if `quiet`."""
    code, output, errors = run_python("-c", text, **COUNTED)
    assert (code, errors if quiet else "") == (0, ""), errors
    return output


IMPORTS = """
from fakes.ort_stages import build, feed, ids, step, tensor
from lifetime.held_memory import assert_keeps_nothing
from models import onnx_models
from winml_lite.native.backend import OrtOptions
"""


def test_build_run_close_cycles_do_not_grow() -> None:
    run_program(
        IMPORTS
        + """
model = onnx_models.grow().SerializeToString()

def work():
    stage = build(model, state_pairs=((1, 1),), ort=OrtOptions(thread_count=1))
    stage.bind_output(0, None, True)
    stage.bind_output(1, None, True)
    feed(stage, 1, 2, 3)
    feed(stage, 4)
    assert stage.output(0).array().tolist() == [[10.0]]

assert_keeps_nothing(work, warm_up=100, times=200, each=512)
"""
    )


def test_runs_do_not_grow() -> None:
    # Each output is 1 MiB: a leaked one shows at once. Half of them are looked at, half are not.
    run_program(
        IMPORTS
        + """
import numpy as np
stage = build(onnx_models.dyn1())
stage.bind_output(0, None, True)
inputs = [tensor(np.ones((87381, 3))), tensor(np.ones((80000, 3)))]

def work():
    for index in (0, 1, 0, 1):
        stage.bind_input(0, inputs[index])
        step(stage)
        if index:
            stage.output(0)

assert_keeps_nothing(work, warm_up=10, times=40)
"""
    )


def test_state_does_not_grow_over_resets() -> None:
    run_program(
        IMPORTS
        + """
stage = build(onnx_models.grow(), state_pairs=((1, 1),))
stage.bind_output(0, None, True)
many = ids(*range(100_000))

def work():
    for action in (lambda: stage.sequence.reset(), lambda: stage.sequence.rewind(10), stage.discard):
        stage.bind_input(0, many)
        step(stage)
        step(stage)
        stage.run()
        action()
    stage.sequence.reset()

assert_keeps_nothing(work, warm_up=10, times=40)
"""
    )


def test_failing_runs_do_not_grow() -> None:
    run_program(
        IMPORTS
        + """
import numpy as np
from winml_lite.errors import WinMLError
from winml_lite.storage import allocate
from winml_lite.values import TensorDataType
stage = build(onnx_models.dyn1())
stage.bind_input(0, tensor(np.ones((2, 3))))
stage.bind_output(0, allocate(TensorDataType.FLOAT32, (1, 3)), False)

def work():
    try:
        stage.run()
    except WinMLError:
        pass

assert_keeps_nothing(work, warm_up=200, times=1000, each=16)
"""
    )


def test_exit_with_everything_alive() -> None:
    printed = run_program(
        """
from fakes.ort_stages import build, feed
from models import onnx_models
stage = build(onnx_models.group_query_attention(), state_pairs=((2, 1), (3, 2)), capacity_hint=8)
grown = build(onnx_models.grow(), state_pairs=((1, 1),))
grown.bind_output(0, None, True)
feed(grown, 1)
output = grown.output(0)
cycle = [output, stage]
cycle.append(cycle)
print("done")
"""
    )
    assert printed == "done\n"


def test_exit_while_a_daemon_thread_runs() -> None:
    printed = run_program(
        """
import threading, time
import numpy as np
from fakes.ort_stages import build, tensor
from models import onnx_models
stage = build(onnx_models.slow(rounds=10_000_000))
stage.bind_input(0, tensor(np.zeros((64, 64))))
stage.bind_output(0, None, True)
threading.Thread(target=stage.run, daemon=True).start()
time.sleep(0.5)
print("leaving")
"""
    )
    assert printed == "leaving\n"


def test_exit_while_daemon_threads_run_again_and_again() -> None:
    # Each exit meets the threads at another place, in a run or between two.
    printed = run_program(
        """
import subprocess, sys
program = '''
import threading, time
from fakes.ort_stages import build, feed
from models import onnx_models

def work():
    while True:
        stage = build(onnx_models.grow(), state_pairs=((1, 1),))
        stage.bind_output(0, None, True)
        for _ in range(100):
            feed(stage, 1, 2)
            stage.output(0).array()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
'''
print([subprocess.run([sys.executable, "-c", program]).returncode for _ in range(10)])
"""
    )
    assert printed == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n"


def test_use_after_the_exit_handlers_is_refused() -> None:
    printed = run_program(
        """
import atexit

def use():
    stage.sequence.rewind(1)
    stage.sequence.reset()
    for attempt in (lambda: feed(stage, 3), lambda: build(onnx_models.two())):
        try:
            attempt()
        except RuntimeError as error:
            print(error)
    print(output.array().tolist())

atexit.register(use)  # before the engine is loaded, so it runs after the engine's own handlers
from fakes.ort_stages import build, feed
from models import onnx_models
stage = build(onnx_models.grow(), state_pairs=((1, 1),))
stage.bind_output(0, None, True)
feed(stage, 1, 2)
output = stage.output(0)
"""
    )
    refused = "the interpreter is exiting: ONNX models cannot be used any more\n"
    assert printed == refused * 2 + "[[3.0]]\n"


def test_every_order_of_dropping() -> None:
    printed = run_program(
        """
import gc, itertools
from fakes.ort_stages import build, tensor
from models import onnx_models
gc.disable()
for order in itertools.permutations(("stage", "source", "output", "array")):
    objects = {"stage": build(onnx_models.two()), "source": tensor([1, 2])}
    objects["stage"].bind_input(0, objects["source"])
    objects["stage"].bind_output(0, None, True)
    objects["stage"].run()
    objects["stage"].commit()
    objects["output"] = objects["stage"].output(0)
    objects["array"] = objects["output"].array()
    for name in order:
        if "array" in objects:
            assert objects["array"].tolist() == [2, 4]
        del objects[name]
print("done")
"""
    )
    assert printed == "done\n"


def test_dropping_in_another_thread() -> None:
    printed = run_program(
        """
import threading
from fakes.ort_stages import build, tensor
from models import onnx_models
for _ in range(20):
    stages = [build(onnx_models.add())]
    stages[0].bind_input(0, tensor([1, 2]))
    stages[0].bind_input(1, tensor([1, 2]))
    stages[0].run()
    worker = threading.Thread(target=stages.clear)
    worker.start()
    worker.join()
print("done")
"""
    )
    assert printed == "done\n"


def test_s_lif_08_interrupts_leave_the_state_whole() -> None:
    # Each committed run adds a 1, so the sum of the state is its length whatever was interrupted.
    # An interrupt that meets a finalizer is reported on standard error by Python itself.
    printed = run_program(
        """
from fakes.ort_stages import build, ids
from lifetime.interrupts import until_interrupted
from models import onnx_models
stage = build(onnx_models.grow(), state_pairs=((1, 1),))
stage.bind_output(0, None, True)
stage.bind_input(0, ids(1))
interrupts = 0
while interrupts < 300:
    try:
        for _ in until_interrupted(0.001):
            stage.run()
            stage.commit()
            if stage.sequence.position > 100:
                stage.sequence.rewind(50)
    except KeyboardInterrupt:
        interrupts += 1
        stage.discard()
stage.run()
stage.commit()
print(stage.output(0).array().item() == stage.sequence.position)
""",
        quiet=False,
    )
    assert printed == "True\n"
