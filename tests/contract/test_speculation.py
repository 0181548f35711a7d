"""Speculative decoding: options, steps over several positions, what is kept of them, drafts. Statements 89, 94-98 and
120-127 of the object model.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np
import pytest

from fakes.backend import Block, Script
from fakes.decoders import IDS, Decoder, last_row_onnx, llama_decoder, onnx_decoder, random_onnx
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, integers, running
from winml_lite import (
    NotSupportedError,
    PipelineBuilder,
    Runtime,
    SequenceCapacityDisclosure,
    SpeculativeCapabilities,
    SpeculativeResidency,
    SpeculativeRollbackBound,
    Stage,
    TensorAccessMode,
    TensorDataType,
    TensorLockMode,
    WinMLError,
)

TOLERANCE = 1e-3


def unbuilt(runtime: Runtime, path: str) -> tuple[PipelineBuilder, Stage]:
    builder = runtime.create_pipeline_builder()
    return builder, builder.add_model_stage(runtime.load_model(path))


def rows(view: memoryview) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.asarray(view)


# Values


def test_the_enumerations_have_the_numbers_of_the_contract() -> None:
    assert [(m.name, m.value) for m in SpeculativeRollbackBound] == [
        ("UNKNOWN", 0),
        ("UNSUPPORTED", 1),
        ("UNBOUNDED", 2),
        ("BOUNDED", 3),
    ]
    assert [(m.name, m.value) for m in SpeculativeResidency] == [
        ("UNKNOWN", 0),
        ("HOST", 1),
        ("DEVICE_WITH_HOST_READBACK", 2),
    ]
    assert [(m.name, m.value) for m in SequenceCapacityDisclosure] == [("UNKNOWN", 0), ("ARTIFACT_DECLARED", 1)]


def test_capabilities_are_frozen_and_drafts_default_to_none() -> None:
    capabilities = SpeculativeCapabilities(4, 4, SpeculativeRollbackBound.UNBOUNDED, 0, SpeculativeResidency.HOST)
    assert capabilities.max_draft_tokens == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        capabilities.max_draft_tokens = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("width", "row_count", "expected"), [(2, 2, True), (1, 2, False), (2, 1, False), (9, 0, False)]
)
def test_r127_verifying_needs_both_widths(width: int, row_count: int, expected: bool) -> None:
    bound, residency = SpeculativeRollbackBound.UNKNOWN, SpeculativeResidency.UNKNOWN
    assert SpeculativeCapabilities(width, row_count, bound, 0, residency).can_verify is expected


# Options


def test_r89_the_predictor_flag_is_a_bool(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with pytest.raises(ValueError):
        stage.model_draft_predictor_enabled = 1  # type: ignore[assignment]
    assert stage.model_draft_predictor_enabled is False


def test_the_draft_limit_is_an_unsigned_number(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    assert stage.draft_token_limit_hint == 0
    stage.draft_token_limit_hint = 5
    assert stage.draft_token_limit_hint == 5
    with pytest.raises(TypeError):
        stage.draft_token_limit_hint = True
    with pytest.raises(ValueError):
        stage.draft_token_limit_hint = -1


def test_r91_draft_options_are_fixed_by_build(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder, stage = unbuilt(runtime, files.gguf)
    stage.draft_token_limit_hint = 3
    builder.build()
    with failing(0x8007139F):
        stage.draft_token_limit_hint = 4
    with failing(0x8007139F):
        stage.model_draft_predictor_enabled = True
    with failing(0x8007139F):
        stage.draft_predictor_path = None
    assert stage.draft_token_limit_hint == 3
    assert stage.model_draft_predictor_enabled is False
    assert stage.draft_predictor_path is None


def test_r94_a_predictor_needs_a_limit(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder, stage = unbuilt(runtime, files.gguf)
    stage.model_draft_predictor_enabled = True
    with failing(0x80070057):
        builder.build()
    stage.draft_token_limit_hint = 3
    builder.build()
    assert stage.speculative_capabilities.max_draft_tokens == 0


def test_r95_a_predictor_file_needs_the_predictor(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder, stage = unbuilt(runtime, files.gguf)
    stage.draft_predictor_path = "x.gguf"
    assert stage.draft_predictor_path == "x.gguf"
    with failing(0x80070057):
        builder.build()
    stage.draft_predictor_path = ""
    assert stage.draft_predictor_path is None


def test_r95_a_predictor_file_is_a_path(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with pytest.raises(ValueError):
        stage.draft_predictor_path = 5  # type: ignore[assignment]


def test_r96_onnx_stages_run_no_companion(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder, stage = unbuilt(runtime, files.onnx("grow"))
    stage.draft_token_limit_hint = 3
    stage.model_draft_predictor_enabled = True
    stage.draft_predictor_path = "x.gguf"
    with failing(0x80070032):
        builder.build()


def test_gguf_stages_run_no_companion_either(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder, stage = unbuilt(runtime, files.gguf)
    stage.draft_token_limit_hint = 3
    stage.model_draft_predictor_enabled = True
    stage.draft_predictor_path = "x.gguf"
    with failing(0x80070032):
        builder.build()


def test_a_graph_has_no_predictor(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder, stage = unbuilt(runtime, files.onnx("sum_slots"))
    stage.add_state_tensor_pair(1, 1)
    stage.draft_token_limit_hint = 3
    stage.model_draft_predictor_enabled = True
    builder.build()
    assert stage.speculative_capabilities.max_draft_tokens == 0


# Before build, and without steps


def test_r97_nothing_before_build(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with failing(0x8007139F):
        _ = stage.speculative_capabilities
    with failing(0x8007139F):
        stage.step_all_positions([1])
    with failing(0x8007139F):
        stage.commit_accepted_prefix(0)
    with failing(0x8007139F):
        stage.propose_draft_tokens(1, 1)


def test_r98_a_stateless_stage_has_no_steps(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("add"))
    with failing(0x80070032, NotSupportedError):
        _ = stage.speculative_capabilities
    with failing(0x80070032, NotSupportedError):
        stage.step_all_positions([1])
    with failing(0x80070032, NotSupportedError):
        stage.commit_accepted_prefix(0)
    with failing(0x80070032, NotSupportedError):
        stage.propose_draft_tokens(1, 1)


def test_a_graph_with_the_last_row_only_cannot_verify(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    last_row = onnx_decoder(runtime, last_row_onnx(files), 16)
    capabilities = last_row.stage.speculative_capabilities
    assert capabilities.max_proposed_step_width == 16
    assert capabilities.max_logit_rows_per_step == 0
    assert capabilities.can_verify is False
    with failing(0x80070032, NotSupportedError):
        last_row.step(5, 9)
    assert last_row.stage.sequence_position == 0


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
def test_a_converted_graph_gives_the_rows_of_short_steps(
    runtime: Runtime, files: ModelFiles, ort: None, operators: str
) -> None:
    short = onnx_decoder(runtime, random_onnx(files, operators, all_logits=False), 64)
    full = onnx_decoder(runtime, random_onnx(files, operators), 64)
    assert short.stage.speculative_capabilities.max_proposed_step_width == 64
    assert short.stage.speculative_capabilities.max_logit_rows_per_step == 17
    ids = (*IDS, *IDS, 5)
    np.testing.assert_allclose(rows(short.step(*ids)), rows(full.step(*ids)), atol=TOLERANCE)
    assert short.stage.sequence_position == 17
    with failing(0x80070057):
        short.step(*ids, 9)
    assert short.stage.sequence_position == 17


def test_a_converted_graph_gives_one_row_of_a_run(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    decoder = onnx_decoder(runtime, random_onnx(files, "gqa", all_logits=False), 64)
    decoder.bind(*IDS)
    decoder.pipeline.run()
    assert decoder.stage.output(0).desc()[1] == (1, 1, 303)


def test_a_step_needs_inputs_that_no_stage_feeds(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder = runtime.create_pipeline_builder()
    slots = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    stage = builder.add_model_stage(runtime.load_model(files.onnx("sum_slots")))
    stage.add_state_tensor_pair(1, 1)
    builder.connect(slots, 0, stage, 2)
    builder.build()
    with failing(0x80070032, NotSupportedError) as caught:
        stage.step_all_positions([1])
    assert "input 2" in str(caught.value)


# Capabilities


def test_capabilities_of_decoders(decoder: Decoder) -> None:
    capabilities = decoder.stage.speculative_capabilities
    assert capabilities.max_proposed_step_width == (decoder.stage.sequence_capacity or 0xFFFFFFFF)
    assert capabilities.max_logit_rows_per_step == capabilities.max_proposed_step_width
    assert capabilities.rollback_bound is SpeculativeRollbackBound.UNBOUNDED
    assert capabilities.max_rollback_depth == 0
    assert capabilities.residency is SpeculativeResidency.HOST
    assert capabilities.can_verify is True


def test_the_width_is_that_of_a_batch(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    builder, stage = unbuilt(runtime, files.gguf)
    stage.llama_options().batch_size = 8
    builder.build()
    assert stage.speculative_capabilities.max_proposed_step_width == 8
    with failing(0x80070057):
        stage.step_all_positions(range(9))
    assert stage.sequence_position == 0


# Steps


def test_r120_tokens_are_checked_before_the_stage(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    stage.close()
    with pytest.raises(ValueError):
        stage.step_all_positions([])
    with pytest.raises(TypeError):
        stage.step_all_positions([True])
    with pytest.raises(TypeError):
        stage.step_all_positions([1.0])  # type: ignore[list-item]
    with pytest.raises(ValueError):
        stage.step_all_positions([-1])
    with pytest.raises(ValueError):
        stage.step_all_positions([2**31])
    with pytest.raises(RuntimeError):
        stage.step_all_positions([2**31 - 1])


@pytest.mark.parametrize("values", [[-1], [2**31], []])
def test_r120_arrays_are_checked_too(runtime: Runtime, files: ModelFiles, values: list[int]) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with pytest.raises(ValueError):
        stage.step_all_positions(np.array(values, np.int64))


@pytest.mark.parametrize("values", [[True], [1.0], [[1]]])
def test_r120_arrays_of_other_things_are_no_tokens(runtime: Runtime, files: ModelFiles, values: list[object]) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with pytest.raises(TypeError):
        stage.step_all_positions(np.array(values))


def test_r121_a_step_gives_the_rows_of_single_runs(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS[:6])
    decoder.pipeline.reset()
    decoder.run(*IDS[:2])
    view = decoder.step(*IDS[2:6])
    assert view.shape == (4, expected[0].size)
    assert view.format == "f"
    assert view.c_contiguous
    assert decoder.stage.sequence_position == 6
    np.testing.assert_allclose(rows(view), expected[2:6], atol=TOLERANCE)


def test_r121_a_step_may_begin_a_sequence(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS[:3])
    decoder.pipeline.reset()
    np.testing.assert_allclose(rows(decoder.step(*IDS[:3])), expected, atol=TOLERANCE)


def test_r121_steps_are_cut_into_batches(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    # a batch has room for 32 rows of logits
    wide = llama_decoder(runtime, files.gguf, 128)
    tokens = [(7 * index) % 300 for index in range(70)]
    expected = wide.one_by_one(*tokens)
    wide.pipeline.reset()
    view = wide.step(*tokens)
    assert wide.stage.sequence_position == 70
    np.testing.assert_allclose(rows(view), expected, atol=TOLERANCE)


def test_tokens_may_be_an_array(decoder: Decoder) -> None:
    decoder.bind_rest(3)
    listed = rows(decoder.stage.step_all_positions(IDS[:3])).copy()
    decoder.pipeline.reset()
    decoder.bind_rest(3)
    np.testing.assert_array_equal(rows(decoder.stage.step_all_positions(np.array(IDS[:3], np.uint16))), listed)


def test_runs_go_on_behind_a_step(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS)
    decoder.pipeline.reset()
    decoder.run(*IDS[:2])
    decoder.step(*IDS[2:6])
    np.testing.assert_allclose(decoder.run(*IDS[6:]), expected[7], atol=TOLERANCE)


def test_r122_the_rows_stay(decoder: Decoder) -> None:
    view = decoder.step(*IDS[:4])
    before = rows(view).copy()
    decoder.stage.rewind(1)
    decoder.run(*IDS[4:6])
    decoder.step(*IDS[:2])
    decoder.stage.close()
    decoder.pipeline.close()
    np.testing.assert_array_equal(rows(view), before)


def test_a_step_leaves_the_output(decoder: Decoder) -> None:
    row = decoder.run(*IDS[:2])
    held = decoder.stage.output(0)
    decoder.step(*IDS[2:6])
    np.testing.assert_array_equal(decoder.row(), row)
    np.testing.assert_array_equal(held.to_numpy().reshape(-1, row.size)[-1], row)


def test_a_step_leaves_an_output_that_nobody_has_looked_at(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS[:2])
    decoder.pipeline.reset()
    decoder.bind(*IDS[:2])
    decoder.pipeline.run()
    decoder.step(*IDS[2:6])
    np.testing.assert_allclose(decoder.row(), expected[1], atol=TOLERANCE)


def test_a_step_leaves_a_locked_output(decoder: Decoder) -> None:
    row = decoder.run(*IDS[:2])
    with decoder.stage.output(0).lock(TensorLockMode.READ) as lock:
        decoder.step(*IDS[2:6])
        np.testing.assert_array_equal(np.frombuffer(lock.data(), np.float32)[-row.size :], row)


def test_a_step_leaves_a_bound_output(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    caller = llama_decoder(runtime, files.gguf, 16)
    target = runtime.tensor_from_numpy(np.zeros((1, 303), np.float32))
    caller.stage.bind_output(0, target)
    row = caller.run(*IDS[:2])
    caller.step(*IDS[2:6])
    np.testing.assert_array_equal(target.to_numpy()[0], row)


def test_a_step_leaves_a_published_state(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    # present[1,1,T,1] holds the tokens; nobody reads it before the step
    published = onnx_decoder(runtime, files.onnx("sum_state"))
    published.stage.request_output(1)
    published.run(1, 2, 3)
    published.step(4, 5)
    assert published.stage.output(1).to_numpy().reshape(-1).tolist() == [1, 2, 3]


def test_a_step_leaves_the_bound_tokens(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS[:2], IDS[2], IDS[3], IDS[1])
    decoder.pipeline.reset()
    decoder.run(IDS[0])
    decoder.run(IDS[1])
    decoder.step(*IDS[2:4])
    decoder.bind_rest(1)
    decoder.pipeline.run()  # feeds the token that is still bound
    np.testing.assert_allclose(decoder.row(), expected[4], atol=TOLERANCE)


def test_a_step_needs_no_bound_tokens(decoder: Decoder) -> None:
    decoder.step(*IDS[:2])
    decoder.bind_rest(1)
    with failing(0x80070057):
        decoder.pipeline.run()


def test_a_step_does_not_count_as_a_run(decoder: Decoder) -> None:
    decoder.step(*IDS[:2])
    with failing(0x8007139F):
        decoder.stage.output(0)


# Steps that fail


def test_a_step_past_the_capacity_moves_nothing(decoder: Decoder) -> None:
    if not decoder.stage.sequence_capacity:
        decoder.stage.set_sequence_capacity(16)
    row = decoder.run(*IDS, *IDS[:6])
    with failing(0x8000000B):
        decoder.step(*IDS[:3])
    assert decoder.stage.sequence_position == 14
    np.testing.assert_array_equal(decoder.row(), row)
    decoder.step(*IDS[:2])
    assert decoder.stage.sequence_position == 16


def test_an_unknown_token_moves_nothing(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    known = llama_decoder(runtime, files.gguf, 16)
    with failing(0x80070057):
        known.step(5, 303)
    assert known.stage.sequence_position == 0


def test_an_unbound_input_moves_nothing(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    maskless = onnx_decoder(runtime, random_onnx(files, "gqa"), 16)
    with failing(0x80070057):
        maskless.stage.step_all_positions([5, 9])
    assert maskless.stage.sequence_position == 0


def test_inputs_of_another_length_move_nothing(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    other = onnx_decoder(runtime, random_onnx(files, "plain"), 16)
    expected = other.one_by_one(*IDS[:3])
    other.stage.rewind(2)
    other.bind_rest(2)
    with failing(0x80070057):
        other.stage.step_all_positions([5, 9, 33])
    assert other.stage.sequence_position == 2
    np.testing.assert_allclose(other.run(IDS[2]), expected[2], atol=TOLERANCE)


@pytest.mark.parametrize("engine_name", ["llama", "ort"])
def test_an_interrupted_step_moves_nothing(
    runtime: Runtime, files: ModelFiles, monkeypatch: pytest.MonkeyPatch, engine_name: str, llama: None, ort: None
) -> None:
    if engine_name == "llama":
        victim = llama_decoder(runtime, files.gguf, 16)
        place = "winml_lite.native.llama.context.Context.copy_rows"
    else:
        victim = onnx_decoder(runtime, random_onnx(files, "plain"), 16)
        place = "winml_lite.native.ort.speculation._rows"
    expected = victim.one_by_one(*IDS[:4])
    victim.pipeline.reset()
    victim.run(*IDS[:2])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            victim.step(*IDS[4:7])
    assert victim.stage.sequence_position == 2
    np.testing.assert_allclose(rows(victim.step(*IDS[2:4])), expected[2:4], atol=TOLERANCE)


def test_a_locked_input_stops_a_step(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    masked = onnx_decoder(runtime, random_onnx(files, "gqa"), 16)
    mask = runtime.tensor_from_numpy(np.ones((1, 2), np.int64))
    masked.stage.bind_input(1, mask)
    with mask.lock(TensorLockMode.WRITE), failing(0x800700D4):
        masked.stage.step_all_positions([5, 9])
    masked.stage.step_all_positions([5, 9])
    assert masked.stage.sequence_position == 2


def test_a_step_is_refused_during_a_run(runtime: Runtime, files: ModelFiles, fake_gguf: object, script: Script) -> None:
    script.block_at[1] = block = Block()
    busy = llama_decoder(runtime, files.gguf, 16)
    busy.bind(IDS[0])
    with running(busy.pipeline, block):
        with failing(0x800700AA):
            busy.stage.step_all_positions([1])
        with failing(0x800700AA):
            busy.stage.commit_accepted_prefix(0)
        with failing(0x800700AA):
            busy.stage.propose_draft_tokens(1, 1)
        assert busy.stage.speculative_capabilities.can_verify is True


def test_a_run_is_refused_during_a_step(runtime: Runtime, files: ModelFiles, fake_gguf: object, script: Script) -> None:
    script.block_at[1] = block = Block()
    busy = llama_decoder(runtime, files.gguf, 16)
    busy.bind(IDS[0])
    with stepping(busy, block) as errors:
        with failing(0x800700AA):
            busy.pipeline.run()
        with failing(0x800700AA):
            busy.stage.step_all_positions([1])
    assert errors == []
    assert busy.stage.commit_accepted_prefix(1) == 1


def test_a_step_can_be_cancelled(runtime: Runtime, files: ModelFiles, fake_gguf: object, script: Script) -> None:
    script.block_at[1] = block = Block()
    stopped = llama_decoder(runtime, files.gguf, 16)
    with stepping(stopped, block) as errors:
        stopped.pipeline.cancel_run()
    assert [f"0x{error.hresult:08X}" for error in errors] == ["0x800704C7"]
    assert stopped.stage.sequence_position == 0


@contextmanager
def stepping(decoder: Decoder, block: Block) -> Iterator[list[WinMLError]]:
    """Inside the block, a step over two tokens hangs in the fake engine on another thread; yields what it raised."""
    errors: list[WinMLError] = []

    def step() -> None:
        try:
            decoder.step(*IDS[:2])
        except WinMLError as error:
            errors.append(error)

    thread = Thread(target=step)
    thread.start()
    assert block.entered.wait(100)
    try:
        yield errors
    finally:
        block.release.set()
        thread.join(100)


def test_a_step_of_one_stage_leaves_the_others(
    runtime: Runtime, files: ModelFiles, both_engines: str, script: Script
) -> None:
    # the ids come from another stage; a step brings its own
    builder = runtime.create_pipeline_builder()
    source = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    builder.connect(source, 0, stage, 0)
    source.bind_input(0, integers(runtime, 4))
    source.request_output(0)
    stage.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    assert len(stage.step_all_positions(IDS[:4])) == 4
    assert stage.commit_accepted_prefix(2) == 3
    assert source.output(0).to_numpy().tolist() == [5]
    pipeline.run()
    assert stage.sequence_position == 4


# What is kept


def test_r123_a_prefix_is_kept_once(decoder: Decoder) -> None:
    expected = decoder.one_by_one(*IDS[:5], IDS[7])
    decoder.pipeline.reset()
    decoder.run(*IDS[:3])
    decoder.step(*IDS[3:7])
    assert decoder.stage.commit_accepted_prefix(2) == 5
    assert decoder.stage.sequence_position == 5
    with failing(0x8007139F):
        decoder.stage.commit_accepted_prefix(0)
    np.testing.assert_allclose(decoder.run(IDS[7]), expected[5], atol=TOLERANCE)


def test_r123_nothing_or_everything_can_be_kept(decoder: Decoder) -> None:
    decoder.run(*IDS[:3])
    decoder.step(*IDS[3:7])
    assert decoder.stage.commit_accepted_prefix(0) == 3
    decoder.step(*IDS[3:7])
    assert decoder.stage.commit_accepted_prefix(4) == 7
    assert decoder.stage.sequence_position == 7


def test_r124_a_refused_commit_changes_nothing(decoder: Decoder) -> None:
    decoder.step(*IDS[:4])
    with failing(0x80070057):
        decoder.stage.commit_accepted_prefix(5)
    assert decoder.stage.sequence_position == 4
    assert decoder.stage.commit_accepted_prefix(4) == 4


def test_commit_takes_an_index(decoder: Decoder) -> None:
    with pytest.raises(TypeError):
        decoder.stage.commit_accepted_prefix(True)
    with pytest.raises(ValueError):
        decoder.stage.commit_accepted_prefix(-1)


def test_nothing_is_kept_without_a_step(decoder: Decoder) -> None:
    decoder.run(*IDS[:3])
    with failing(0x8007139F):
        decoder.stage.commit_accepted_prefix(0)


def test_r125_a_run_makes_a_step_final(decoder: Decoder) -> None:
    decoder.step(*IDS[:4])
    decoder.run(IDS[4])
    with failing(0x8007139F):
        decoder.stage.commit_accepted_prefix(1)
    assert decoder.stage.sequence_position == 5


@pytest.mark.parametrize("position", [4, 2, 0])
def test_r125_a_rewind_makes_a_step_final(decoder: Decoder, position: int) -> None:
    decoder.step(*IDS[:4])
    decoder.stage.rewind(position)
    with failing(0x8007139F):
        decoder.stage.commit_accepted_prefix(1)
    assert decoder.stage.sequence_position == position


def test_r125_a_reset_makes_a_step_final(decoder: Decoder) -> None:
    decoder.step(*IDS[:4])
    decoder.pipeline.reset()
    with failing(0x8007139F):
        decoder.stage.commit_accepted_prefix(0)


def test_r125_a_new_capacity_makes_a_step_final(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    grown = llama_decoder(runtime, files.gguf, 16)
    grown.step(*IDS[:4])
    grown.stage.set_sequence_capacity(32)
    with failing(0x8007139F):
        grown.stage.commit_accepted_prefix(1)


def test_the_same_capacity_leaves_a_step(decoder: Decoder) -> None:
    if not decoder.stage.sequence_capacity:
        decoder.stage.set_sequence_capacity(16)
    decoder.step(*IDS[:4])
    decoder.stage.set_sequence_capacity(16)
    assert decoder.stage.commit_accepted_prefix(1) == 1


def test_a_refused_step_leaves_the_one_before(decoder: Decoder) -> None:
    if not decoder.stage.sequence_capacity:
        decoder.stage.set_sequence_capacity(16)
    decoder.step(*IDS)
    with failing(0x8000000B):
        decoder.step(*IDS, 1)
    assert decoder.stage.commit_accepted_prefix(3) == 3


def test_a_failed_run_leaves_a_step(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    unlucky = llama_decoder(runtime, files.gguf, 16)
    unlucky.step(*IDS[:4])
    unlucky.bind(303)
    with failing(0x80070057):
        unlucky.pipeline.run()
    assert unlucky.stage.commit_accepted_prefix(1) == 1


def test_a_second_step_takes_the_place_of_the_first(decoder: Decoder) -> None:
    decoder.step(*IDS[:4])
    decoder.step(*IDS[4:6])
    with failing(0x80070057):
        decoder.stage.commit_accepted_prefix(3)
    assert decoder.stage.commit_accepted_prefix(1) == 5


# The loop, and drafts


def test_the_loop_gives_what_plain_decoding_gives(decoder: Decoder) -> None:
    # greedy, with drafts that are right for two tokens and wrong for the third
    plain = [IDS[0]]
    for _ in range(6):
        plain.append(int(decoder.run(plain[-1]).argmax()))
    decoder.pipeline.reset()
    accepted = [IDS[0]]
    for start in (0, 3):
        draft = [plain[start + 1], plain[start + 2], (plain[start + 3] + 1) % 303]
        chosen = rows(decoder.step(accepted[-1], *draft)).argmax(axis=1)
        assert chosen[:3].tolist() == plain[start + 1 : start + 4]
        accepted += chosen[:3].tolist()
        assert decoder.stage.commit_accepted_prefix(3) == start + 3
    assert accepted == plain


def test_r126_drafts_need_a_predictor(decoder: Decoder) -> None:
    with failing(0x80070032, NotSupportedError):
        decoder.stage.propose_draft_tokens(5, 3)


def test_drafts_are_asked_for_with_numbers(runtime: Runtime, files: ModelFiles) -> None:
    _, stage = unbuilt(runtime, files.gguf)
    with pytest.raises(TypeError):
        stage.propose_draft_tokens(True, 3)
    with pytest.raises(TypeError):
        stage.propose_draft_tokens(1, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        stage.propose_draft_tokens(2**31, 3)
    with pytest.raises(ValueError):
        stage.propose_draft_tokens(1, 2**32)


# What a stage holds


def test_a_step_holds_no_input(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    memory = bytearray(16)
    masked = onnx_decoder(runtime, random_onnx(files, "gqa"), 16)
    mask = runtime.tensor_from_buffer(memory, TensorDataType.INT64, (1, 2), access=TensorAccessMode.READ)
    memory[:] = np.ones(2, np.int64).tobytes()
    masked.stage.bind_input(1, mask)
    mask.close()
    masked.stage.step_all_positions([5, 9])
    with pytest.raises(BufferError):
        memory.append(0)
    masked.stage.clear_input(1)
    memory.append(0)


def test_nobody_but_the_caller_holds_the_rows(decoder: Decoder) -> None:
    view = decoder.step(*IDS[:4])
    gone = weakref.ref(view.obj)
    del view
    assert gone() is None
