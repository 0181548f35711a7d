"""LoRA adapters on llama.cpp: equal to the change written into the weights, and part of what a state belongs to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import genai
from cli.main import main
from fakes.decoders import IDS, Decoder
from fakes.model_files import ModelFiles
from fakes.rig import failing
from models.gguf_writer import write_gguf
from models.lora_adapters import merged_model
from models.recipes import adapter_gguf, random_onnx
from winml_lite import Runtime

pytestmark = pytest.mark.usefixtures("llama")


def adapted(runtime: Runtime, path: str | Path, *adapters: tuple[str, float]) -> Decoder:
    """An exact decoder with adapters."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path), runtime.create_cpu_target())
    options = stage.llama_options()
    options.thread_count, options.key_type, options.value_type = 1, "f32", "f32"
    options.adapters = adapters
    stage.request_output(0)
    return Decoder(runtime, stage, builder.build(), ())


@pytest.mark.parametrize("scale", [1.0, 0.25, -2.0])
def test_an_adapter_equals_its_change_of_the_weights(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, scale: float
) -> None:
    merged = write_gguf(tmp_path / "merged.gguf", *merged_model(scale))
    row = adapted(runtime, files.gguf, (str(adapter_gguf(files.folder)), scale)).run(*IDS)
    np.testing.assert_allclose(row, adapted(runtime, merged).run(*IDS), rtol=0, atol=2e-3)
    assert np.abs(row - adapted(runtime, files.gguf).run(*IDS)).max() > 0.5


def test_two_adapters_add_up(runtime: Runtime, files: ModelFiles) -> None:
    path = str(adapter_gguf(files.folder))
    twin = str(adapter_gguf(files.folder / "twin"))
    both = adapted(runtime, files.gguf, (path, 0.5), (twin, 0.25)).run(*IDS)
    np.testing.assert_allclose(both, adapted(runtime, files.gguf, (path, 0.75)).run(*IDS), rtol=0, atol=2e-3)


def test_scale_0_changes_nothing(runtime: Runtime, files: ModelFiles) -> None:
    row = adapted(runtime, files.gguf, (str(adapter_gguf(files.folder)), 0.0)).run(*IDS)
    np.testing.assert_array_equal(row, adapted(runtime, files.gguf).run(*IDS))


def test_a_state_belongs_to_its_adapters(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    adapter = str(adapter_gguf(files.folder))
    path = tmp_path / "sequence.state"
    decoder = adapted(runtime, files.gguf, (adapter, 0.5))
    decoder.run(*IDS)
    decoder.stage.save_sequence_state(path)
    adapted(runtime, files.gguf, (adapter, 0.5)).stage.load_sequence_state(path)
    for other in (adapted(runtime, files.gguf), adapted(runtime, files.gguf, (adapter, 1.0))):
        with failing(0x8007000D) as caught:
            other.stage.load_sequence_state(path)
        assert "other adapters" in str(caught.value)


def test_adapters_are_part_of_the_digest(runtime: Runtime, files: ModelFiles) -> None:
    adapter = str(adapter_gguf(files.folder))
    digests = {
        adapted(runtime, files.gguf).stage.model_digest,
        adapted(runtime, files.gguf, (adapter, 1.0)).stage.model_digest,
        adapted(runtime, files.gguf, (adapter, 0.5)).stage.model_digest,
    }
    assert len(digests) == 3


def test_a_model_is_no_adapter(runtime: Runtime, files: ModelFiles) -> None:
    with failing(0x80070570) as caught:
        adapted(runtime, files.gguf, (files.gguf, 1.0))
    assert "general.type" in str(caught.value)


def test_a_loaded_model_writes_what_the_merged_one_writes(files: ModelFiles, tmp_path: Path) -> None:
    merged = write_gguf(tmp_path / "merged.gguf", *merged_model(0.5))
    with genai.load(merged, threads=1) as model:
        wanted = model.generate("Once", max_new_tokens=12).token_ids
    with genai.load(files.gguf, threads=1) as model:
        plain = model.generate("Once", max_new_tokens=12).token_ids
    with genai.load(files.gguf, threads=1, adapters=[(adapter_gguf(files.folder), 0.5)]) as model:
        assert model.generate("Once", max_new_tokens=12).token_ids == wanted
    assert plain != wanted


def test_an_onnx_model_takes_no_adapter(files: ModelFiles) -> None:
    with failing(0x80070032) as caught:
        genai.load(random_onnx(files.folder), adapters=[adapter_gguf(files.folder)])
    assert "GGUF models only" in str(caught.value)


@pytest.mark.parametrize(("spelling", "scale"), [("{}", 1.0), ("{}=0.5", 0.5)])
def test_the_command_line_applies_adapters(files: ModelFiles, spelling: str, scale: float) -> None:
    path = adapter_gguf(files.folder)
    with genai.load(files.gguf, threads=1, adapters=[(path, scale)]) as model:
        wanted = model.generate("Once", max_new_tokens=8).text
    arguments = ["generate", "-q", "--raw", "-n", "8", "--threads", "1", "-m", files.gguf]
    done = CliRunner().invoke(main, [*arguments, "--lora", spelling.format(path), "Once"])
    assert (done.exit_code, done.stdout.rstrip("\n")) == (0, wanted.rstrip("\n"))
