"""The state of a stage as a file (an extension of the object model): on every kind of decoder, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fakes.backend import Script
from fakes.decoders import IDS, Decoder, llama_decoder, onnx_decoder, random_onnx
from fakes.model_files import ModelFiles
from fakes.rig import built_add, failing
from winml_lite import NotSupportedError, Runtime

NOTE = b"what the caller wants to know again"


def saved(decoder: Decoder, folder: Path, *ids: int) -> Path:
    """A file with the state of a decoder that has consumed `ids`."""
    decoder.run(*ids)
    path = folder / "sequence.state"
    decoder.stage.save_sequence_state(path, NOTE)
    return path


# Saving and going on


def test_the_run_after_loading_equals_the_undisturbed_one(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, *IDS[:5])
    wanted = [decoder.run(*IDS[5:7]), decoder.run(IDS[7])]
    decoder.pipeline.reset()
    decoder.stage.load_sequence_state(path)
    assert decoder.stage.sequence_position == 5
    np.testing.assert_array_equal(decoder.run(*IDS[5:7]), wanted[0])
    np.testing.assert_array_equal(decoder.run(IDS[7]), wanted[1])


def test_a_longer_sequence_gives_way_to_the_loaded_one(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, *IDS[:3])
    wanted = decoder.run(IDS[3])
    decoder.run(*IDS[4:])
    decoder.stage.load_sequence_state(path)
    np.testing.assert_array_equal(decoder.run(IDS[3]), wanted)


def test_the_note_comes_back(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, *IDS[:2])
    assert decoder.stage.load_sequence_state(path) == NOTE


def test_saving_changes_nothing(decoder: Decoder, tmp_path: Path) -> None:
    wanted = [decoder.run(*IDS[:3]), decoder.run(IDS[3])]
    decoder.pipeline.reset()
    saved(decoder, tmp_path, *IDS[:3])
    np.testing.assert_array_equal(decoder.row(), wanted[0])
    np.testing.assert_array_equal(decoder.run(IDS[3]), wanted[1])


def test_a_loaded_sequence_is_cut_like_any_other(decoder: Decoder, tmp_path: Path) -> None:
    wanted = decoder.one_by_one(*IDS[:4])[3]
    decoder.stage.rewind(3)
    decoder.run(IDS[7])
    path = tmp_path / "sequence.state"
    decoder.stage.save_sequence_state(path)
    decoder.pipeline.reset()
    decoder.stage.load_sequence_state(path)
    decoder.stage.rewind(3)
    np.testing.assert_array_equal(decoder.run(IDS[3]), wanted)


def test_a_step_over_several_positions_follows_a_loaded_state(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, *IDS[:4])
    wanted = decoder.run(*IDS[4:6])
    decoder.stage.load_sequence_state(path)
    np.testing.assert_allclose(np.asarray(decoder.step(*IDS[4:6]))[1], wanted, rtol=0, atol=1e-3)


def test_bindings_and_outputs_stay(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, *IDS[:4])
    decoder.stage.rewind(3)
    decoder.run(IDS[5])
    last = decoder.row()
    decoder.stage.load_sequence_state(path)
    np.testing.assert_array_equal(decoder.row(), last)


def test_the_size_follows_the_positions_in_use(decoder: Decoder, tmp_path: Path) -> None:
    path = saved(decoder, tmp_path, IDS[0])
    small = path.stat().st_size
    decoder.run(*IDS[1:])
    decoder.stage.save_sequence_state(path)
    grown = path.stat().st_size - small
    decoder.run(*IDS)
    decoder.stage.save_sequence_state(path)
    grown_more = path.stat().st_size - small
    assert grown_more == pytest.approx(grown * 15 / 7, abs=100)


def test_a_state_fits_a_stage_with_another_capacity(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    path = saved(onnx_decoder(runtime, random_onnx(files, "gqa"), 16), tmp_path, *IDS[:5])
    roomier = onnx_decoder(runtime, random_onnx(files, "gqa"), 200)
    plain = onnx_decoder(runtime, random_onnx(files, "gqa"), 200).run(*IDS[:6])
    roomier.stage.load_sequence_state(path)
    np.testing.assert_allclose(roomier.run(IDS[5]), plain, rtol=0, atol=1e-3)


# Refusals


def test_nothing_is_saved_at_position_0(decoder: Decoder, tmp_path: Path) -> None:
    with failing(0x8007139F):
        decoder.stage.save_sequence_state(tmp_path / "sequence.state")
    assert list(tmp_path.iterdir()) == []


def test_a_stage_without_state_saves_none(runtime: Runtime, files: ModelFiles, ort: None, tmp_path: Path) -> None:
    stage, _ = built_add(runtime, files.onnx("add"))
    with failing(0x80070032, NotSupportedError):
        stage.save_sequence_state(tmp_path / "sequence.state")


def test_a_file_that_is_not_there(decoder: Decoder, tmp_path: Path) -> None:
    with failing(0x80070002):
        decoder.stage.load_sequence_state(tmp_path / "absent.state")


def test_a_folder_that_is_not_there(decoder: Decoder, tmp_path: Path) -> None:
    decoder.run(*IDS[:2])
    with failing(0x80070003):
        decoder.stage.save_sequence_state(tmp_path / "absent" / "sequence.state")


@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.8, 0.95, 0.999])
def test_a_flipped_bit_is_noticed_and_changes_nothing(decoder: Decoder, tmp_path: Path, where: float) -> None:
    path = saved(decoder, tmp_path, *IDS[:4])
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 4
    path.write_bytes(data)
    with failing(0x80070570):
        decoder.stage.load_sequence_state(path)
    assert decoder.stage.sequence_position == 4


@pytest.mark.parametrize("kept", [1, 20, 60, 61, -1])
def test_a_truncated_file_is_noticed(decoder: Decoder, tmp_path: Path, kept: int) -> None:
    path = saved(decoder, tmp_path, *IDS[:4])
    path.write_bytes(path.read_bytes()[:kept])
    with failing(0x80070570):
        decoder.stage.load_sequence_state(path)


def test_a_file_of_another_kind_is_no_state(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "sequence.state"
    path.write_bytes(b"once upon a time" * 100)
    with failing(0x80070570) as caught:
        decoder.stage.load_sequence_state(path)
    assert "no saved state" in str(caught.value)


def test_a_state_that_is_too_long_is_refused(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, tmp_path: Path
) -> None:
    path = saved(llama_decoder(runtime, files.scripted_gguf, 16), tmp_path, *IDS)
    small = llama_decoder(runtime, files.scripted_gguf, 7)
    with failing(0x8007007A):
        small.stage.load_sequence_state(path)


def test_the_state_of_another_model_is_refused(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, tmp_path: Path
) -> None:
    path = saved(llama_decoder(runtime, files.scripted_gguf), tmp_path, *IDS)
    other = llama_decoder(runtime, files.gguf)
    with failing(0x8007000D) as caught:
        other.stage.load_sequence_state(path)
    assert "another model" in str(caught.value)


@pytest.mark.usefixtures("llama")
def test_another_type_of_cache_is_refused(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    path = saved(llama_decoder(runtime, files.gguf), tmp_path, *IDS)
    builder = runtime.create_pipeline_builder()
    half = builder.add_model_stage(runtime.load_model(files.gguf), runtime.create_cpu_target())
    _pipeline = builder.build()
    with failing(0x8007000D) as caught:
        half.load_sequence_state(path)
    assert "another key type" in str(caught.value)


def test_a_failed_write_leaves_the_file_of_before(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, script: Script, tmp_path: Path
) -> None:
    decoder = llama_decoder(runtime, files.scripted_gguf)
    path = saved(decoder, tmp_path, *IDS[:3])
    before = path.read_bytes()
    script.fail_state = True
    with failing(0x80004005):
        decoder.stage.save_sequence_state(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["sequence.state"]


def test_an_engine_that_fails_to_read_leaves_position_0(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, script: Script, tmp_path: Path
) -> None:
    decoder = llama_decoder(runtime, files.scripted_gguf)
    path = saved(decoder, tmp_path, *IDS[:3])
    script.fail_state = True
    with failing(0x80004005):
        decoder.stage.load_sequence_state(path)
    assert decoder.stage.sequence_position == 0


def test_a_stage_that_is_not_built_has_no_state(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, tmp_path: Path
) -> None:
    stage = runtime.create_pipeline_builder().add_model_stage(runtime.load_model(files.scripted_gguf))
    with failing(0x8007139F):
        stage.save_sequence_state(tmp_path / "sequence.state")


# Which model it is


def test_the_digest_is_that_of_the_files(
    runtime: Runtime, files: ModelFiles, fake_gguf: object, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(files.scripted_gguf).read_bytes())
    digest = llama_decoder(runtime, files.scripted_gguf).stage.model_digest
    assert len(digest) == 64
    assert llama_decoder(runtime, str(copy)).stage.model_digest == digest
    assert llama_decoder(runtime, files.gguf).stage.model_digest != digest


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_file_does_not_take_the_place_of_a_pipe(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    decoder.run(*IDS[:2])
    with failing(0x80070057):
        decoder.stage.save_sequence_state(path)
    assert path.is_fifo()


def test_a_path_that_no_file_can_have(decoder: Decoder, tmp_path: Path) -> None:
    decoder.run(*IDS[:2])
    with failing(0x80070057):
        decoder.stage.save_sequence_state(f"{tmp_path}/a\0b")
