"""A stage on the real llama.cpp: feeding, outputs, position, capacity (runtime 7.2, 20.2, 20.5, 20.6)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fakes.llama_stages import FLOAT32, INT64, PROMPT, build, feed, ids, position
from fakes.model_files import ModelFiles
from models import recipes
from winml_lite.errors import (
    CANCELLED,
    E_BOUNDS,
    E_INVALIDARG,
    E_NOT_VALID_STATE,
    NOT_ENOUGH_MEMORY,
    WinMLError,
)
from winml_lite.native.llama.context import Context
from winml_lite.native.llama.executor import LlamaExecutor
from winml_lite.storage import Storage, StorageLock, allocate
from winml_lite.values import FREE_DIMENSION, ExecutionTargetKind, TensorDataType, TensorLockMode

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]


@pytest.fixture
def stage(files: ModelFiles) -> LlamaExecutor:
    return build(files.gguf)


def failing_code(stage: LlamaExecutor) -> int:
    with pytest.raises(WinMLError) as caught:
        stage.run()
    return caught.value.hresult


def test_descriptors_and_target(stage: LlamaExecutor) -> None:
    assert stage.inputs == ((TensorDataType.INT32, (1, FREE_DIMENSION)),)
    assert stage.outputs == ((FLOAT32, (1, 303)),)
    assert stage.target_kind is ExecutionTargetKind.CPU


@pytest.mark.parametrize("batch_size", [1, 7, 64, 199, 200, 512])
def test_r113_s_ctx_07_batches_of_any_size_give_the_same_logits(files: ModelFiles, batch_size: int) -> None:
    whole = feed(build(files.gguf), PROMPT)
    assert feed(build(files.gguf, batch_size=batch_size), PROMPT) == pytest.approx(whole, abs=1e-4)


def test_exact_caches_agree_token_by_token(stage: LlamaExecutor, files: ModelFiles) -> None:
    whole = feed(build(files.gguf), PROMPT)
    pieces = [feed(stage, [token]) for token in PROMPT]
    assert pieces[-1] == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_smaller_caches_stay_close(files: ModelFiles, tmp_path: Path, kind: str) -> None:
    path = recipes.gemma3_gguf(tmp_path) if kind == "q8_0" else files.gguf  # blocks of 32 need a head of 32
    tokens = PROMPT[:40]
    exact = feed(build(path), tokens)
    assert feed(build(path, key_type=kind, value_type=kind), tokens) == pytest.approx(exact, abs=0.3)


def test_ids_are_read_at_each_run(stage: LlamaExecutor, files: ModelFiles) -> None:
    bound = ids([5])
    stage.bind_input(0, bound)
    stage.run()
    stage.commit()
    bound.array()[0, 0] = 9
    stage.run()
    stage.commit()
    assert stage.output(0).array()[0] == pytest.approx(feed(build(files.gguf), [5, 9]), abs=1e-4)


def test_without_a_wanted_output_the_tokens_still_count(stage: LlamaExecutor, files: ModelFiles) -> None:
    stage.bind_output(0, None, False)
    stage.bind_input(0, ids(PROMPT[:50]))
    stage.run()
    stage.commit()
    stage.bind_output(0, None, True)
    assert feed(stage, PROMPT[50:60]) == pytest.approx(feed(build(files.gguf), PROMPT[:60]), abs=1e-4)


def test_unpublished_output_is_not_readable(stage: LlamaExecutor) -> None:
    with pytest.raises(WinMLError) as caught:
        stage.output(0)
    assert caught.value.hresult == E_NOT_VALID_STATE


def test_r60_logits_go_into_the_callers_memory(stage: LlamaExecutor) -> None:
    expected = feed(stage, [1, 2, 3])
    assert stage.sequence is not None
    stage.sequence.reset()
    target = allocate(FLOAT32, (1, 303))
    stage.bind_output(0, target, False)
    feed(stage, [1, 2, 3])
    assert stage.output(0) is target
    assert target.array()[0].tolist() == expected.tolist()


def test_r72_read_only_output_is_refused(stage: LlamaExecutor) -> None:
    target = allocate(FLOAT32, (1, 303))
    target.writable = False
    with pytest.raises(WinMLError) as caught:
        stage.bind_output(0, target, False)
    assert caught.value.hresult == E_INVALIDARG


@pytest.mark.parametrize(
    "storage",
    [
        allocate(TensorDataType.UINT32, (1, 3)),
        allocate(TensorDataType.FLOAT32, (1, 3)),
        allocate(INT64, (2, 3)),
        allocate(INT64, (1, 1, 3)),
        allocate(INT64, ()),
        allocate(INT64, (1, 0)),
        allocate(INT64, (0,)),
    ],
    ids=lambda storage: f"{storage.data_type.name}{list(storage.shape)}",
)
def test_r70_wrong_ids_are_refused_at_bind(stage: LlamaExecutor, storage: Storage) -> None:
    with pytest.raises(WinMLError) as caught:
        stage.bind_input(0, storage)
    assert caught.value.hresult == E_INVALIDARG


def test_r71_missing_ids(stage: LlamaExecutor) -> None:
    stage.bind_input(0, ids([1]))
    stage.bind_input(0, None)
    assert failing_code(stage) == E_INVALIDARG


@pytest.mark.parametrize("tokens", [[303], [-1], [5, 303], [5, -1, 2], [2**40]])
def test_r117_unknown_ids_change_nothing(stage: LlamaExecutor, files: ModelFiles, tokens: list[int]) -> None:
    feed(stage, [1, 2])
    stage.bind_input(0, ids(tokens, INT64))
    assert failing_code(stage) == E_INVALIDARG
    assert position(stage) == 2
    assert feed(stage, [3]) == pytest.approx(feed(build(files.gguf), [1, 2, 3]), abs=1e-4)


# Fresh outputs: memory of the engine until the next run, then their own.


def test_r73_kept_output_keeps_its_values(stage: LlamaExecutor) -> None:
    first = feed(stage, [1, 2, 3])
    kept = stage.output(0)
    feed(stage, [4])
    assert kept.array()[0].tolist() == first.tolist()


def test_fresh_output_is_not_copied(stage: LlamaExecutor) -> None:
    feed(stage, [1])
    first = stage.output(0).address
    feed(stage, [2])
    assert stage.output(0).address == first


def test_s_lif_03_output_outlives_its_stage(stage: LlamaExecutor) -> None:
    expected = feed(stage, [1, 2, 3])
    kept = stage.output(0)
    del stage
    gc.collect()
    assert kept.array()[0].tolist() == expected.tolist()


def test_locked_output_does_not_hinder_the_next_run(stage: LlamaExecutor) -> None:
    feed(stage, [1, 2, 3])
    kept = stage.output(0)
    before = kept.copy().tolist()
    with StorageLock(kept, TensorLockMode.READ):
        feed(stage, [4])
        assert kept.data.tolist() == before


def test_settled_output_moves_once(stage: LlamaExecutor) -> None:
    feed(stage, [1, 2, 3])
    kept = stage.output(0)
    kept.settle()
    address = kept.address
    kept.settle()
    feed(stage, [4])
    assert kept.address == address


def test_fresh_output_bound_as_target_receives_the_next_logits(stage: LlamaExecutor, files: ModelFiles) -> None:
    feed(stage, [1])
    target = stage.output(0)
    stage.bind_output(0, target, False)
    feed(stage, [2])
    assert target.array()[0] == pytest.approx(feed(build(files.gguf), [1, 2]), abs=1e-4)


# Position


def test_discarded_run_leaves_no_trace(stage: LlamaExecutor, files: ModelFiles) -> None:
    feed(stage, [1, 2])
    stage.bind_input(0, ids([9, 9, 9]))
    stage.run()
    stage.discard()
    assert position(stage) == 2
    assert feed(stage, [3]) == pytest.approx(feed(build(files.gguf), [1, 2, 3]), abs=1e-4)


def test_run_after_a_run_that_nobody_committed(stage: LlamaExecutor, files: ModelFiles) -> None:
    stage.bind_input(0, ids([9, 9, 9]))
    stage.run()
    assert feed(stage, [1, 2]) == pytest.approx(feed(build(files.gguf), [1, 2]), abs=1e-4)
    assert position(stage) == 2


@pytest.mark.parametrize("recipe", [recipes.random_gguf, recipes.gemma3_gguf], ids=["attention", "sliding window"])
def test_r103_rewind_and_replay(tmp_path: Path, recipe: Callable[[Path], Path]) -> None:
    stage = build(recipe(tmp_path))
    tokens = PROMPT[:60]
    expected = feed(stage, tokens)
    assert stage.sequence is not None
    for target in (59, 31, 1, 0):
        stage.sequence.rewind(target)
        assert stage.sequence.position == target
        assert feed(stage, tokens[target:]) == pytest.approx(expected, abs=1e-4)


def test_r104_rewind_forward_is_refused(stage: LlamaExecutor) -> None:
    feed(stage, [1, 2])
    assert stage.sequence is not None
    stage.sequence.rewind(2)
    with pytest.raises(WinMLError) as caught:
        stage.sequence.rewind(3)
    assert caught.value.hresult == E_INVALIDARG
    assert position(stage) == 2


# Capacity


@pytest.mark.parametrize("capacity", [1, 2, 255, 256, 257])
def test_s_ctx_06_capacity_is_exactly_the_hint(files: ModelFiles, capacity: int) -> None:
    stage = build(files.gguf, hint=capacity)
    feed(stage, ([1, 2, 3] * 100)[:capacity])
    assert position(stage) == capacity
    stage.bind_input(0, ids([1]))
    assert failing_code(stage) == E_BOUNDS
    assert position(stage) == capacity


def test_s_ctx_01_too_long_a_prompt_is_refused_with_both_numbers(files: ModelFiles) -> None:
    stage = build(files.gguf, hint=8)
    stage.bind_input(0, ids([1] * 9))
    with pytest.raises(WinMLError, match=r"9 tokens.* capacity of 8"):
        stage.run()
    feed(stage, [1, 2, 3])
    assert position(stage) == 3


def test_r106_new_capacity_before_and_after_a_run(stage: LlamaExecutor, files: ModelFiles) -> None:
    assert stage.sequence is not None
    stage.sequence.set_capacity(16)
    assert stage.sequence.capacity == 16
    expected = feed(stage, [1, 2, 3])
    stage.sequence.set_capacity(16)
    assert stage.sequence.position == 3
    stage.sequence.set_capacity(600)  # beyond the declared 512
    assert (stage.sequence.position, stage.sequence.capacity) == (0, 600)
    assert feed(stage, [1, 2, 3]) == pytest.approx(expected, abs=1e-4)


def test_capacity_that_does_not_fit_keeps_the_old_context(stage: LlamaExecutor) -> None:
    feed(stage, [1, 2, 3])
    assert stage.sequence is not None
    with pytest.raises(WinMLError) as caught:
        stage.sequence.set_capacity(2**31 - 1)
    assert caught.value.hresult == NOT_ENOUGH_MEMORY
    assert (stage.sequence.position, stage.sequence.capacity) == (3, 512)
    feed(stage, [4])


@pytest.mark.parametrize("capacity", [0, 2**31])
def test_impossible_capacity(stage: LlamaExecutor, capacity: int) -> None:
    assert stage.sequence is not None
    with pytest.raises(WinMLError) as caught:
        stage.sequence.set_capacity(capacity)
    assert caught.value.hresult == E_INVALIDARG


# Stopping a run


def test_s_lif_08_abort_from_another_thread(files: ModelFiles) -> None:
    stage = build(files.gguf, hint=40_000)
    tokens = PROMPT * 150
    feed(stage, [1, 2])
    stage.bind_input(0, ids(tokens))
    errors: list[WinMLError] = []

    def run() -> None:
        try:
            stage.run()
        except WinMLError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        stage.abort()
        thread.join(0.01)
    assert [error.hresult for error in errors] == [CANCELLED]
    assert position(stage) == 2
    assert feed(stage, [3]) == pytest.approx(feed(build(files.gguf), [1, 2, 3]), abs=1e-4)


def test_abort_without_a_run_does_not_stop_the_next_one(stage: LlamaExecutor) -> None:
    stage.abort()
    feed(stage, [1])
    assert position(stage) == 1


# Several stages


def test_s_lif_06_two_stages_of_one_model_on_two_threads(files: ModelFiles) -> None:
    expected = feed(build(files.gguf), PROMPT[:40])
    results: list[bool] = []

    def work() -> None:
        stage = build(files.gguf)
        for _ in range(10):
            assert stage.sequence is not None
            stage.sequence.reset()
            results.append(bool(np.allclose(feed(stage, PROMPT[:40]), expected, atol=1e-4)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert results == [True] * 20


def test_stages_of_one_file_share_the_model(files: ModelFiles) -> None:
    first, second = build(files.gguf), build(files.gguf, hint=32)
    assert first._sequence.model is second._sequence.model


def test_changed_file_is_loaded_again(tmp_path: Path) -> None:
    path = recipes.random_gguf(tmp_path)
    first = build(path)
    path.unlink()
    path.write_bytes(recipes.scripted_gguf(tmp_path).read_bytes())
    second = build(path)
    assert (first.outputs[0][1], second.outputs[0][1]) == ((1, 303), (1, 331))


# Ctrl-C between a native call and the book-keeping of the position.


@pytest.mark.parametrize(("method", "kept", "expected"), [("truncate", 2, [1, 2, 7]), ("forget", 0, [7])])
def test_s_lif_08_interrupt_behind_a_rewind_costs_nothing_but_tokens(
    stage: LlamaExecutor,
    files: ModelFiles,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kept: int,
    expected: list[int],
) -> None:
    native = getattr(Context, method)

    def interrupted(*arguments: object) -> None:
        native(*arguments)
        raise KeyboardInterrupt

    feed(stage, [1, 2, 3, 4])
    assert stage.sequence is not None
    with monkeypatch.context() as patch:
        patch.setattr(Context, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            stage.sequence.rewind(kept)
    assert position(stage) == kept
    assert feed(stage, [7]) == pytest.approx(feed(build(files.gguf), expected), abs=1e-4)


@pytest.mark.parametrize(("method", "kept", "expected"), [("truncate", 2, [1, 2, 7]), ("forget", 0, [7])])
def test_s_lif_08_interrupt_before_a_rewind_leaves_no_tokens(
    stage: LlamaExecutor,
    files: ModelFiles,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kept: int,
    expected: list[int],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    feed(stage, [1, 2, 3, 4])
    assert stage.sequence is not None
    with monkeypatch.context() as patch:
        patch.setattr(Context, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            stage.sequence.rewind(kept)
    assert feed(stage, [7]) == pytest.approx(feed(build(files.gguf), expected), abs=1e-4)
