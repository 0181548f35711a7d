"""From a path or a name to a model: what is chosen, what is set, and what the refusals say. No engine runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import genai
from fakes.backend import FakeBackend
from fakes.rig import failing
from fakes.scripted import VOCABULARY_SIZE, successor, write_tokenizer
from genai import catalog, download, model_source, named_models
from models.onnx_models import add, save
from winml_lite import ExecutionTargetKind, Runtime
from winml_lite.devices import replaced_enumerators
from winml_lite.native.backend import replaced_backend
from winml_lite.native.hardware import Device

FILE_NOT_FOUND = 0x80070002
NOT_SUPPORTED = 0x80070032
E_INVALIDARG = 0x80070057
FILE_CORRUPT = 0x80070570


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    """ONNX stages are token models that say a, b, c, d."""
    backend = FakeBackend(logits=successor, vocabulary_size=VOCABULARY_SIZE)
    with replaced_backend("ort", backend):
        yield backend


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a tokenizer and the ports of a decoder."""
    folder = write_tokenizer(tmp_path / "tiny")
    ports = [("input_ids", TensorProto.INT64, ["b", "n"]), ("past_0", TensorProto.FLOAT, ["b", 1, "p", "kv_cache_dim"])]
    outputs = [
        ("logits", TensorProto.FLOAT, ["b", "n", 16]),
        ("present_0", TensorProto.FLOAT, ["b", 1, "t", "kv_cache_dim"]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["past_0"], [name]) for name, _, _ in outputs],
        "decoder",
        [helper.make_tensor_value_info(*port) for port in ports],
        [helper.make_tensor_value_info(*port) for port in outputs],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    return folder


def configure(folder: Path, **model: Any) -> None:
    content = {"model": {"decoder": {"filename": "model.onnx", "head_size": 16}, **model}}
    (folder / "genai_config.json").write_text(json.dumps(content), encoding="utf-8")


# --- folders and files ------------------------------------------------------------------------------------------------


def test_a_plain_folder_is_loaded(folder: Path, fake: FakeBackend) -> None:
    with genai.load(folder) as model:
        assert (model.name, model.engine) == ("tiny", "ONNX Runtime")
        assert model.file == str(folder / "model.onnx")
        assert model.generate("a", max_new_tokens=3).text == "bcd"
    assert fake.script.options[0].state_pairs == ((1, 1),)
    assert fake.script.options[0].debug_name == "decoder"


def test_the_file_of_a_folder_is_loaded_with_what_lies_beside_it(folder: Path, fake: FakeBackend) -> None:
    with genai.load(str(folder / "model.onnx")) as model:
        assert model.name == "model"
        assert model.generate("a", max_new_tokens=3).text == "bcd"


@pytest.mark.parametrize(
    ("declared", "asked", "hint"), [(None, None, 4096), (512, None, 512), (131072, None, 4096), (512, 256, 256)]
)
def test_the_context_is_what_the_model_declares_but_at_most_4096_unless_asked(
    folder: Path, fake: FakeBackend, declared: int | None, asked: int | None, hint: int
) -> None:
    configure(folder, context_length=declared)
    with genai.load(folder, context_length=asked) as model:
        assert model.context_length == hint
    assert fake.script.options[0].capacity_hint == hint


def test_a_context_beyond_the_declared_one_is_refused(folder: Path, fake: FakeBackend) -> None:
    configure(folder, context_length=512)
    with failing(E_INVALIDARG) as caught:
        genai.load(folder, context_length=513)
    assert "made for 512 tokens, not for 513" in str(caught.value)


def test_the_size_of_a_head_fixes_the_cache_symbol(folder: Path, fake: FakeBackend) -> None:
    configure(folder)
    genai.load(folder).close()
    assert ("kv_cache_dim", 16) in fake.script.options[0].dimension_overrides


def test_threads_and_target_reach_the_engine(folder: Path, fake: FakeBackend) -> None:
    genai.load(folder, threads=3, target=ExecutionTargetKind.CPU).close()
    assert fake.script.options[0].ort is not None
    assert fake.script.options[0].ort.thread_count == 3
    assert fake.script.placements[0].kind is ExecutionTargetKind.CPU


def test_a_device_reaches_the_engine(folder: Path, fake: FakeBackend) -> None:
    card = Device(ExecutionTargetKind.GPU, "A card", pci_address="0000:03:00.0")
    fake.gpu = True
    with replaced_enumerators(lambda: [card]), Runtime() as runtime:
        genai.load(folder, target=runtime.enumerate_devices()[1]).close()
    assert fake.script.placements[0].devices == (card,)
    assert fake.script.placements[0].is_exact


def test_without_threads_and_target_the_engine_decides(folder: Path, fake: FakeBackend) -> None:
    genai.load(folder).close()
    assert fake.script.options[0].ort is None
    assert fake.script.placements[0].kind is None


def test_a_folder_without_tokenizer_is_refused_before_anything_is_built(folder: Path, fake: FakeBackend) -> None:
    (folder / "tokenizer.json").unlink()
    with failing(FILE_NOT_FOUND) as caught:
        genai.load(folder)
    assert "tokenizer.json" in str(caught.value)
    assert fake.script.builds == 0


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("script.py", NOT_SUPPORTED, "'.py' is none of .onnx, .ort and .gguf"),
        ("text.onnx", FILE_CORRUPT, "text.onnx"),
        ("text.ort", FILE_CORRUPT, "text.ort"),
    ],
)
def test_a_file_that_is_no_model_is_refused_as_such(tmp_path: Path, name: str, code: int, message: str) -> None:
    (tmp_path / name).write_text("print('hello')\n" * 9, encoding="utf-8")
    with failing(code) as caught:
        genai.load(tmp_path / name)
    assert message in str(caught.value)
    assert "tokenizer" not in str(caught.value)


def test_a_graph_that_is_no_decoder_is_refused_as_such(tmp_path: Path) -> None:
    path = save(add(), tmp_path / "add.onnx")
    with failing(NOT_SUPPORTED) as caught:
        genai.load(path)
    assert f"{path}: the graph is no decoder with a cache: its inputs are ['A', 'B']" in str(caught.value)


def test_a_folder_without_model_is_refused(tmp_path: Path) -> None:
    with failing(FILE_NOT_FOUND) as caught:
        genai.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_with_several_gguf_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").touch()
    (tmp_path / "two.gguf").touch()
    with failing(NOT_SUPPORTED) as caught:
        genai.load(tmp_path)
    assert "name one of them" in str(caught.value)


def test_a_folder_without_gguf_does_not_run_on_llama(folder: Path) -> None:
    with failing(E_INVALIDARG) as caught:
        genai.load(folder, engine="llama")
    assert "no .gguf file" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "engine", "mend"),
    [
        ("m.gguf", "ort", "winml-lite convert"),
        ("m.onnx", "llama", "reads .gguf files only"),
        ("m.ORT", "llama", ".gguf"),
    ],
)
def test_a_file_never_changes_its_engine(tmp_path: Path, name: str, engine: Any, mend: str) -> None:
    path = tmp_path / name
    path.touch()
    with failing(E_INVALIDARG) as caught:
        genai.load(path, engine=engine)
    assert str(path) in str(caught.value)
    assert mend in str(caught.value)


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_unknown_name_suggests_a_near_one() -> None:
    with failing(FILE_NOT_FOUND) as caught:
        genai.load("smolm2")
    assert "did you mean 'smollm2'" in str(caught.value)


def test_an_unknown_name_far_from_all_lists_the_catalog() -> None:
    with failing(FILE_NOT_FOUND) as caught:
        genai.load("zzz")
    assert "known names: smollm2" in str(caught.value)


@pytest.mark.parametrize("text", ["./missing", "missing.gguf", "some/where.onnx"])
def test_a_path_that_is_not_there_is_called_a_path(text: str) -> None:
    with failing(FILE_NOT_FOUND) as caught:
        genai.load(text)
    assert f"no file or folder {text!r}" in str(caught.value)


def test_a_folder_of_the_same_spelling_wins_over_a_name(
    folder: Path, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.rename(folder.with_name("smollm2"))
    monkeypatch.chdir(folder.parent)
    with genai.load("smollm2") as model:
        assert model.generate("a", max_new_tokens=1).text == "b"


def pulled(monkeypatch: pytest.MonkeyPatch, gguf: Path, has_llama: bool) -> list[bool]:
    """Have downloads give `gguf`; return the list of their `offline` arguments."""
    offline_calls: list[bool] = []

    def pull(entry: catalog.CatalogEntry, *, offline: bool, progress: Any) -> Path:
        offline_calls.append(offline)
        if progress is not None:
            progress(1, 2)
        return gguf

    monkeypatch.setattr(download, "pull", pull)
    monkeypatch.setattr(named_models, "_has_llama", lambda: has_llama)
    return offline_calls


def test_a_name_runs_on_llama_where_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pulled(monkeypatch, tmp_path / "m.gguf", has_llama=True)
    assert model_source.resolve("SmolLM2", None, True, None) == ("smollm2", tmp_path / "m.gguf")
    assert calls == [True]


@pytest.mark.parametrize(("engine", "has_llama"), [(None, False), ("ort", True)])
def test_a_name_is_converted_once_for_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, has_llama: bool
) -> None:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "home"))
    pulled(monkeypatch, tmp_path / "m.gguf", has_llama)
    conversions: list[tuple[Any, ...]] = []

    def convert(source: Path, target: Path, **options: Any) -> None:
        conversions.append((source, options["operators"], options["weights"]))
        options["progress"](5, 10)
        target.mkdir(parents=True)
        (target / "genai_config.json").touch()

    monkeypatch.setattr("genai.convert.convert_gguf", convert)
    told: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int) -> None:
        told.append((stage, done, total))

    first = model_source.resolve("smollm2", engine, False, progress)
    second = model_source.resolve("smollm2", engine, False, progress)
    assert first == second
    assert first[0] == "smollm2"
    assert first[1].name.startswith("smollm2-b179c952-")
    assert conversions == [(tmp_path / "m.gguf", "gqa", "q8")]
    assert told == [("download", 1, 2), ("convert", 5, 10), ("download", 1, 2)]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"source": 5}, TypeError),
        ({"source": b"smollm2"}, TypeError),
        ({"source": ""}, ValueError),
        ({"engine": "cuda"}, ValueError),
        ({"context_length": 0}, ValueError),
        ({"context_length": True}, TypeError),
        ({"threads": -1}, ValueError),
        ({"threads": 513}, ValueError),
        ({"threads": 2.0}, TypeError),
        ({"target": 9}, ValueError),
    ],
)
def test_arguments_are_checked_first(fields: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        genai.load(**fields)
