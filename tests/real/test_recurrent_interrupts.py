"""What an interrupt leaves behind in recurrent layers of a GGUF, whose state cannot be taken back."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.llama_stages import PROMPT, build, feed, ids, position
from fakes.model_files import ModelFiles
from fakes.rig import failing
from winml_lite.native.llama.executor import LlamaExecutor

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]


@pytest.fixture
def stage(files: ModelFiles) -> LlamaExecutor:
    """A stage that has consumed five tokens."""
    stage = build(files.hybrid_gguf, 64)
    feed(stage, PROMPT[:5])
    return stage


@pytest.fixture
def undisturbed(files: ModelFiles) -> LlamaExecutor:
    """Its twin that nobody interrupts."""
    stage = build(files.hybrid_gguf, 64)
    feed(stage, PROMPT[:5])
    return stage


def run_interrupted(stage: LlamaExecutor, tokens: list[int]) -> None:
    """Run the tokens, and be interrupted before the run counts."""
    stage.bind_input(0, ids(tokens))
    stage.run()
    stage.discard()


@pytest.mark.parametrize("tokens", [PROMPT[5:6], PROMPT[5:12]])
def test_the_same_tokens_again_go_on_from_there(
    stage: LlamaExecutor, undisturbed: LlamaExecutor, tokens: list[int]
) -> None:
    run_interrupted(stage, tokens)
    assert position(stage) == 5
    row = feed(stage, tokens)
    assert position(stage) == 5 + len(tokens)
    np.testing.assert_array_equal(row, feed(undisturbed, tokens))
    np.testing.assert_array_equal(feed(stage, PROMPT[:1]), feed(undisturbed, PROMPT[:1]))


def test_more_tokens_that_begin_with_them_go_on_from_there(stage: LlamaExecutor, undisturbed: LlamaExecutor) -> None:
    run_interrupted(stage, PROMPT[5:6])
    row = feed(stage, PROMPT[5:9])
    assert position(stage) == 9
    np.testing.assert_allclose(row, feed(undisturbed, PROMPT[5:9]), atol=1e-4)


def test_twice_interrupted(stage: LlamaExecutor, undisturbed: LlamaExecutor) -> None:
    run_interrupted(stage, PROMPT[5:6])
    run_interrupted(stage, PROMPT[5:6])
    np.testing.assert_array_equal(feed(stage, PROMPT[5:6]), feed(undisturbed, PROMPT[5:6]))
    run_interrupted(stage, PROMPT[6:9])
    run_interrupted(stage, PROMPT[6:11])
    np.testing.assert_allclose(feed(stage, PROMPT[6:11]), feed(undisturbed, PROMPT[6:11]), atol=1e-4)


@pytest.mark.parametrize("tokens", [PROMPT[8:9], PROMPT[8:12]])
def test_other_tokens_say_that_the_sequence_starts_again(stage: LlamaExecutor, tokens: list[int]) -> None:
    run_interrupted(stage, PROMPT[5:7])
    stage.bind_input(0, ids(tokens))
    with failing(0x80004005) as caught:
        stage.run()
    assert "cannot go back to position 5, so the sequence was reset" in str(caught.value)
    assert position(stage) == 0


def test_the_row_that_nobody_wanted_is_not_there(stage: LlamaExecutor) -> None:
    stage.bind_output(0, None, False)
    run_interrupted(stage, PROMPT[5:6])
    stage.bind_output(0, None, True)
    stage.bind_input(0, ids(PROMPT[5:6]))
    with failing(0x80004005):
        stage.run()


def test_a_reset_forgets_it(stage: LlamaExecutor, files: ModelFiles) -> None:
    run_interrupted(stage, PROMPT[5:6])
    assert stage.sequence is not None
    stage.sequence.reset()
    np.testing.assert_array_equal(feed(stage, PROMPT[5:6]), feed(build(files.hybrid_gguf, 64), PROMPT[5:6]))


def test_a_refused_rewind_leaves_it(stage: LlamaExecutor, undisturbed: LlamaExecutor) -> None:
    run_interrupted(stage, PROMPT[5:6])
    assert stage.sequence is not None
    with failing(0x80070057):
        stage.sequence.rewind(3)
    np.testing.assert_array_equal(feed(stage, PROMPT[5:6]), feed(undisturbed, PROMPT[5:6]))


def test_an_abort_lets_a_step_end(stage: LlamaExecutor, undisturbed: LlamaExecutor) -> None:
    context = stage.sequence.context  # type: ignore[union-attr]
    decode = context._decode

    def decode_aborted(*arguments: object) -> int:
        stage.abort()
        status: int = decode(*arguments)
        return status

    context._decode = decode_aborted
    row = feed(stage, PROMPT[5:6])
    assert position(stage) == 6
    np.testing.assert_array_equal(row, feed(undisturbed, PROMPT[5:6]))
