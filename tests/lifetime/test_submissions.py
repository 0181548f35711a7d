"""Submitted work when the process ends or forks: no hang, no crash, nothing on standard error. One subprocess each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lifetime.programs import run_python

pytestmark = pytest.mark.real

BEGIN = """
import os, sys, threading, time
import numpy as np
from pathlib import Path
from fakes.model_files import ModelFiles
from winml_lite import Runtime, Stage, WinMLError

files = ModelFiles(Path(sys.argv[1]))
runtime = Runtime()

def counting():
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, runtime.tensor_from_numpy(np.zeros(1, np.int64)))
    return builder.build()

def slow():
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("slow")))
    stage.bind_input(0, runtime.create_tensor(*stage.underlying_object.declared("inputs", 0)))
    return builder.build()

def writing():
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    choice = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    decoder.bind_input(0, runtime.tensor_from_tokens([10]))
    return builder.build()
"""


def run_program(text: str, folder: Path) -> str:
    """Run a program in a fresh process, which must end by itself, well and silently."""
    code, output, errors = run_python("-c", BEGIN + text, folder)
    assert (code, errors) == (0, ""), errors
    return output


ENDINGS = {
    "the last line": "",
    "sys.exit": "sys.exit(0)",
    "everything dropped first": "del pipeline, fence, runtime, files",
    "closed first": "fence.close(); pipeline.close(); runtime.close()",
    "a daemon waits": "threading.Thread(target=fence.wait, daemon=True).start(); time.sleep(0.05)",
    "a thread waits": "threading.excepthook = lambda _: None; threading.Thread(target=fence.wait, args=(200,)).start()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_among_iterations(tmp_path: Path, ort: None, ending: str) -> None:
    text = "pipeline = counting()\nfence = pipeline.iteration_execution().submit_iterations(2**32 - 1)\n"
    run_program(text + ENDINGS[ending], tmp_path)


def test_exit_in_the_middle_of_a_run(tmp_path: Path, ort: None) -> None:
    run_program("fence = slow().execution().submit()\ntime.sleep(0.2)\nassert not fence.is_complete", tmp_path)


def test_exit_while_work_waits_for_other_work(tmp_path: Path, ort: None) -> None:
    run_program("fence = counting().execution().submit(slow().execution().submit())\ntime.sleep(0.1)", tmp_path)


def test_exit_among_tokens_of_both_engines(tmp_path: Path, ort: None, llama: None) -> None:
    run_program(
        """
for _ in range(20):
    pipeline = writing()
    fences = [pipeline.iteration_execution().submit_iterations(40)]
""",
        tmp_path,
    )


def test_submitting_in_an_exit_function_gives_an_error_or_a_result(tmp_path: Path, ort: None) -> None:
    printed = run_program(
        """
import atexit
pipeline = counting()

@atexit.register
def late():
    try:
        pipeline.execution().submit().wait(100_000)
        print("ran")
    except (RuntimeError, WinMLError) as error:
        print("refused")
""",
        tmp_path,
    )
    assert printed in ("ran\n", "refused\n")


def test_threads_that_do_everything_at_once(tmp_path: Path, ort: None, llama: None) -> None:
    run_program(
        """
import random
pipeline = writing()
decoder, choice = stages = [Stage(core) for core in pipeline.underlying_object.stages]
choice.request_output(0)
end = time.monotonic() + 2
unexpected = []

def work(number):
    pick = random.Random(number)
    acts = (
        pipeline.run,
        lambda: pipeline.execution().submit().wait(),
        lambda: pipeline.iteration_execution().submit_iterations(3).wait(1),
        pipeline.cancel_run,
        pipeline.reset,
        lambda: decoder.bind_input(0, runtime.tensor_from_tokens([10])),
        lambda: pick.choice(stages).output(0).to_numpy(),
        lambda: pick.choice(stages).request_output(0),
        lambda: pick.choice(stages).reset_output(0),
    )
    while time.monotonic() < end:
        try:
            pick.choice(acts)()
        except WinMLError as error:
            if error.hresult not in (0x800700AA, 0x800704C7, 0x80070102, 0x80070490, 0x8007139F):
                unexpected.append(error)
            time.sleep(pick.random() / 1000)

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not unexpected, unexpected
""",
        tmp_path,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_sees_the_work_of_its_parent_as_cancelled(tmp_path: Path, ort: None) -> None:
    printed = run_program(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process with threads
pipeline = counting()
fence = pipeline.iteration_execution().submit_iterations(2**32 - 1)
child = os.fork()
if child == 0:
    try:
        fence.wait(100_000)
    except WinMLError as error:
        os._exit(7 if error.hresult == 0x800704C7 else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), fence.is_complete)
pipeline.cancel_run()
""",
        tmp_path,
    )
    assert printed == "7 False\n"
