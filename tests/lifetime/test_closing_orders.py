"""Any order of closing and deleting, with real engines, each program in its own process."""

from __future__ import annotations

from pathlib import Path

from lifetime.programs import run_python

from fakes.model_files import ModelFiles

PROGRAM = Path(__file__).with_name("closing_orders.py")


def survives(program: str, files: ModelFiles, engine: str, graph: str = "add") -> None:
    """The program ends with 0 and says nothing."""
    path = files.onnx(graph) if engine == "ort" else files.gguf
    assert run_python(PROGRAM, program, path, engine) == (0, "", "")


def test_s_lif_02_closing_in_every_order(files: ModelFiles, engine: str) -> None:
    survives("close_in_every_order", files, engine)


def test_s_lif_02_deleting_in_every_order(files: ModelFiles, engine: str) -> None:
    survives("delete_in_every_order", files, engine)


def test_s_lif_02_five_hundred_random_orders_of_every_object(files: ModelFiles, engine: str) -> None:
    survives("end_in_random_orders", files, engine, "grow")


def test_s_lif_02_use_after_close(files: ModelFiles, engine: str) -> None:
    survives("use_closed_objects", files, engine)


def test_s_lif_01_leaving_everything_open(files: ModelFiles, engine: str) -> None:
    survives("leave_everything_open", files, engine)


def test_s_lif_01_a_build_that_fails(files: ModelFiles, engine: str) -> None:
    survives("fail_half_way", files, engine)


def test_s_lif_03_an_output_outlives_everything(files: ModelFiles, engine: str) -> None:
    survives("keep_an_output", files, engine)


def test_s_lif_04_memory_goes_with_the_last_reference(files: ModelFiles, engine: str) -> None:
    survives("free_without_the_collector", files, engine)


def test_s_lif_05_opening_again(files: ModelFiles, engine: str) -> None:
    survives("reopen", files, engine)


def test_s_lif_08_interrupts_at_any_moment(files: ModelFiles, engine: str) -> None:
    survives("interrupt_often", files, engine)


def test_s_lif_08_interrupts_of_a_stateful_stage(files: ModelFiles, ort: None) -> None:
    survives("interrupt_stateful_runs", files, "ort", "grow")


def test_closing_on_another_thread(files: ModelFiles, engine: str) -> None:
    survives("close_on_another_thread_while_running", files, engine)
