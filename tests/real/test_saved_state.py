"""States of llama.cpp that are more than keys and values of every position: recurrent layers, windows, predictors."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fakes.decoders import IDS, Decoder, llama_decoder
from fakes.model_files import ModelFiles
from fakes.rig import failing
from winml_lite import Runtime

pytestmark = pytest.mark.usefixtures("llama")
LONG = tuple((7 * place * place + 3 * place) % 300 for place in range(24))


def moved(decoder: Decoder, other: Decoder, folder: Path) -> Decoder:
    """The other decoder with the state of the first."""
    decoder.stage.save_sequence_state(folder / "sequence.state")
    other.stage.load_sequence_state(folder / "sequence.state")
    return other


@pytest.mark.parametrize(("limit", "other_limit"), [(0, 0), (4, 0), (0, 4), (4, 4)])
def test_recurrent_state_goes_on(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, limit: int, other_limit: int
) -> None:
    decoder = llama_decoder(runtime, files.hybrid_gguf, 64, limit)
    decoder.run(*LONG)
    other = moved(decoder, llama_decoder(runtime, files.hybrid_gguf, 128, other_limit), tmp_path)
    np.testing.assert_array_equal(other.run(IDS[0]), decoder.run(IDS[0]))
    np.testing.assert_array_equal(other.run(*IDS[1:4]), decoder.run(*IDS[1:4]))


def test_recurrent_state_that_was_cut_before_it_was_saved(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    decoder = llama_decoder(runtime, files.hybrid_gguf, 64, 4)
    decoder.step(*IDS[:4])
    decoder.stage.commit_accepted_prefix(2)
    other = moved(decoder, llama_decoder(runtime, files.hybrid_gguf, 64, 4), tmp_path)
    np.testing.assert_array_equal(other.run(IDS[5]), decoder.run(IDS[5]))


def test_recurrent_state_that_was_loaded_cannot_be_cut(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    decoder = llama_decoder(runtime, files.hybrid_gguf, 64, 4)
    decoder.run(*IDS[:4])
    other = moved(decoder, llama_decoder(runtime, files.hybrid_gguf, 64, 4), tmp_path)
    with failing(0x80070057):
        other.stage.rewind(3)
    assert other.stage.sequence_position == 4


def test_a_predictor_begins_anew_behind_a_loaded_state(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    decoder = llama_decoder(runtime, files.hybrid_gguf, 64, 4, predicts=True)
    decoder.run(*LONG)
    other = moved(decoder, llama_decoder(runtime, files.hybrid_gguf, 64, 4, predicts=True), tmp_path)
    assert other.stage.propose_draft_tokens(IDS[0], 3) == []
    np.testing.assert_array_equal(other.run(IDS[0]), decoder.run(IDS[0]))
    other.run(IDS[1])
    assert len(other.stage.propose_draft_tokens(IDS[2], 3)) == 3


def test_a_sliding_window_is_not_cut_where_its_past_is_gone(
    runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    decoder = llama_decoder(runtime, files.gemma3_gguf, 64)
    decoder.run(*LONG)
    other = moved(decoder, llama_decoder(runtime, files.gemma3_gguf, 64), tmp_path)
    with failing(0x80070057):
        other.stage.rewind(22)
    other.stage.rewind(23)
    decoder.stage.rewind(23)
    np.testing.assert_array_equal(other.run(IDS[0]), decoder.run(IDS[0]))
    with failing(0x80070057):
        other.stage.rewind(22)
    assert other.stage.sequence_position == 24


def test_a_window_is_whole_again_after_a_reset(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    decoder = llama_decoder(runtime, files.gemma3_gguf, 64)
    decoder.run(*LONG)
    other = moved(decoder, llama_decoder(runtime, files.gemma3_gguf, 64), tmp_path)
    other.pipeline.reset()
    other.run(*LONG)
    other.stage.rewind(10)
    decoder.stage.rewind(10)
    np.testing.assert_array_equal(other.run(IDS[0]), decoder.run(IDS[0]))


def test_a_short_window_is_kept_whole(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    decoder = llama_decoder(runtime, files.gemma3_gguf, 64)
    decoder.run(*LONG[:7])
    other = moved(decoder, llama_decoder(runtime, files.gemma3_gguf, 64), tmp_path)
    other.stage.rewind(2)
    decoder.stage.rewind(2)
    np.testing.assert_array_equal(other.run(IDS[0]), decoder.run(IDS[0]))


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of the size of files")
def test_a_file_that_cannot_take_the_state_says_why(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    import resource

    decoder = llama_decoder(runtime, files.gguf, 64)
    decoder.run(*LONG)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with failing(0x80004005) as caught:
            decoder.stage.save_sequence_state(tmp_path / "sequence.state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.native_message == f"{tmp_path / 'sequence.state'}: {os.strerror(errno.EFBIG)}"
    assert list(tmp_path.iterdir()) == []
