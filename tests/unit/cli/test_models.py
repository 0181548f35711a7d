"""`winml-lite models`, `convert` and `bench` without any model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.language_model import FakeModel, saying
from genai.convert import CONVERTER_VERSION
from genai.convert.whisper import ConvertedSpeechModel

BODY = b"GGUF and so on"
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache whose own catalog has the entry `tiny`, taken from a local file."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "tiny.gguf").write_bytes(BODY)
    (folder / "catalog.toml").write_text(
        f'[[model]]\nname = "tiny"\ndescription = "A tiny one"\nfile = "tiny.gguf"\nsize = {len(BODY)}\n'
        f'sha256 = "{DIGEST}"\nlicence = "MIT"\nlicence_url = "https://host.example/mit"\n'
        f"[[model.source]]\npath = '{tmp_path / 'tiny.gguf'}'\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("WINML_LITE_HOME", str(folder))
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_list_names_the_models() -> None:
    lines = run("models", "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["smollm2", "-", "text"],
        ["gemma3-270m", "-", "text"],
        ["whisper-tiny.en", "-", "speech"],
        ["silero-vad", "-", "voice-activity"],
    ]
    assert lines[-1].split()[:3] == ["tiny", "-", "text"]
    assert "70.7 MB download, 77.7 MB files" in lines[2]
    assert "92.9 MB download, 98.4 MB file" in lines[0]
    assert "extra" not in lines[0]
    assert lines[1].endswith("; ONNX Runtime needs the extra kquants")


def test_pull_prints_the_path_and_tells_licence_and_source(home: Path) -> None:
    result = run("models", "pull", "tiny")
    path = home / "models" / "tiny" / DIGEST[:8] / "tiny.gguf"
    assert (result.exit_code, result.stdout) == (0, f"{path}\n")
    assert path.read_bytes() == BODY
    assert "licence: MIT https://host.example/mit" in result.stderr
    assert "tiny.gguf" in result.stderr


def test_list_as_json_after_a_pull(home: Path) -> None:
    run("models", "pull", "tiny")
    record = json.loads(run("models", "list", "--json").stdout)[-1]
    assert (record["name"], record["licence"], record["bytes"], record["can_chat"]) == ("tiny", "MIT", 14, False)
    assert Path(record["path"]).name == "tiny.gguf"


def test_path_of_a_cached_model(home: Path) -> None:
    pulled = run("models", "pull", "tiny").stdout
    assert run("models", "path", "tiny").stdout == pulled


def test_path_of_a_model_that_is_not_there() -> None:
    result = run("models", "path", "tiny")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "`winml-lite models pull tiny` fetches it" in result.stderr


def test_rm_removes(home: Path) -> None:
    run("models", "pull", "tiny")
    assert "tiny: removed" in run("models", "rm", "tiny").stderr
    assert run("models", "path", "tiny").exit_code == 3
    assert "was not in the cache" in run("models", "rm", "tiny").stderr


@pytest.mark.parametrize("command", ["pull", "rm", "path"])
def test_an_unknown_name(command: str) -> None:
    result = run("models", command, "huge")
    assert result.exit_code == 3
    assert "'huge'; the names are smollm2, gemma3-270m, whisper-tiny.en, " in result.stderr


def test_a_pull_that_fails(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"other")
    result = run("models", "pull", "tiny")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "0x80070570" in result.stderr


def test_convert_takes_the_file_of_a_name(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def convert(source: Path, folder: Path, **options: Any) -> None:
        calls.append((source, folder, options["operators"], options["weights"], options["context_length"]))
        raise FileExistsError(f"{folder} is not empty")

    monkeypatch.setattr("genai.convert.convert_gguf", convert, raising=False)
    result = run("convert", "tiny", str(tmp_path / "out"), "--weights", "f16", "--context-length", "64")
    assert calls == [(home / "models" / "tiny" / DIGEST[:8] / "tiny.gguf", tmp_path / "out", "gqa", "f16", 64)]
    assert result.exit_code == 2
    assert "out is not empty" in result.stderr


def test_pull_of_a_model_that_is_made_prints_its_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(source: Path, folder: Path, **options: Any) -> None:
        folder.mkdir(parents=True)

    (home / "catalog.toml").write_text(
        (home / "catalog.toml")
        .read_text(encoding="utf-8")
        .replace('licence = "MIT"', 'licence = "MIT"\nkind = "speech"\nconvert = "whisper-f16"')
        .replace('file = "tiny.gguf"', 'file = "model.bin"'),
        encoding="utf-8",
    )
    monkeypatch.setattr("genai.convert.convert_whisper", convert, raising=False)
    result = run("models", "pull", "tiny")
    folder = home / "converted" / f"v{CONVERTER_VERSION}" / f"tiny-{DIGEST[:8]}-whisper-f16"
    assert (result.exit_code, result.stdout) == (0, f"{folder}\n")
    assert "genai.load_speech('tiny') loads it" in result.stderr
    assert run("models", "path", "tiny").stdout == f"{folder}\n"
    record = json.loads(run("models", "list", "--json").stdout)[-1]
    assert (record["kind"], record["loaded_by"], record["path"]) == ("speech", "genai.load_speech", str(folder))
    assert "tiny: removed" in run("models", "rm", "tiny").stderr
    assert not folder.exists()


def whisper(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A conversion that only notes what it is asked for."""
    calls: list[tuple[Any, ...]] = []

    def convert(source: Path, folder: Path, *, weights: str, progress: Any) -> ConvertedSpeechModel:
        calls.append((source, folder, weights))
        progress(5, 5)
        return ConvertedSpeechModel(folder, weights, 80, 4, 2, False, 79_000_000)

    monkeypatch.setattr("genai.convert.convert_whisper", convert, raising=False)
    return calls


def test_convert_of_a_whisper_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = whisper(monkeypatch)
    result = run("convert", str(tmp_path), str(tmp_path / "out"))
    assert calls == [(tmp_path, tmp_path / "out", "f16")]
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'out'}\n")
    assert "Whisper, English only, 4 and 2 layers, 80 mel bands, f16, 79.0 MB" in result.stderr


def test_convert_of_a_whisper_folder_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = whisper(monkeypatch)
    result = run("convert", str(tmp_path), str(tmp_path / "out"), "--weights", "f32", "--json")
    assert calls == [(tmp_path, tmp_path / "out", "f32")]
    assert json.loads(result.stdout) == {
        "folder": str(tmp_path / "out"),
        "architecture": "whisper",
        "weights": "f32",
        "mel_count": 80,
        "encoder_layers": 4,
        "decoder_layers": 2,
        "is_multilingual": False,
        "bytes": 79_000_000,
    }


@pytest.mark.parametrize("option", [("--operators", "gqa"), ("--context-length", "8")])
def test_options_of_gguf_files_do_not_go_with_a_whisper_folder(tmp_path: Path, option: tuple[str, str]) -> None:
    result = run("convert", str(tmp_path), str(tmp_path / "out"), *option)
    assert result.exit_code == 2
    assert "is a folder: only --weights goes with a Whisper model" in result.stderr


def test_convert_of_a_folder_without_a_model(tmp_path: Path) -> None:
    result = run("convert", str(tmp_path), str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "holds no model.bin" in result.stderr


def test_there_is_nothing_to_convert_to_for_other_kinds(tmp_path: Path) -> None:
    result = run("convert", "silero-vad", str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "silero-vad, of kind voice-activity, is ready as it is: there is nothing to convert to" in result.stderr


def test_convert_of_weights_of_torch_says_what_does_it(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"PK")
    result = run("convert", str(tmp_path / "weights.pth"), str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "genai.convert.convert_efficientnet converts those of EfficientNet-Lite" in result.stderr


def test_convert_of_a_file_that_is_absent(tmp_path: Path) -> None:
    result = run("convert", str(tmp_path / "absent.gguf"), str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "absent.gguf" in result.stderr


def test_convert_of_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    result = run("convert", "huge", str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "known names: smollm2, gemma3-270m, " in result.stderr


def test_pull_tells_the_extra_that_onnx_runtime_needs() -> None:
    result = run("models", "pull", "gemma3-270m", "--offline")
    assert "pip install 'winml-lite[kquants]'" in result.stderr


def test_bench_shows_medians_and_never_repeats_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel([saying("a", "b")] * 3)
    monkeypatch.setattr(genai, "load", model.load)
    result = run("bench", "--runs", "2", "--prompt-tokens", "100", "--json")
    record = json.loads(result.stdout)
    assert (record["decode_tokens_per_second"], record["prompt_tokens_per_second"]) == (2.0, 20.0)
    assert (record["generated_token_count"], record["runs"]) == (2, 2)
    prompts = [tuple(prompt) for _, prompt, _ in model.asked]
    assert [len(prompt) for prompt in prompts] == [100, 100, 100]
    assert len({prompt[:2] for prompt in prompts}) == 3


def test_bench_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel([saying("a", "b")] * 2)
    monkeypatch.setattr(genai, "load", model.load)
    lines = run("bench", "-q", "--runs", "1").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["load", "prompt", "first", "decode"]
