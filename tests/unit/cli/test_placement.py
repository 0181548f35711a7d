"""Options that say what a model runs on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.language_model import FakeModel, saying
from winml_lite import ExecutionTargetKind, Runtime


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel([saying("Blue")], engine="ONNX Runtime", provider="tiny")
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments, "Why?"], prog_name="winml-lite")


def placed(model: FakeModel) -> tuple[object, ...]:
    given = model.loads[0][1]
    return given["target"], given["provider"], given["provider_options"]


def test_s_plc_02_the_engine_chooses_unless_it_is_told(model: FakeModel) -> None:
    assert run().stderr.splitlines()[0] == "fake on ONNX Runtime (CPU): /models/fake.gguf"
    assert placed(model) == (None, None, None)


@pytest.mark.parametrize("name", ["cpu", "gpu", "npu"])
def test_s_plc_02_a_device_reaches_the_model(model: FakeModel, name: str) -> None:
    assert run("--device", name).exit_code == 0
    assert placed(model) == (ExecutionTargetKind[name.upper()], None, None)


def test_s_plc_02_a_provider_reaches_the_model_and_is_said(model: FakeModel) -> None:
    done = run("--provider", "tiny", "--provider-option", "weights=f32", "--provider-option", "path=a=b")
    assert done.stderr.splitlines()[0] == "fake on ONNX Runtime (CPU, tiny): /models/fake.gguf"
    assert placed(model) == (None, "tiny", {"weights": "f32", "path": "a=b"})


def test_s_plc_02_json_says_the_device(model: FakeModel) -> None:
    assert json.loads(run("--json").stdout)["device"] == "CPU"


def test_the_library_of_a_provider_is_registered(
    model: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(Runtime, "register_execution_provider", lambda _, *given: registered.extend(given))
    library = tmp_path / "tiny.so"
    library.write_bytes(b"")
    assert run("--provider", "tiny", "--provider-library", str(library)).exit_code == 0
    assert registered == ["tiny", library]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--provider-option", "a=b"), "go with --provider"),
        (("--provider", "tiny", "--provider-option", "a"), "KEY=VALUE"),
        (("--provider", "tiny", "--provider-option", "=b"), "KEY=VALUE"),
        (("--provider", "tiny", "--provider-library", "absent.so"), "absent.so"),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_s_plc_02_what_cannot_be_meant_loads_nothing(model: FakeModel, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert model.loads == []
