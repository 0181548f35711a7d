"""`winml-lite compile`, and what `winml-lite show` says of graphs, as a user would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.c_libraries import compiled
from fakes.ggml_provider import ggml_library
from models import onnx_models
from models.recipes import SENTENCE, scripted_gguf, scripted_onnx
from winml_lite import describe_onnx

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "from cli.main import main; main(prog_name='winml-lite')"]

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WINML_LITE_HOME": str(folder / "home")}
    command = [*PROGRAM, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `dense.onnx`, and `outside.onnx` with its weights in `weights.bin`."""
    onnx_models.save(onnx_models.dense(), tmp_path / "dense.onnx")
    model, weights = onnx_models.external_weights()
    (tmp_path / "weights.bin").write_bytes(weights)
    onnx_models.save(model, tmp_path / "outside.onnx")
    return tmp_path


def test_compile_says_where_the_result_is(folder: Path) -> None:
    done = run(folder, "compile", "dense.onnx", "out.onnx")
    assert (done.returncode, done.stdout) == (0, "out.onnx\n")
    assert done.stderr.startswith(f"device, out.onnx {(folder / 'out.onnx').stat().st_size:,} bytes, ")


def test_a_file_for_weights_that_is_not_needed_is_told(folder: Path) -> None:
    onnx_models.save(onnx_models.add(), folder / "add.onnx")
    done = run(folder, "compile", "add.onnx", "out.onnx", "--weights", "w.bin")
    assert done.returncode == 0
    assert done.stderr.startswith("--weights w.bin was not needed: ")
    assert not (folder / "w.bin").exists()
    assert "--weights" not in run(folder, "compile", "dense.onnx", "two.onnx", "--weights", "w.bin").stderr


def test_compile_with_all_options(folder: Path) -> None:
    arguments = ("--form", "durable", "--weights", "w.bin", "--dim", "batch=2", "--json")
    done = run(folder, "compile", "dense.onnx", "out.onnx", *arguments)
    record = json.loads(done.stdout)
    assert (record["file"], record["form"], record["format"]) == ("out.onnx", "durable", "onnx")
    assert record["files"] == {"out.onnx": (folder / "out.onnx").stat().st_size, "w.bin": 16384}
    shown = json.loads(run(folder, "show", "out.onnx", "--json").stdout)
    assert shown["inputs"] == [{"name": "x", "type": "FLOAT32", "shape": [2, 64]}]
    assert shown["external_data"] == [{"location": "w.bin", "needed_bytes": 16384, "file_bytes": 16384}]


def test_compile_to_the_ort_format(folder: Path) -> None:
    assert run(folder, "compile", "dense.onnx", "out.ort", "--format", "ort").returncode == 0
    assert describe_onnx(folder / "out.ort").format == "ORT"
    assert sum(describe_onnx(folder / "out.ort").operators.values()) >= 1


def test_compile_keeps_weights_outside_where_they_were(tmp_path: Path) -> None:
    scripted = scripted_onnx(tmp_path / "scripted")
    assert run(tmp_path, "compile", str(scripted), str(scripted / "model2.onnx")).returncode == 0
    inside = describe_onnx(scripted / "model.onnx").external_data == ()
    assert (scripted / "model2.onnx.data").exists() is not inside


def test_a_compiled_decoder_says_the_same(tmp_path: Path) -> None:
    scripted = scripted_onnx(tmp_path / "scripted")
    config = (scripted / "genai_config.json").read_text(encoding="utf-8")
    assert run(tmp_path, "compile", str(scripted), str(scripted / "fast.onnx")).returncode == 0
    (scripted / "genai_config.json").write_text(config.replace("model.onnx", "fast.onnx"), encoding="utf-8")
    done = run(tmp_path, "generate", "-q", "-m", str(scripted), "What is the capital of France?")
    assert done.stdout == SENTENCE + "\n", done.stderr


def test_of_several_graphs_the_configured_one_is_compiled(tmp_path: Path) -> None:
    scripted = scripted_onnx(tmp_path / "scripted")
    onnx_models.save(onnx_models.add(), scripted / "another.onnx")
    done = run(tmp_path, "compile", str(scripted), str(scripted / "fast.onnx"), "--json")
    assert json.loads(done.stdout)["source"] == str(scripted / "model.onnx")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("dense.onnx", "dense.onnx"), 2, "belongs to the source model"),
        (("dense.onnx", "out.ort"), 2, "the extension of the format onnx is .onnx; --format ort writes .ort"),
        (("dense.onnx", "out.onnx", "--format", "ort"), 2, "the extension of the format ort is .ort"),
        (("dense.onnx", "out.ort", "--format", "ort", "--weights", "w"), 2, "an .ort file holds all weights"),
        (("dense.onnx", "out.ort", "--format", "ort", "--provider", "x"), 2, "an .ort file is made for the CPU"),
        (("dense.onnx", "out.onnx", "--provider-option", "a=1"), 2, "go with --provider"),
        (("dense.onnx", "out.onnx", "--provider", "Absent"), 3, "execution provider 'Absent'"),
        (("dense.onnx", "out.onnx", "--dim", "batch"), 2, "give NAME=VALUE"),
        (("dense.onnx", "out.onnx", "--dim", "batch=0"), 2, "give NAME=VALUE"),
        (("dense.onnx", "out.onnx", "--dim", "batch=" + "9" * 5000), 2, "give NAME=VALUE"),
        (("dense.onnx", "out.onnx", "--provider", ""), 2, "--provider takes the name of an execution provider"),
        (
            ("dense.onnx", "out.onnx", "--provider", "CPUExecutionProvider", "--provider-option", "\udcff=1"),
            2,
            r"takes text, not '\udcff=1'",
        ),
        (("dense.onnx", "out.onnx", "--dim", "Batch=2"), 2, "no input of dense.onnx has a free dimension of that name"),
        (("dense.onnx", "out.onnx", "--weights", "../w.bin"), 2, "must lie in the folder of the artifact"),
        (("dense.onnx", "missing/out.onnx"), 2, "there is no such folder"),
        (("missing.onnx", "out.onnx"), 3, "missing.onnx"),
        (("weights.bin", "out.onnx"), 3, "only .onnx models are compiled"),
        ((".", "out.onnx"), 3, "holds 2 .onnx files"),
    ],
)
def test_what_compile_refuses(folder: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    before = sorted(os.listdir(folder))
    done = run(folder, "compile", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split()), done.stderr
    assert sorted(os.listdir(folder)) == before


def test_compile_for_a_provider(folder: Path) -> None:
    (folder / "outer.txt").write_text("of another time")
    done = run(folder, "compile", "dense.onnx", "out.onnx", "--provider", "cpuexecutionprovider", "--json")
    assert list(json.loads(done.stdout)["files"]) == ["out.onnx"]
    library = ("--provider", "ggml", "--provider-library", str(ggml_library()), "--provider-option", "threads=1")
    done = run(folder, "compile", "dense.onnx", "ggml.onnx", *library)
    assert done.returncode == 2
    assert "--dim 'batch=N' at the terminal" in done.stderr
    done = run(folder, "compile", "dense.onnx", "ggml.onnx", "--dim", "batch=1", *library)
    assert done.returncode == 4
    assert "ggml compiles nothing ahead of time" in done.stderr
    assert not (folder / "ggml.onnx").exists()


def test_show_describes_a_graph(folder: Path) -> None:
    lines = run(folder, "show", "outside.onnx").stdout.splitlines()
    assert "input          X FLOAT32 [2]" in lines
    assert "opsets         ai.onnx 21" in lines
    assert "operators      1 Add" in lines
    assert "external data  weights.bin, 8 bytes" in lines
    assert not any(line.startswith("provider") for line in lines)


def test_show_names_free_dimensions(folder: Path) -> None:
    assert "input          x FLOAT32 [batch, 64]" in run(folder, "show", "dense.onnx").stdout.splitlines()
    (port,) = json.loads(run(folder, "show", "dense.onnx", "--json").stdout)["inputs"]
    assert port == {"name": "x", "type": "FLOAT32", "shape": ["batch", 64]}


def test_show_tells_what_is_no_tensor(folder: Path) -> None:
    onnx_models.save(onnx_models.text_input(), folder / "text.onnx")
    done = run(folder, "show", "text.onnx")
    assert "a tensor of STRING" in done.stdout


def test_show_keeps_a_name_in_its_line(folder: Path) -> None:
    model = onnx_models.add()
    model.graph.input[0].name = model.graph.node[0].input[0] = "two\nlines"
    onnx_models.save(model, folder / "odd.onnx")
    assert "input          two\\nlines FLOAT32 [2]" in run(folder, "show", "odd.onnx").stdout.splitlines()


def test_show_tells_weights_that_are_missing_or_cut_off(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"1234")
    assert "external data  weights.bin, 4 bytes, 8 needed" in run(folder, "show", "outside.onnx").stdout.splitlines()
    (folder / "weights.bin").unlink()
    wanted = "external data  weights.bin, 8 bytes needed, the file is missing"
    assert wanted in run(folder, "show", "outside.onnx").stdout.splitlines()


def test_show_of_a_folder_tells_a_bad_file_beside_good_ones(folder: Path) -> None:
    (folder / "bad.onnx").write_bytes(b"")
    done = run(folder, "show", ".")
    assert (done.returncode, done.stderr) == (3, "Error: 1 of 3 files could not be read\n")
    lines = done.stdout.splitlines()
    assert "file           bad.onnx, error: the file is empty (0x80070570)" in lines
    assert {"file           dense.onnx, ONNX", "file           outside.onnx, ONNX"} < set(lines)
    records = json.loads(run(folder, "show", ".", "--json").stdout)["files"]
    assert [record.get("error") for record in records] == ["the file is empty (0x80070570)", None, None]


def test_show_of_a_folder_with_a_bad_gguf_file_alone(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"")
    done = run(tmp_path, "show", ".")
    assert (done.returncode, done.stdout) == (3, "")
    assert "bad.gguf: the file is empty" in done.stderr


def test_show_of_a_folder_with_a_bad_gguf_file(folder: Path) -> None:
    (folder / "bad.gguf").write_bytes(b"")
    done = run(folder, "show", ".")
    assert done.returncode == 3
    assert "file           bad.gguf, error: the file is empty (0x80070570)" in done.stdout.splitlines()


def test_show_tries_the_providers(folder: Path) -> None:
    onnx_models.save(onnx_models.badop(), folder / "bad.onnx")
    lines = run(folder, "show", "dense.onnx", "--providers").stdout.splitlines()
    assert "provider       CPUExecutionProvider (CPU): takes it" in lines
    (entry, *_) = json.loads(run(folder, "show", "bad.onnx", "--providers", "--json").stdout)["providers"]
    assert (entry["provider"], entry["target"], entry["takes_it"]) == ("CPUExecutionProvider", "CPU", False)
    assert entry["problem"].startswith("Load model from "), "the only model is named once"
    assert "NoSuchOperator" in entry["problem"]


def test_a_provider_library_without_providers(folder: Path) -> None:
    done = run(folder, "show", "dense.onnx", "--provider-library", "dense.onnx")
    assert done.returncode == 2
    assert "--provider-library goes with --providers" in done.stderr


def test_providers_of_a_library(folder: Path) -> None:
    arguments = ("show", "dense.onnx", "--providers", "--provider-library", str(ggml_library()), "--json")
    entries = json.loads(run(folder, *arguments).stdout)["providers"]
    assert [entry["provider"] for entry in entries] == ["CPUExecutionProvider", "onnxruntime_ggml"]
    assert entries[1]["takes_it"]


def test_providers_without_hardware(folder: Path) -> None:
    library = compiled("idle_provider", folder)
    arguments = ("show", "dense.onnx", "--providers", "--provider-library", str(library))
    said = f"{library.name.partition('.')[0].removeprefix('lib')} ({library}) is registered, but finds no hardware"
    assert f"no provider    {said} here that it can use" in run(folder, *arguments).stdout.splitlines()
    assert json.loads(run(folder, *arguments, "--json").stdout)["provider_problems"][0].startswith(said)


def test_providers_of_a_gguf_model(folder: Path) -> None:
    done = run(folder, "show", str(scripted_gguf(folder)), "--providers")
    assert done.returncode == 2
    assert "execution providers are ONNX Runtime's" in done.stderr


def test_providers_of_no_model(folder: Path) -> None:
    done = run(folder, "show", "--providers")
    assert done.returncode == 2
    assert "--providers needs a MODEL" in done.stderr
