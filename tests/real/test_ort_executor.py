"""Bindings, runs and outputs of a stage on the real ONNX Runtime (runtime 7, 12.1, 19)."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from fakes.ort_stages import build, count_values, flat, step, tensor
from fakes.rig import failing
from fakes.waiting import again_and_again
from models import onnx_models
from winml_lite.errors import CANCELLED, E_INVALIDARG, E_NOT_VALID_STATE, NOT_FOUND, NOT_SUPPORTED, WinMLError
from winml_lite.native.ort.executor import OrtExecutor
from winml_lite.storage import Storage, allocate
from winml_lite.values import FREE_DIMENSION, TensorDataType

pytestmark = pytest.mark.real

FLOAT = TensorDataType.FLOAT32


def added() -> OrtExecutor:
    stage = build(onnx_models.add())
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_input(1, tensor([10, 20]))
    return stage


def test_descriptors_are_those_of_the_session() -> None:
    stage = build(onnx_models.dyn1())
    assert stage.inputs == ((FLOAT, (FREE_DIMENSION, 3)),)
    assert stage.outputs == ((FLOAT, (FREE_DIMENSION, 3)),)


def test_r57_fresh_output() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    step(stage)
    assert flat(stage) == [11, 22]


def test_r60_caller_bound_output_is_written_in_place() -> None:
    stage = added()
    target = allocate(FLOAT, (2,))
    stage.bind_output(0, target, False)
    step(stage)
    assert target.array().tolist() == [11, 22]
    assert stage.output(0) is target


def test_contents_are_read_at_each_run() -> None:
    stage = added()
    first = tensor([1, 2])
    stage.bind_input(0, first)
    stage.bind_output(0, None, True)
    step(stage)
    first.array()[:] = [5, 6]
    step(stage)
    assert flat(stage) == [15, 26]


def test_r69_rebinding_one_input_changes_only_that_operand() -> None:
    stage = added()
    target = allocate(FLOAT, (2,))
    stage.bind_output(0, target, False)
    step(stage)
    stage.bind_input(0, tensor([3, 4]))
    step(stage)
    assert target.array().tolist() == [13, 24]


def test_a_new_tensor_at_the_same_address_is_seen() -> None:
    # A value is often made where one was just freed; the binding must not take it for the old one.
    stage = added()
    target = allocate(FLOAT, (2,))
    stage.bind_output(0, target, False)
    sums = []
    for number in range(50):
        stage.bind_input(0, tensor([number, number]))
        step(stage)
        sums.append(target.array().tolist())
    assert sums == [[10.0 + number, 20.0 + number] for number in range(50)]


def test_r62_only_one_of_two_outputs() -> None:
    stage = build(onnx_models.two())
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(1, None, True)
    step(stage)
    assert flat(stage, 1) == [-1, -2]
    with pytest.raises(WinMLError) as caught:
        stage.output(0)
    assert caught.value.hresult == NOT_FOUND


def test_one_output_bound_and_one_fresh() -> None:
    stage = build(onnx_models.two())
    target = allocate(FLOAT, (2,))
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(0, target, False)
    stage.bind_output(1, None, True)
    step(stage)
    assert target.array().tolist() == [2, 4]
    assert flat(stage, 1) == [-1, -2]


def test_nothing_published_still_runs() -> None:
    step(added())


def test_r73_earlier_outputs_keep_their_values() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    step(stage)
    kept = stage.output(0)
    stage.bind_input(0, tensor([100, 200]))
    step(stage)
    assert kept.array().tolist() == [11, 22]
    assert flat(stage) == [110, 220]


def test_fresh_output_outlives_the_stage() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    step(stage)
    array = stage.output(0).array()
    del stage
    gc.collect()
    assert array.tolist() == [11, 22]


def test_output_of_one_run_is_one_storage() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    step(stage)
    assert stage.output(0) is stage.output(0)


def test_r59_nothing_produced_yet() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    with pytest.raises(WinMLError) as caught:
        stage.output(0)
    assert caught.value.hresult == E_NOT_VALID_STATE


def test_r71_missing_binding_names_the_input() -> None:
    stage = build(onnx_models.add())
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(0, None, True)
    with pytest.raises(WinMLError, match="input 1 'B' is not bound") as caught:
        stage.run()
    assert caught.value.hresult == E_INVALIDARG


def test_r74_outputs_are_gone_after_a_failing_run() -> None:
    stage = added()
    stage.bind_output(0, None, True)
    step(stage)
    stage.bind_input(1, None)
    with pytest.raises(WinMLError):
        stage.run()
    with pytest.raises(WinMLError) as caught:
        stage.output(0)
    assert caught.value.hresult == E_NOT_VALID_STATE


@pytest.mark.parametrize("wrong", [tensor([1, 2], "int64"), tensor([[1, 2]]), tensor([1, 2, 3]), tensor(1)])
def test_r70_wrong_input_is_refused_at_bind(wrong: Storage) -> None:
    with pytest.raises(WinMLError) as caught:
        build(onnx_models.add()).bind_input(0, wrong)
    assert caught.value.hresult == E_INVALIDARG


def test_r72_read_only_output_is_refused() -> None:
    target = Storage(np.zeros(8, np.uint8), FLOAT, (2,), writable=False)
    with pytest.raises(WinMLError) as caught:
        added().bind_output(0, target, False)
    assert caught.value.hresult == E_INVALIDARG


def test_read_only_input_is_fine() -> None:
    stage = added()
    stage.bind_input(0, Storage(tensor([3, 4]).data, FLOAT, (2,), writable=False))
    stage.bind_output(0, None, True)
    step(stage)
    assert flat(stage) == [13, 24]


def test_r138_shapes_may_change_between_runs() -> None:
    stage = build(onnx_models.dyn1())
    stage.bind_output(0, None, True)
    stage.bind_input(0, tensor([[1, 2, 3]]))
    step(stage)
    assert stage.output(0).shape == (1, 3)
    stage.bind_input(0, tensor(np.ones((7, 3))))
    step(stage)
    assert stage.output(0).shape == (7, 3)


def test_empty_tensor() -> None:
    stage = build(onnx_models.dyn1())
    stage.bind_output(0, None, True)
    stage.bind_input(0, tensor(np.ones((0, 3))))
    step(stage)
    assert stage.output(0).shape == (0, 3)
    assert stage.output(0).data.size == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_r142_bound_output_of_another_shape(rows: int) -> None:
    stage = build(onnx_models.dyn1())
    stage.bind_input(0, tensor(np.ones((2, 3))))
    stage.bind_output(0, allocate(FLOAT, (rows, 3)), False)
    with pytest.raises(WinMLError) as caught:
        stage.run()
    said = f"output 'Y' was produced with shape (2, 3), the bound tensor has ({rows}, 3); bind a tensor of that shape"
    assert str(caught.value.native_message).startswith(said)
    assert caught.value.hresult == E_INVALIDARG


def test_r139_override_fixes_the_built_schema() -> None:
    stage = build(onnx_models.dyn1(), dimension_overrides=(("N", 4), ("unknown", 2)))
    assert stage.inputs == ((FLOAT, (4, 3)),)
    assert stage.outputs == ((FLOAT, (4, 3)),)
    with pytest.raises(WinMLError) as caught:
        stage.bind_input(0, tensor(np.ones((5, 3))))
    assert caught.value.hresult == E_INVALIDARG


def test_inputs_that_share_a_symbol_must_agree() -> None:
    stage = build(onnx_models.same_symbol())
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_input(1, tensor([1, 2, 3]))
    stage.bind_output(0, None, True)
    with pytest.raises(WinMLError, match="N is 3 in 'B' and 2 in another input") as caught:
        stage.run()
    assert caught.value.hresult == E_INVALIDARG
    stage.bind_input(1, tensor([10, 20]))
    step(stage)
    assert flat(stage) == [33]


def test_input_that_is_no_tensor_is_refused_by_build() -> None:
    with pytest.raises(WinMLError, match="input 0 'X': the model declares a tensor of STRING there") as caught:
        build(onnx_models.text_input())
    assert caught.value.hresult == NOT_SUPPORTED


def test_output_that_is_no_tensor_stays_unused() -> None:
    stage = build(onnx_models.text_output())
    assert stage.outputs == ((TensorDataType.UNDEFINED, ()), (FLOAT, (FREE_DIMENSION,)))
    with pytest.raises(WinMLError, match=r"output 0 'T'.: the model declares a tensor of STRING") as caught:
        stage.bind_output(0, None, True)
    assert caught.value.hresult == NOT_SUPPORTED
    with pytest.raises(WinMLError) as caught:
        stage.bind_output(0, allocate(FLOAT, (2,)), True)
    assert caught.value.hresult == E_INVALIDARG
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(1, None, True)
    step(stage)
    assert stage.output(1).array().tolist() == [-1, -2]


def test_output_that_is_an_input_is_copied() -> None:
    stage = build(onnx_models.pass_through())
    source = tensor([1, 2])
    stage.bind_input(0, source)
    stage.bind_output(0, None, True)
    step(stage)
    kept = stage.output(0)
    source.array()[:] = [3, 4]
    assert kept.array().tolist() == [1, 2]


def test_output_that_is_an_input_reaches_the_caller() -> None:
    stage = build(onnx_models.pass_through())
    target = allocate(FLOAT, (2,))
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(0, target, False)
    step(stage)
    assert target.array().tolist() == [1, 2]


def test_output_of_one_stage_feeds_another() -> None:
    first, second = build(onnx_models.inc()), build(onnx_models.inc())
    first.bind_input(0, tensor([5], "int64"))
    first.bind_output(0, None, True)
    second.bind_output(0, None, True)
    first.run()
    second.bind_input(0, first.output(0))
    second.run()
    first.commit()
    second.commit()
    assert flat(second) == [7]


def test_stable_bindings_make_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = added()
    stage.bind_output(0, allocate(FLOAT, (2,)), False)
    step(stage)
    made = count_values(monkeypatch)
    for _ in range(10):
        step(stage)
    assert made == []


def test_rebinding_makes_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = added()
    stage.bind_output(0, allocate(FLOAT, (2,)), False)
    step(stage)
    made = count_values(monkeypatch)
    fresh = tensor([1, 1])
    for _ in range(3):
        stage.bind_input(0, fresh)
        step(stage)
    assert made == [fresh]


def test_abort_stops_a_run_and_the_stage_goes_on() -> None:
    stage = build(onnx_models.slow())
    stage.bind_input(0, tensor(np.zeros((64, 64))))
    stage.bind_output(0, None, True)
    with again_and_again(stage.abort), pytest.raises(WinMLError) as caught:
        stage.run()
    assert caught.value.hresult == CANCELLED
    stage.abort()  # nothing runs: no effect on the next run
    quick = build(onnx_models.slow(rounds=3))
    quick.bind_input(0, tensor(np.zeros((64, 64))))
    quick.bind_output(0, None, True)
    step(quick)
    assert quick.output(0).shape == (64, 64)


def test_abort_leaves_the_same_stage_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = build(onnx_models.slow(rounds=1000))
    stage.bind_input(0, tensor(np.zeros((64, 64))))
    stage.bind_output(0, None, True)
    step(stage)
    invoke = stage._invoke

    def aborted() -> int | None:
        stage.abort()
        return invoke()

    with monkeypatch.context() as patch, failing(CANCELLED):
        patch.setattr(stage, "_invoke", aborted)
        stage.run()
    step(stage)
    assert stage.output(0).array().max() == 0


def test_two_stages_run_in_two_threads() -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        stage = build(onnx_models.add())
        stage.bind_output(0, None, True)
        stage.bind_input(1, tensor([10, 20]))
        for value in range(200):
            stage.bind_input(0, tensor([value, number]))
            step(stage)
        results[number] = flat(stage)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1: [209, 21], 2: [209, 22]}


def test_request_after_a_bound_run_waits_for_the_next_run() -> None:
    stage = added()
    target = allocate(FLOAT, (2,))
    stage.bind_output(0, target, False)
    step(stage)
    stage.bind_output(0, None, True)
    with pytest.raises(WinMLError) as caught:
        stage.output(0)
    assert caught.value.hresult == E_NOT_VALID_STATE
    step(stage)
    assert flat(stage) == [11, 22]
    assert target.array().tolist() == [11, 22]
