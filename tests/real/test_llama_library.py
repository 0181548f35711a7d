"""llama.cpp as a library: what is found, its log, the package beside it, and builds that fail (runtime 16.2, 18)."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.llama_stages import PROMPT, build, feed
from fakes.model_files import ModelFiles
from models.gguf_models import random_model
from models.gguf_writer import write_gguf
from winml_lite import Vocabulary, WinMLError
from winml_lite.errors import E_FAIL, FILE_CORRUPT, FILE_NOT_FOUND, NOT_ENOUGH_MEMORY, NOT_SUPPORTED
from winml_lite.files.gguf import read_gguf
from winml_lite.native.backend import Placement, StageOptions
from winml_lite.native.llama.api import installed_version
from winml_lite.native.llama.backend import create_backend
from winml_lite.native.llama.devices import DeviceProperties, load_ggml
from winml_lite.native.llama.library import library
from winml_lite.native.llama.memory import bytes_per_position, host_memory
from winml_lite.values import ExecutionTargetKind

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

ROOT = Path(__file__).parents[2]


def run(code: str, *arguments: str, silent: bool = True) -> str:
    """Run a program in a new interpreter and return what it printed; `silent`: nothing on standard error."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr if silent else "") == (0, "")
    return done.stdout


def test_what_was_found() -> None:
    info = create_backend().describe()
    assert (info.name, info.extensions, info.problem) == ("llama.cpp", (".gguf",), None)
    assert info.version == installed_version()
    assert info.path is not None
    assert os.path.exists(info.path)


def test_devices_begin_with_what_ggml_has() -> None:
    devices = library().devices()
    cpu = [device for device in devices if device.kind is ExecutionTargetKind.CPU]
    assert len(cpu) == 1
    assert cpu[0].memory_size > 0
    assert library().has_gpu == any(device.kind is ExecutionTargetKind.GPU for device in devices)


def test_the_layout_of_device_properties() -> None:
    ggml = load_ggml(os.path.dirname(library().path))
    for index in range(ggml.count()):
        device, found = ggml.get(index), DeviceProperties()
        ggml.get_props(device, ctypes.byref(found))
        total = ctypes.c_size_t()
        ggml.memory(device, ctypes.byref(ctypes.c_size_t()), ctypes.byref(total))
        assert ctypes.string_at(found.name) == ggml.name(device)
        assert ctypes.string_at(found.description) == ggml.description(device)
        assert (found.type, found.memory_total) == (ggml.type(device), total.value)
        assert found.device_id is None or b":" in found.device_id


def test_s_plc_03_gpu_without_a_gpu_module(files: ModelFiles) -> None:
    if library().has_gpu:
        pytest.skip("this llama.cpp has a GPU module")
    with pytest.raises(WinMLError, match="no GPU module") as caught:
        create_backend().build_stage(read_gguf(files.gguf), Placement(ExecutionTargetKind.GPU), StageOptions())
    assert caught.value.hresult == NOT_SUPPORTED


# Log


def test_native_lines_arrive_in_logging(files: ModelFiles, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "winml_lite.native")
    build(files.gguf)
    lines = [record.getMessage() for record in caplog.records]
    assert any("llama_context" in line for line in lines)
    assert all("\n" not in line for line in lines)


def test_nothing_is_printed(files: ModelFiles) -> None:
    code = "import sys; from fakes.llama_stages import *; feed(build(sys.argv[1]), PROMPT)"
    assert run(code, files.gguf) == ""


# The package beside us


def test_only_the_low_level_module_is_imported(files: ModelFiles) -> None:
    code = (
        "import sys; from fakes.llama_stages import *; build(sys.argv[1])\n"
        "print(sorted(name for name in sys.modules if name.startswith('llama_cpp')))"
    )
    assert run(code, files.gguf) == "['llama_cpp', 'llama_cpp._ctypes_extensions', 'llama_cpp.llama_cpp']\n"


LATER = """
import sys, threading
from fakes.llama_stages import *
stage = build(sys.argv[1])
import llama_cpp
names = []
threads = [threading.Thread(target=lambda: names.append(llama_cpp.Llama.__name__)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(names, llama_cpp.llama_cpp is sys.modules['llama_cpp.llama_cpp'], hasattr(llama_cpp, 'no_such_name'))
print(llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False).tokenize(b'a b', add_bos=False))
feed(stage, [1, 2, 3])
"""


def test_the_whole_package_can_be_used_afterwards(files: ModelFiles) -> None:
    ids = Vocabulary.from_file(files.gguf).encode(b"a b", False)
    assert run(LATER, files.gguf, silent=False) == f"['Llama', 'Llama', 'Llama', 'Llama'] True False\n{ids}\n"


def test_star_import_afterwards(files: ModelFiles) -> None:
    code = (
        "import sys; from fakes.llama_stages import *; build(sys.argv[1])\n"
        "from llama_cpp import *\nprint(Llama.__name__, llama_decode.__name__)"
    )
    assert run(code, files.gguf) == "Llama llama_decode\n"


def test_an_earlier_import_is_used(files: ModelFiles) -> None:
    code = (
        "import sys, llama_cpp; from fakes.llama_stages import *; feed(build(sys.argv[1]), [1, 2, 3])\n"
        "print(llama_cpp.__class__.__name__, llama_cpp.Llama.__name__)"
    )
    assert run(code, files.gguf) == "module Llama\n"


# Builds that fail


def changed(folder: Path, **values: Any) -> Path:
    metadata, tensors = random_model()
    metadata.update({name.replace("__", "."): value for name, value in values.items()})
    return write_gguf(folder / "changed.gguf", metadata, tensors)


def test_s_lod_04_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = changed(tmp_path, general__architecture="zzz")
    with pytest.raises(WinMLError, match="'zzz'") as caught:
        build(path)
    assert caught.value.hresult == E_FAIL
    assert str(path) in str(caught.value)
    assert f"llama-cpp-python {installed_version()}" in str(caught.value)


def test_a_log_that_another_user_of_the_library_took_comes_back(tmp_path: Path) -> None:
    api = library().api
    other = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(other, None)
    with pytest.raises(WinMLError, match="'zzz'"):
        build(changed(tmp_path, general__architecture="zzz"))


def test_a_shape_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    path = changed(tmp_path, llama__feed_forward_length=np.uint32(127))
    with pytest.raises(WinMLError, match="ffn_") as caught:
        build(path)
    assert str(path) in str(caught.value)


def test_what_would_end_the_process_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, llama__block_count=np.uint32(0))
    with pytest.raises(WinMLError, match="block_count is 0") as caught:
        build(path)
    assert caught.value.hresult == FILE_CORRUPT
    assert str(path) in str(caught.value)


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    metadata, _ = random_model()
    path = write_gguf(tmp_path / "vocabulary.gguf", metadata, {})
    with pytest.raises(WinMLError) as caught:
        build(path)
    assert str(path) in str(caught.value)


def test_a_cache_type_that_does_not_fit_the_heads(files: ModelFiles) -> None:
    with pytest.raises(WinMLError, match="q8_0") as caught:
        build(files.gguf, key_type="q8_0")  # heads of 16, blocks of 32
    assert caught.value.hresult == NOT_ENOUGH_MEMORY


# Memory


def test_bytes_per_position(files: ModelFiles) -> None:
    file = read_gguf(files.gguf).file
    assert bytes_per_position(file, 16, 16) == 2 * 2 * (16 + 16) * 2  # layers, heads, sizes, bytes
    assert bytes_per_position(file, 32, 8.5) == 2 * 2 * (16 * 4 + 17)


@pytest.mark.skipif(sys.platform == "win32", reason="the system itself refuses there")
def test_host_memory_is_plausible() -> None:
    assert 1 << 28 < host_memory() < 1 << 50


# Adapters

RANK, ALPHA = 4, 8.0


def adapter_tensors() -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    random = np.random.default_rng(1)
    return {
        "blk.0.attn_q.weight.lora_a": random.standard_normal((RANK, 64)).astype(np.float32),
        "blk.0.attn_q.weight.lora_b": random.standard_normal((64, RANK)).astype(np.float32),
    }


def write_adapter(folder: Path, **values: Any) -> str:
    metadata = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": ALPHA,
        **values,
    }
    return str(write_gguf(folder / "adapter.gguf", metadata, adapter_tensors()))


def test_an_adapter_changes_the_weights(files: ModelFiles, tmp_path: Path) -> None:
    metadata, tensors = random_model()
    a, b = adapter_tensors().values()
    change = 0.5 * ALPHA / RANK * (b @ a)
    weight = (np.asarray(tensors["blk.0.attn_q.weight"]) + change).astype(np.float32)
    merged = {**tensors, "blk.0.attn_q.weight": weight}
    expected = feed(build(write_gguf(tmp_path / "merged.gguf", metadata, merged)), PROMPT[:20])
    plain = feed(build(files.gguf), PROMPT[:20])
    adapted = feed(build(files.gguf, adapters=((write_adapter(tmp_path), 0.5),)), PROMPT[:20])
    assert adapted == pytest.approx(expected, abs=1e-3)
    assert adapted != pytest.approx(plain, abs=1e-1)
    assert feed(build(files.gguf), PROMPT[:20]) == pytest.approx(plain, abs=1e-6)


def test_a_missing_adapter(files: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"absent\.gguf") as caught:
        build(files.gguf, adapters=((str(tmp_path / "absent.gguf"), 1.0),))
    assert caught.value.hresult == FILE_NOT_FOUND


def test_an_adapter_for_another_architecture(files: ModelFiles, tmp_path: Path) -> None:
    path = write_adapter(tmp_path, **{"general.architecture": "gemma3"})
    with pytest.raises(WinMLError, match="does not fit") as caught:
        build(files.gguf, adapters=((path, 1.0),))
    assert caught.value.hresult == E_FAIL
    assert path in str(caught.value)
