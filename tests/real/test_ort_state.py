"""State pairs on the real ONNX Runtime: growing, static, shared, owned by the caller (runtime 20)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.ort_stages import build, count_values, feed, flat, ids, step, tensor
from models import onnx_models
from winml_lite.errors import E_BOUNDS, E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from winml_lite.native.backend import Sequence
from winml_lite.native.ort.executor import OrtExecutor
from winml_lite.storage import Storage, allocate
from winml_lite.values import TensorDataType

pytestmark = pytest.mark.real

FLOAT = TensorDataType.FLOAT32
ATTENTION_PAIRS = ((2, 1), (3, 2))


def growing(**options: Any) -> OrtExecutor:
    stage = build(onnx_models.grow(), state_pairs=((1, 1),), **options)
    stage.bind_output(0, None, True)
    return stage


def static() -> OrtExecutor:
    stage = build(onnx_models.stat(), state_pairs=((1, 1),), capacity_hint=5)
    stage.bind_output(0, None, True)
    return stage


def attention(capacity: int) -> OrtExecutor:
    stage = build(onnx_models.group_query_attention(), state_pairs=ATTENTION_PAIRS, capacity_hint=capacity)
    stage.bind_output(0, None, True)
    return stage


def attend(stage: OrtExecutor, *tokens: int) -> list[float]:
    """Feed tokens with a mask of the whole length; the last row of logits."""
    stage.bind_input(0, ids(*tokens))
    stage.bind_input(1, tensor(np.ones((1, sequence(stage).position + len(tokens))), "int64"))
    step(stage)
    row: list[float] = stage.output(0).array()[0, -1].tolist()
    return row


def sequence(stage: OrtExecutor) -> Sequence:
    assert stage.sequence is not None
    return stage.sequence


def test_r99_growing_state_follows_the_tokens() -> None:
    stage = growing()
    stage.bind_output(1, None, True)
    positions, lengths = [], []
    for tokens in ((1, 2, 3), (4,), (5,)):
        feed(stage, *tokens)
        positions.append(sequence(stage).position)
        lengths.append(stage.output(1).shape[2])
    assert positions == lengths == [3, 4, 5]
    assert flat(stage) == [15]
    assert flat(stage, 1) == [1, 2, 3, 4, 5]


def test_published_state_keeps_its_values() -> None:
    stage = growing()
    stage.bind_output(1, None, True)
    feed(stage, 1, 2)
    kept = stage.output(1)
    feed(stage, 3)
    sequence(stage).rewind(1)
    feed(stage, 9)
    assert kept.array().ravel().tolist() == [1, 2]


def test_state_taken_before_the_commit() -> None:
    stage = growing()
    stage.bind_output(1, None, True)
    stage.bind_input(0, ids(1, 2))
    stage.run()
    kept = stage.output(1)
    stage.commit()
    feed(stage, 3)
    assert kept.array().ravel().tolist() == [1, 2]
    assert flat(stage) == [6]


def test_published_state_in_memory_of_the_caller_is_a_copy() -> None:
    stage = growing()
    target = allocate(FLOAT, (1, 1, 2, 1))
    stage.bind_output(1, target, False)
    feed(stage, 1, 2)
    target.array()[:] = 50
    stage.bind_output(1, None, False)
    feed(stage, 3)
    assert flat(stage) == [6]


def test_published_state_of_another_shape_is_refused() -> None:
    stage = growing()
    stage.bind_output(1, allocate(FLOAT, (1, 1, 2, 1)), False)
    with pytest.raises(WinMLError, match=r"\(1, 1, 3, 1\).*\(1, 1, 2, 1\)") as caught:
        feed(stage, 1, 2, 3)
    assert caught.value.hresult == E_INVALIDARG


def test_discarded_run_leaves_the_old_state() -> None:
    stage = growing()
    feed(stage, 1, 2)
    stage.bind_input(0, ids(100))
    stage.run()
    stage.discard()
    assert sequence(stage).position == 2
    feed(stage, 3)
    assert flat(stage) == [6]


def test_r102_capacity_hint_limits_a_growing_state() -> None:
    assert sequence(growing()).capacity == 0
    stage = growing(capacity_hint=4)
    feed(stage, 1, 2, 3, 4)
    with pytest.raises(WinMLError) as caught:
        feed(stage, 5)
    assert caught.value.hresult == E_BOUNDS
    assert sequence(stage).position == 4


def test_r100_static_state() -> None:
    stage = static()
    for token in range(1, 9):
        feed(stage, token)
    assert flat(stage) == [36]
    with pytest.raises(WinMLError) as caught:
        feed(stage, 9)
    assert caught.value.hresult == E_BOUNDS
    assert sequence(stage).position == 8


def test_r92_r101_capacities() -> None:
    assert (sequence(static()).capacity, sequence(static()).declared_capacity) == (8, 8)
    assert sequence(growing()).declared_capacity is None


def test_static_capacity_cannot_change() -> None:
    stage = static()
    sequence(stage).set_capacity(8)
    with pytest.raises(NotSupportedError) as caught:
        sequence(stage).set_capacity(9)
    assert caught.value.hresult == NOT_SUPPORTED


def test_r103_rewind_reproduces_the_outputs() -> None:
    stage = growing()
    for token in (1, 2, 3, 4, 5):
        feed(stage, token)
    sequence(stage).rewind(2)
    assert sequence(stage).position == 2
    sums = []
    for token in (3, 4, 5):
        feed(stage, token)
        sums += flat(stage)
    assert sums == [6, 10, 15]


def test_r104_rewind_bounds() -> None:
    stage = growing()
    feed(stage, 1, 2)
    sequence(stage).rewind(2)
    with pytest.raises(WinMLError) as caught:
        sequence(stage).rewind(3)
    assert caught.value.hresult == E_INVALIDARG
    assert sequence(stage).position == 2


def test_rewind_of_a_static_state_moves_the_position_only() -> None:
    stage = static()
    feed(stage, 1, 2, 3)
    sequence(stage).rewind(1)
    feed(stage, 4)
    assert (sequence(stage).position, flat(stage)) == (2, [10])


def test_r105_reset_drops_the_state_and_keeps_bindings() -> None:
    for stage in (growing(), static()):
        feed(stage, 1, 2, 3)
        sequence(stage).reset()
        assert sequence(stage).position == 0
        step(stage)
        assert flat(stage) == [6]


def test_r106_capacity_after_a_run_drops_the_state() -> None:
    stage = growing()
    sequence(stage).set_capacity(10)
    feed(stage, 1, 2, 3)
    sequence(stage).set_capacity(10)
    assert sequence(stage).position == 3
    with pytest.raises(WinMLError) as caught:
        sequence(stage).set_capacity(2)
    assert caught.value.hresult == E_INVALIDARG
    sequence(stage).set_capacity(20)
    assert sequence(stage).position == 0
    feed(stage, 4)
    assert flat(stage) == [4]


def test_r107_managed_state_cannot_be_bound() -> None:
    with pytest.raises(WinMLError) as caught:
        growing().bind_input(1, allocate(FLOAT, (1, 1, 0, 1)))
    assert caught.value.hresult == E_INVALIDARG


@pytest.mark.parametrize("pair", [(9, 1), (1, 9), (0, 1)])
def test_pairs_that_do_not_fit_fail_the_build(pair: tuple[int, int]) -> None:
    with pytest.raises(WinMLError, match="state tensor pair") as caught:
        build(onnx_models.grow(), state_pairs=(pair,))
    assert caught.value.hresult == E_INVALIDARG


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_s_ctx_07_any_split_of_the_prompt(chunk: int) -> None:
    stage = build(onnx_models.sum_state(), state_pairs=((1, 1),))
    stage.bind_output(0, None, True)
    prompt = (1, 2, 3)
    for start in range(0, 3, chunk):
        feed(stage, *prompt[start : start + chunk])
    tokens = [int(stage.output(0).array()[0, -1].argmax())]
    for _ in range(4):
        feed(stage, tokens[-1])
        tokens.append(int(stage.output(0).array()[0, -1].argmax()))
    assert tokens == [6, 4, 0, 0, 0]


def test_shared_and_swapped_state_agree() -> None:
    swapped, shared = attention(0), attention(16)
    for tokens in ((1, 2, 3), (4,), (5,), (6, 7)):
        assert attend(swapped, *tokens) == pytest.approx(attend(shared, *tokens), abs=1e-6)
    assert sequence(swapped).position == sequence(shared).position == 7


def test_shared_state_rewinds_by_position() -> None:
    stage = attention(16)
    attend(stage, 1, 2, 3)
    before = [attend(stage, 4), attend(stage, 5)]
    sequence(stage).rewind(3)
    assert [attend(stage, 4), attend(stage, 5)] == before


def test_shared_state_is_published_as_a_copy_of_what_is_used() -> None:
    swapped, shared = attention(0), attention(16)
    for stage in (swapped, shared):
        stage.bind_output(1, None, True)
        attend(stage, 1, 2, 3)
    kept = shared.output(1)
    assert kept.shape == (1, 1, 3, 8)
    assert kept.array().tolist() == swapped.output(1).array().tolist()


def test_shared_state_in_memory_of_the_caller() -> None:
    shared = attention(16)
    target = allocate(FLOAT, (1, 1, 3, 8))
    shared.bind_output(1, target, False)
    attend(shared, 1, 2, 3)
    swapped = attention(0)
    swapped.bind_output(1, None, True)
    attend(swapped, 1, 2, 3)
    assert target.array().tolist() == swapped.output(1).array().tolist()


def test_shared_state_after_reset_and_new_capacity() -> None:
    stage = attention(16)
    first = attend(stage, 1, 2, 3)
    sequence(stage).reset()
    assert attend(stage, 1, 2, 3) == first
    sequence(stage).set_capacity(32)
    assert attend(stage, 1, 2, 3) == first


def test_shared_state_respects_the_capacity() -> None:
    stage = attention(4)
    attend(stage, 1, 2, 3, 4)
    with pytest.raises(WinMLError) as caught:
        attend(stage, 5)
    assert caught.value.hresult == E_BOUNDS


@pytest.mark.parametrize(("tokens", "length"), [((4,), 1), ((4,), 3), ((4, 5), 4)])
def test_a_mask_that_is_too_short_for_shared_state_is_refused(tokens: tuple[int, ...], length: int) -> None:
    stage, other = attention(16), attention(16)
    for each in (stage, other):
        attend(each, 1, 2, 3)
    stage.bind_input(0, ids(*tokens))
    stage.bind_input(1, tensor(np.ones((1, length)), "int64"))
    with pytest.raises(WinMLError, match=f"total_length is {length} in the inputs.* after 3 are") as caught:
        step(stage)
    assert caught.value.hresult == E_INVALIDARG
    assert sequence(stage).position == 3
    assert attend(stage, 4, 5) == attend(other, 4, 5)


def test_a_mask_that_stays_while_shared_state_goes_on_is_refused() -> None:
    stage = attention(16)
    attend(stage, 1, 2, 3)
    for _ in range(2):
        with pytest.raises(WinMLError, match="total_length is 3 in the inputs, but 3 more positions after 3 are 6"):
            step(stage)
    assert sequence(stage).position == 3


def test_a_present_that_is_named_after_the_tokens_says_nothing_of_masks() -> None:
    model = onnx_models.group_query_attention()
    for port, axis in ((model.graph.input[0], 1), (model.graph.output[1], 2), (model.graph.output[2], 2)):
        port.type.tensor_type.shape.dim[axis].dim_param = "length"
    stage, other = build(model, state_pairs=ATTENTION_PAIRS, capacity_hint=16), attention(16)
    stage.bind_output(0, None, True)
    for tokens in ((1, 2, 3), (4,)):
        assert attend(stage, *tokens) == attend(other, *tokens)


def test_a_mask_of_the_whole_capacity_hides_what_is_not_there_yet() -> None:
    stage, other = attention(16), attention(16)
    mask = tensor(np.ones((1, 16)), "int64")
    mask.array()[0, 3:] = 0
    stage.bind_input(0, ids(1, 2, 3))
    stage.bind_input(1, mask)
    step(stage)
    assert stage.output(0).array()[0, -1].tolist() == pytest.approx(attend(other, 1, 2, 3), abs=1e-6)


def test_shared_state_makes_no_values_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = attention(64)
    stage.bind_output(0, allocate(FLOAT, (1, 1, 16)), False)
    tokens, mask = ids(1), tensor(np.ones((1, 64)), "int64")
    mask.array()[0, 1:] = 0
    stage.bind_input(0, tokens)
    stage.bind_input(1, mask)
    step(stage)
    made = count_values(monkeypatch)
    for position in range(1, 10):
        tokens.array()[:] = position
        mask.array()[0, position] = 1
        step(stage)
    assert (made, sequence(stage).position) == ([], 10)


def test_growing_state_makes_no_values_of_ours_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = growing()
    stage.bind_input(0, ids(1))
    step(stage)
    made = count_values(monkeypatch)
    for _ in range(5):
        step(stage)
    assert (made, sequence(stage).position, flat(stage)) == ([], 6, [6])


def test_batch_comes_from_the_inputs() -> None:
    for capacity in (0, 8):
        stage = attention(capacity)
        stage.bind_input(0, tensor([[1, 2], [1, 2]], "int64"))
        stage.bind_input(1, tensor(np.ones((2, 2)), "int64"))
        step(stage)
        assert stage.output(0).shape == (2, 2, 16)
        stage.bind_input(0, tensor([[3], [3]], "int64"))
        stage.bind_input(1, tensor(np.ones((2, 3)), "int64"))
        step(stage)
        rows = stage.output(0).array()
        assert rows[0].tolist() == rows[1].tolist()


def test_another_batch_needs_a_reset() -> None:
    for capacity in (0, 8):
        stage = attention(capacity)
        attend(stage, 1, 2)
        stage.bind_input(0, tensor([[3], [3]], "int64"))
        stage.bind_input(1, tensor(np.ones((2, 3)), "int64"))
        with pytest.raises(WinMLError, match=r"batch = 1.*reset first") as caught:
            stage.run()
        assert caught.value.hresult == E_INVALIDARG
        sequence(stage).reset()
        stage.bind_input(1, tensor(np.ones((2, 1)), "int64"))
        step(stage)
        assert stage.output(0).shape == (2, 1, 16)


# State of the caller


def test_r108_state_of_the_caller_stays_in_place() -> None:
    stage = build(onnx_models.stat(), state_pairs=((1, 1),), caller_owns_state=True)
    state = allocate(FLOAT, (1, 1, 8, 1))
    stage.bind_input(1, state)
    feed(stage, 1, 2)
    feed(stage, 3)
    assert state.array().ravel().tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert stage.output(1) is state
    assert stage.sequence is None


def test_r109_rotation_to_another_tensor() -> None:
    stage = build(onnx_models.grow(), state_pairs=((1, 1),), caller_owns_state=True)
    past, present = allocate(FLOAT, (1, 1, 1, 1)), allocate(FLOAT, (1, 1, 2, 1))
    stage.bind_input(1, past)
    stage.bind_output(1, present, False)
    feed(stage, 7)
    assert past.array().ravel().tolist() == [0]
    assert present.array().ravel().tolist() == [0, 7]


def test_growing_state_of_the_caller_needs_an_output() -> None:
    stage = build(onnx_models.grow(), state_pairs=((1, 1),), caller_owns_state=True)
    stage.bind_input(1, allocate(FLOAT, (1, 1, 1, 1)))
    with pytest.raises(WinMLError) as caught:
        feed(stage, 7)
    assert caught.value.hresult == E_INVALIDARG


def test_discarded_run_leaves_the_state_of_the_caller() -> None:
    stage = build(onnx_models.stat(), state_pairs=((1, 1),), caller_owns_state=True)
    state = allocate(FLOAT, (1, 1, 8, 1))
    stage.bind_input(1, state)
    stage.bind_input(0, ids(1))
    stage.run()
    stage.discard()
    assert state.array().max() == 0


def test_shareable_state_of_the_caller_is_written_directly() -> None:
    stage = build(onnx_models.group_query_attention(), state_pairs=ATTENTION_PAIRS, caller_owns_state=True)
    key, value = allocate(FLOAT, (1, 1, 8, 8)), allocate(FLOAT, (1, 1, 8, 8))
    stage.bind_input(2, key)
    stage.bind_input(3, value)
    stage.bind_output(0, None, True)
    managed = attention(8)
    for length, tokens in ((3, (1, 2, 3)), (4, (4,))):
        stage.bind_input(0, ids(*tokens))
        stage.bind_input(1, tensor(np.ones((1, length)), "int64"))
        step(stage)
        assert stage.output(0).array()[0, -1].tolist() == attend(managed, *tokens)
    assert np.count_nonzero(key.array()) == 4 * 8
    assert stage.output(1) is key


def test_read_only_state_of_the_caller_is_refused() -> None:
    stage = build(onnx_models.stat(), state_pairs=((1, 1),), caller_owns_state=True)
    stage.bind_input(1, Storage(np.zeros(32, np.uint8), FLOAT, (1, 1, 8, 1), writable=False))
    with pytest.raises(WinMLError, match="read-only") as caught:
        feed(stage, 1)
    assert caught.value.hresult == E_INVALIDARG
