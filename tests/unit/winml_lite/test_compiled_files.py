"""Compiled models as files: layouts, the name of weights, what a failure leaves. The engine is a function here."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from fakes.rig import failing
from winml_lite import compiled_files
from winml_lite.compiled_files import Destination, compile_into, destination
from winml_lite.errors import ARITHMETIC_OVERFLOW, WinMLError
from winml_lite.files.artifact import OnnxArtifact
from winml_lite.native.backend import CompileOutput

SOURCE = OnnxArtifact((), (), "onnx", data=b"x" * 10)
CONTEXT = "Compile"
LARGE, SMALL = b"w" * 1024, b"s" * 1023


def compiling(*initializers: bytes) -> Callable[[CompileOutput], None]:
    """An engine that asks where the initializers go, and writes an artifact that tells it."""

    def compile_model(output: CompileOutput) -> None:
        told = [output.place(memoryview(data)) for data in initializers] if output.weights is not None else "inside"
        output.write(memoryview(repr(told).encode()))
        output.write(memoryview(b"!"))

    return compile_model


def made(folder: Path, weights: str | None = None, source: OnnxArtifact = SOURCE, *initializers: bytes) -> str:
    """Compile `initializers`, and return the artifact."""
    place = Destination(str(folder), "out.onnx", weights)
    compile_into(place, source, compiling(*(initializers or (LARGE, SMALL, LARGE))), CONTEXT)
    return (folder / "out.onnx").read_text()


def test_everything_lies_inside_by_default(tmp_path: Path) -> None:
    assert made(tmp_path) == "'inside'!"
    assert os.listdir(tmp_path) == ["out.onnx"]


def test_a_file_for_weights_takes_those_of_1024_bytes_and_more(tmp_path: Path) -> None:
    assert made(tmp_path, "w.bin", SOURCE, b"a" * 1030, SMALL, LARGE) == "[('w.bin', 0), None, ('w.bin', 1088)]!"
    assert (tmp_path / "w.bin").read_bytes() == b"a" * 1030 + bytes(58) + LARGE


def test_a_large_model_gets_weights_named_after_their_content(tmp_path: Path) -> None:
    size = compiled_files.MOST_INSIDE
    source = OnnxArtifact((), (), "onnx", data=b"x" * 10, external_sizes={"a": size - 10, "b": 1})
    name = f"out.{sha256(LARGE).hexdigest()[:16]}.bin"
    assert made(tmp_path, None, source) == f"[('{name}', 0), None, ('{name}', 0)]!"
    assert (tmp_path / name).read_bytes() == LARGE


def test_equal_initializers_lie_in_the_file_once(tmp_path: Path) -> None:
    assert (
        made(tmp_path, "w.bin", SOURCE, LARGE, b"a" * 1024, LARGE) == "[('w.bin', 0), ('w.bin', 1024), ('w.bin', 0)]!"
    )
    assert (tmp_path / "w.bin").read_bytes() == LARGE + b"a" * 1024


def test_a_large_model_without_large_weights_has_no_file_for_them(tmp_path: Path) -> None:
    source = OnnxArtifact((), (), "onnx", external_sizes={"a": compiled_files.MOST_INSIDE + 1})
    assert made(tmp_path, None, source, SMALL) == "[None]!"
    assert os.listdir(tmp_path) == ["out.onnx"]


def test_a_model_that_grows_too_large_gets_a_file_for_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_files, "MOST_INSIDE", 10)
    source = OnnxArtifact((), (), "onnx", data=b"x" * 10)
    calls: list[str | None] = []

    def compile_model(output: CompileOutput) -> None:
        calls.append(output.weights)
        compiling(LARGE)(output)
        output.write(memoryview(b"?" if output.weights is not None else b"too large"))

    compile_into(Destination(str(tmp_path), "out.onnx", None), source, compile_model, CONTEXT)
    assert calls[0] is None and calls[1] is not None
    assert len(os.listdir(tmp_path)) == 2


def test_an_engine_that_finds_it_too_large_is_asked_again(tmp_path: Path) -> None:
    def compile_model(output: CompileOutput) -> None:
        if output.weights is None:
            raise WinMLError(ARITHMETIC_OVERFLOW, "", "larger than 2GB")
        compiling(LARGE)(output)

    compile_into(Destination(str(tmp_path), "out.onnx", None), SOURCE, compile_model, CONTEXT)
    assert len(os.listdir(tmp_path)) == 2


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    source = OnnxArtifact((), (), "onnx", external_sizes={"a": compiled_files.MOST_INSIDE + 1})
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        made(tmp_path / name, None, source)
    one, other = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize(("artifact", "stem"), [("a\udcffé.onnx", "aé"), ("a*b:c\\d.onnx", "abcd"), ("?.onnx", "")])
def test_a_name_for_weights_is_one_that_the_artifact_can_hold(artifact: str, stem: str) -> None:
    assert Destination("/", artifact, None).stem == stem


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_text("old")

    def compile_model(output: CompileOutput) -> None:
        compiling(LARGE)(output)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with failing(0x80070070) as caught:
        compile_into(Destination(str(tmp_path), "out.onnx", "w.bin"), SOURCE, compile_model, CONTEXT)
    assert str(tmp_path / "out.onnx") in str(caught.value)
    assert os.listdir(tmp_path) == ["out.onnx"]
    assert (tmp_path / "out.onnx").read_text() == "old"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken"), WinMLError(0x80004005)])
def test_any_failure_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def compile_model(output: CompileOutput) -> None:
        compiling(LARGE)(output)
        raise error

    with pytest.raises(type(error)):
        compile_into(Destination(str(tmp_path), "out.onnx", "w.bin"), SOURCE, compile_model, CONTEXT)
    assert os.listdir(tmp_path) == []


def test_an_engine_that_starts_again(tmp_path: Path) -> None:
    """As it does when it must write the files itself."""

    def compile_model(output: CompileOutput) -> None:
        compiling(LARGE, LARGE)(output)
        output.restart()
        assert output.path is not None and output.weights is not None
        Path(output.path).write_text("artifact")
        Path(output.path).with_name(output.weights).write_text("weights")

    compile_into(Destination(str(tmp_path), "out.onnx", "w.bin"), SOURCE, compile_model, CONTEXT)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"out.onnx": "artifact", "w.bin": "weights"}


def test_files_that_the_engine_writes_beside_the_artifact_come_along(tmp_path: Path) -> None:
    def compile_model(output: CompileOutput) -> None:
        assert output.path is not None
        Path(output.path).write_text("artifact")
        Path(output.path).with_name("out_context.bin").write_text("context")

    compile_into(Destination(str(tmp_path), "out.onnx", None), SOURCE, compile_model, CONTEXT)
    assert sorted(os.listdir(tmp_path)) == ["out.onnx", "out_context.bin"]


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("comes_first", [True, False])
def test_a_file_of_the_engine_with_the_name_of_the_weights(tmp_path: Path, comes_first: bool) -> None:
    def compile_model(output: CompileOutput) -> None:
        assert output.path is not None
        if not comes_first:
            output.place(memoryview(LARGE))
        Path(output.path).with_name("w.bin").write_bytes(b"of the engine")
        if comes_first:
            output.place(memoryview(LARGE))
        output.write(memoryview(b"!"))

    with failing(0x80070057) as caught:
        compile_into(Destination(str(tmp_path), "out.onnx", "w.bin"), SOURCE, compile_model, CONTEXT)
    assert "give the weights another name" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_file_of_the_engine_in_place_of_the_weights_of_the_source(tmp_path: Path) -> None:
    def compile_model(output: CompileOutput) -> None:
        assert output.path is not None
        Path(output.path).with_name("w.bin").write_bytes(b"of the engine")
        output.write(memoryview(b"!"))

    (tmp_path / "w.bin").write_bytes(LARGE)
    source = OnnxArtifact((), (), "onnx", path=str(tmp_path / "in.onnx"), external_locations=("w.bin",))
    with failing(0x80070057) as caught:
        compile_into(Destination(str(tmp_path), "out.onnx", None), source, compile_model, CONTEXT)
    assert "w.bin belongs to the source model" in str(caught.value)
    assert os.listdir(tmp_path) == ["w.bin"]
    assert (tmp_path / "w.bin").read_bytes() == LARGE


def test_paths_are_relative_to_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path)
    wanted = Destination(str(tmp_path / "made"), "out.onnx", "w.bin")
    assert destination("made/out.onnx", "w.bin", SOURCE, CONTEXT) == wanted
    assert destination("made/out.onnx", "./w.bin", SOURCE, CONTEXT) == wanted
    assert destination("made/out.onnx", str(tmp_path / "made" / "w.bin"), SOURCE, CONTEXT) == wanted


@pytest.mark.parametrize(
    "weights", ["made/w.bin", "../w.bin", "", "out.onnx", "Out.ONNX", "a:b", "a*b", "a\\b", "a\0b", "a\udcff"]
)
def test_weights_that_are_refused(tmp_path: Path, weights: str) -> None:
    with failing(0x80070057):
        destination(str(tmp_path / "out.onnx"), weights, SOURCE, CONTEXT)


def test_a_link_to_the_source_is_the_source(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_text("model")
    (tmp_path / "weights.data").write_text("weights")
    os.link(source, tmp_path / "hard.onnx")
    (tmp_path / "soft.onnx").symlink_to(source)
    artifact = OnnxArtifact((), (), "onnx", path=str(source), external_locations=("weights.data",))
    for name in ("model.onnx", "hard.onnx", "soft.onnx", "weights.data"):
        with failing(0x80070057):
            destination(str(tmp_path / name), None, artifact, CONTEXT)
    assert destination(str(tmp_path / "other.onnx"), None, artifact, CONTEXT).name == "other.onnx"


def test_a_folder_is_no_place(tmp_path: Path) -> None:
    with failing(0x80070057):
        destination(str(tmp_path), None, SOURCE, CONTEXT)


def test_a_missing_folder(tmp_path: Path) -> None:
    place = destination(str(tmp_path / "missing" / "out.onnx"), None, SOURCE, CONTEXT)
    with failing(0x80070003):
        compile_into(place, SOURCE, compiling(SMALL), CONTEXT)
