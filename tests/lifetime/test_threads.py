"""Many threads on one pipeline, one model, one process (cases S-LIF-06 to 08)."""

from __future__ import annotations

import sys

import pytest
from lifetime.programs import run_quietly

from fakes.model_files import ModelFiles


def test_s_lif_06_one_pipeline_is_busy_or_right(files: ModelFiles, engine: str) -> None:
    run_quietly("thread_programs.py", "share_one_pipeline", files, engine)


def test_s_lif_07_pipelines_of_one_model_do_not_mix(files: ModelFiles, engine: str) -> None:
    run_quietly("thread_programs.py", "one_pipeline_each", files, engine)


def test_s_lif_06_loading_and_closing_at_once(files: ModelFiles, engine: str) -> None:
    run_quietly("thread_programs.py", "build_and_close_at_once", files, engine)


def test_s_lif_06_one_vocabulary(files: ModelFiles, llama: None) -> None:
    run_quietly("thread_programs.py", "share_one_vocabulary", files, "llama")


def test_s_lif_04_collection_in_another_thread(files: ModelFiles, engine: str) -> None:
    run_quietly("thread_programs.py", "collect_in_another_thread", files, engine)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer signal")
def test_s_lif_08_an_interrupt_ends_a_build(files: ModelFiles, engine: str) -> None:
    run_quietly("thread_programs.py", "interrupt_builds", files, engine)
