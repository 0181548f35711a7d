"""What loads of one file, and threads that run models one after another, have in common in the engines."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import genai
from fakes.model_files import ModelFiles
from fakes.ort_stages import CPU
from fakes.waiting import until
from models.recipes import random_gguf, random_onnx
from winml_lite.files.onnx import read_onnx, read_onnx_bytes
from winml_lite.native.backend import OrtOptions, StageOptions, backend
from winml_lite.native.ort.session import _shared
from winml_lite.native.teams import _releases

pytestmark = pytest.mark.real
PROMPT = [5, 17, 33, 4]


def session(path: str, options: StageOptions = StageOptions()) -> Any:  # noqa: B008
    """The engine's session behind a stage that is built from a file."""
    return backend("ort").build_stage(read_onnx(path), CPU, options)._session  # type: ignore[attr-defined]


@pytest.mark.usefixtures("ort")
def test_stages_of_one_file_share_a_session(files: ModelFiles) -> None:
    first, second = session(files.onnx("add")), session(files.onnx("add"))
    assert first.resource is second.resource
    assert first.activity is not second.activity


@pytest.mark.usefixtures("ort")
def test_external_weights_are_shared_too(files: ModelFiles) -> None:
    path, _ = files.external
    first, second = session(path), session(path)
    assert first.resource is second.resource


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize(
    "options",
    [
        StageOptions(ort=OrtOptions(thread_count=3)),
        StageOptions(ort=OrtOptions(session_config=(("session.intra_op.allow_spinning", "0"),))),
        StageOptions(dimension_overrides=(("n", 3),)),
    ],
)
def test_stages_that_are_built_otherwise_share_nothing(files: ModelFiles, options: StageOptions) -> None:
    first, second = session(files.onnx("add")), session(files.onnx("add"), options)
    assert first.resource is not second.resource


@pytest.mark.usefixtures("ort")
def test_a_file_that_was_replaced_is_another_one(files: ModelFiles, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    data = Path(files.onnx("add")).read_bytes()
    path.write_bytes(data)
    first = session(str(path))
    path.write_bytes(data)
    os.utime(path, (1, 1))
    assert session(str(path)).resource is not first.resource


@pytest.mark.usefixtures("ort")
def test_models_from_buffers_share_nothing(files: ModelFiles) -> None:
    data = Path(files.onnx("add")).read_bytes()
    stages = [backend("ort").build_stage(read_onnx_bytes(data, {}), CPU, StageOptions()) for _ in range(2)]
    assert stages[0]._session.resource is not stages[1]._session.resource  # type: ignore[attr-defined]


@pytest.mark.usefixtures("ort")
def test_the_session_goes_with_its_last_stage(files: ModelFiles) -> None:
    before = len(_shared)
    first = session(files.onnx("two"))
    second = session(files.onnx("two"))
    assert len(_shared) == before + 1
    del first
    assert len(_shared) == before + 1
    del second
    assert len(_shared) == before


@pytest.mark.usefixtures("ort")
def test_loads_of_one_folder_do_not_disturb_each_other(files: ModelFiles) -> None:
    folder = random_onnx(files.folder, "gqa")
    with genai.load(folder, threads=1) as first, genai.load(folder, threads=1) as second:
        alone = first.generate(PROMPT, max_new_tokens=12).token_ids
        mine, other = first.stream(PROMPT, max_new_tokens=12), second.stream([9, *PROMPT], max_new_tokens=12)
        for _ in zip(mine, other, strict=False):
            pass
        other.close()
        assert mine.read().token_ids == alone
        assert second.generate(PROMPT, max_new_tokens=12).token_ids == alone


def tasks() -> set[str]:
    """Threads of this process, those of the engines as well. Some may be about to end."""
    return set(os.listdir("/proc/self/task"))


@pytest.mark.usefixtures("llama")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_generation_gives_its_threads_back(files: ModelFiles) -> None:
    with genai.load(random_gguf(files.folder), threads=2) as model:
        if not _releases:
            pytest.skip("this llama.cpp computes without GNU's OpenMP")
        model.generate(PROMPT, max_new_tokens=2)
        before = tasks()
        stream = model.stream(PROMPT, max_new_tokens=5)
        next(stream)
        assert len(tasks() - before) == 1
        stream.close()
        until(lambda: tasks() <= before)


@pytest.mark.usefixtures("llama")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_threads_that_generate_in_turn_keep_nothing(files: ModelFiles) -> None:
    go_home = threading.Event()
    done = threading.Barrier(5)
    with genai.load(random_gguf(files.folder), threads=2) as model:
        if not _releases:
            pytest.skip("this llama.cpp computes without GNU's OpenMP")

        def work() -> None:
            model.generate(PROMPT, max_new_tokens=2)
            done.wait(100)
            go_home.wait(100)

        before = tasks()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        done.wait(100)
        themselves = {str(thread.native_id) for thread in threads}
        until(lambda: tasks() - before == themselves)
        go_home.set()
        for thread in threads:
            thread.join(100)
