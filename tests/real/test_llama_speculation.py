"""Speculative decoding on llama.cpp where it is more than cutting a cache: recurrent state, and predictors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.decoders import IDS, Decoder, llama_decoder
from fakes.model_files import ModelFiles
from fakes.rig import failing
from models.gguf_writer import write_gguf
from models.hybrid_models import hybrid_model
from winml_lite import NotSupportedError, Runtime, SpeculativeRollbackBound

TOLERANCE = 1e-3
pytestmark = pytest.mark.usefixtures("llama")


def rows(view: memoryview) -> npt.NDArray[np.float32]:
    return np.asarray(view)


def hybrid(runtime: Runtime, files: ModelFiles, limit: int = 4, capacity: int = 64) -> Decoder:
    return llama_decoder(runtime, files.hybrid_gguf, capacity, limit)


def predicting(runtime: Runtime, files: ModelFiles, limit: int = 4, capacity: int = 64) -> Decoder:
    return llama_decoder(runtime, files.hybrid_gguf, capacity, limit, predicts=True)


# Recurrent state


def test_a_hint_makes_recurrent_state_go_back(runtime: Runtime, files: ModelFiles) -> None:
    capabilities = hybrid(runtime, files).stage.speculative_capabilities
    assert capabilities.rollback_bound is SpeculativeRollbackBound.BOUNDED
    assert capabilities.max_rollback_depth == 4
    assert capabilities.max_draft_tokens == 0


def test_at_most_16_states_are_kept(runtime: Runtime, files: ModelFiles) -> None:
    assert hybrid(runtime, files, limit=100).stage.speculative_capabilities.max_rollback_depth == 16


def test_without_a_hint_recurrent_state_cannot_go_back(runtime: Runtime, files: ModelFiles) -> None:
    stiff = hybrid(runtime, files, limit=0)
    capabilities = stiff.stage.speculative_capabilities
    assert capabilities.rollback_bound is SpeculativeRollbackBound.UNSUPPORTED
    assert capabilities.max_rollback_depth == 0
    stiff.step(*IDS[:4])
    with failing(0x80070057):
        stiff.stage.commit_accepted_prefix(3)
    assert stiff.stage.commit_accepted_prefix(4) == 4


def test_a_step_gives_the_rows_of_single_runs(runtime: Runtime, files: ModelFiles) -> None:
    recurrent = hybrid(runtime, files)
    expected = recurrent.one_by_one(*IDS)
    recurrent.pipeline.reset()
    recurrent.run(*IDS[:2])
    np.testing.assert_allclose(rows(recurrent.step(*IDS[2:6])), expected[2:6], atol=TOLERANCE)
    np.testing.assert_allclose(recurrent.run(*IDS[6:]), expected[7], atol=TOLERANCE)


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_a_prefix_is_kept(runtime: Runtime, files: ModelFiles, kept: int) -> None:
    recurrent = hybrid(runtime, files)
    expected = recurrent.one_by_one(*IDS)
    recurrent.pipeline.reset()
    recurrent.run(*IDS[:2])
    recurrent.step(*IDS[2:6])
    assert recurrent.stage.commit_accepted_prefix(kept) == 2 + kept
    np.testing.assert_allclose(recurrent.one_by_one(*IDS[2 + kept :]), expected[2 + kept :], atol=TOLERANCE)


def test_the_first_token_of_a_step_stays(runtime: Runtime, files: ModelFiles) -> None:
    # the engine keeps no state from before a batch
    recurrent = hybrid(runtime, files)
    recurrent.run(*IDS[:2])
    recurrent.step(*IDS[2:6])
    with failing(0x80070057):
        recurrent.stage.commit_accepted_prefix(0)
    assert recurrent.stage.sequence_position == 6
    assert recurrent.stage.commit_accepted_prefix(1) == 3


@pytest.mark.parametrize("position", [1, 2, 3, 7])
def test_there_is_no_way_to_states_that_are_gone(runtime: Runtime, files: ModelFiles, position: int) -> None:
    # 7 is behind a run of one token; the others are before the last step, or were cut off once
    recurrent = hybrid(runtime, files)
    expected = recurrent.one_by_one(*IDS)
    recurrent.pipeline.reset()
    recurrent.run(*IDS[:2])
    recurrent.step(*IDS[2:6])
    recurrent.stage.commit_accepted_prefix(2)
    recurrent.one_by_one(*IDS[4:])
    with failing(0x80070057):
        recurrent.stage.rewind(position)
    assert recurrent.stage.sequence_position == 8
    recurrent.stage.rewind(0)
    np.testing.assert_allclose(recurrent.run(*IDS), expected[7], atol=TOLERANCE)


def test_a_second_cut_has_no_state(runtime: Runtime, files: ModelFiles) -> None:
    recurrent = hybrid(runtime, files)
    recurrent.step(*IDS[:6])
    recurrent.stage.rewind(5)
    with failing(0x80070057):
        recurrent.stage.rewind(4)
    assert recurrent.stage.sequence_position == 5


def test_states_do_not_outlive_a_reset(runtime: Runtime, files: ModelFiles) -> None:
    recurrent = hybrid(runtime, files)
    recurrent.step(*IDS[:4])
    recurrent.pipeline.reset()
    recurrent.one_by_one(*IDS[:4])
    with failing(0x80070057):
        recurrent.stage.rewind(3)


def test_a_prompt_can_be_shortened_too(runtime: Runtime, files: ModelFiles) -> None:
    recurrent = hybrid(runtime, files)
    expected = recurrent.run(*IDS)
    recurrent.stage.rewind(5)
    np.testing.assert_allclose(recurrent.run(*IDS[5:]), expected, atol=TOLERANCE)


# The predictor


def test_r94_a_predictor_drafts_as_many_as_the_hint_says(runtime: Runtime, files: ModelFiles) -> None:
    assert predicting(runtime, files, limit=3).stage.speculative_capabilities.max_draft_tokens == 3
    assert predicting(runtime, files, limit=40).stage.speculative_capabilities.max_draft_tokens == 16


def test_a_predictor_is_asked_for(runtime: Runtime, files: ModelFiles) -> None:
    assert hybrid(runtime, files).stage.speculative_capabilities.max_draft_tokens == 0


def test_r94_a_file_without_a_predictor_builds(runtime: Runtime, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "bare.gguf", *hybrid_model(predictor=False))
    bare = llama_decoder(runtime, str(path), 64, 4, predicts=True)
    assert bare.stage.speculative_capabilities.max_draft_tokens == 0
    with failing(0x80070032, NotSupportedError):
        bare.stage.propose_draft_tokens(1, 2)


def test_a_draft_moves_nothing(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    row = drafting.run(*IDS)
    first = drafting.stage.propose_draft_tokens(190, 4)
    assert len(first) == 4
    assert drafting.stage.propose_draft_tokens(190, 4) == first
    assert drafting.stage.propose_draft_tokens(190, 2) == first[:2]
    assert drafting.stage.propose_draft_tokens(190, 0) == []
    assert drafting.stage.sequence_position == 8
    np.testing.assert_array_equal(drafting.row(), row)


def test_a_draft_leaves_a_step_open(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    drafting.step(*IDS[:4])
    drafting.stage.propose_draft_tokens(5, 2)
    assert drafting.stage.commit_accepted_prefix(2) == 2


def test_no_draft_is_longer_than_the_room(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files, capacity=10)
    drafting.run(*IDS[:7])
    assert len(drafting.stage.propose_draft_tokens(5, 4)) == 2  # a step feeds the pending token as well
    drafting.run(*IDS[:2])
    assert drafting.stage.propose_draft_tokens(5, 4) == []


def test_an_unknown_pending_token_is_refused(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    drafting.run(*IDS)
    with failing(0x80070057):
        drafting.stage.propose_draft_tokens(303, 2)


def test_there_is_no_draft_before_the_first_token(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    assert drafting.stage.propose_draft_tokens(5, 4) == []
    drafting.run(*IDS)
    drafting.pipeline.reset()
    assert drafting.stage.propose_draft_tokens(5, 4) == []


def one_run(decoder: Decoder) -> None:
    decoder.run(*IDS)


def single_runs(decoder: Decoder) -> None:
    decoder.one_by_one(*IDS)


def steps(decoder: Decoder) -> None:
    decoder.run(*IDS[:2])
    decoder.step(*IDS[2:5], 77, 78)
    decoder.stage.commit_accepted_prefix(3)
    decoder.stage.propose_draft_tokens(IDS[5], 4)
    decoder.step(*IDS[5:])


def drafts_between(decoder: Decoder) -> None:
    for index, token in enumerate(IDS):
        decoder.run(token)
        decoder.stage.propose_draft_tokens(IDS[(index + 1) % 8], 3)


def after_a_reset(decoder: Decoder) -> None:
    decoder.run(3, 1, 4)
    decoder.stage.propose_draft_tokens(1, 2)
    decoder.pipeline.reset()
    decoder.run(*IDS)


def a_refused_run_between(decoder: Decoder) -> None:
    decoder.run(*IDS[:6])
    decoder.bind(303)
    with failing(0x80070057):
        decoder.pipeline.run()
    decoder.run(*IDS[6:])


@pytest.mark.parametrize("history", [one_run, single_runs, steps, drafts_between, after_a_reset, a_refused_run_between])
def test_a_draft_depends_on_the_tokens_only(
    runtime: Runtime, files: ModelFiles, history: Callable[[Decoder], None]
) -> None:
    drafting = predicting(runtime, files)
    history(drafting)
    assert drafting.stage.sequence_position == 8
    assert drafting.stage.propose_draft_tokens(190, 4) == reference_draft(files.hybrid_gguf, IDS, 190, 4)


def test_long_prompts_go_in_batches(runtime: Runtime, files: ModelFiles) -> None:
    prompt = tuple((7 * index) % 300 for index in range(40))
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.hybrid_gguf))
    options = stage.llama_options()
    options.thread_count, options.key_type, options.value_type, options.batch_size = 1, "f32", "f32", 16
    stage.draft_token_limit_hint = 4
    stage.model_draft_predictor_enabled = True
    drafting = Decoder(runtime, stage, builder.build(), ())
    drafting.stage.request_output(0)
    drafting.run(*prompt)
    assert drafting.stage.propose_draft_tokens(190, 4) == reference_draft(files.hybrid_gguf, prompt, 190, 4)


def test_after_a_rewind_the_predictor_catches_up(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    drafting.run(*IDS)
    drafting.stage.propose_draft_tokens(190, 2)  # now it has been fed everything
    drafting.stage.rewind(6)
    assert drafting.stage.propose_draft_tokens(IDS[6], 4) == []
    drafting.run(IDS[6])
    assert len(drafting.stage.propose_draft_tokens(IDS[7], 4)) == 4


def test_a_new_capacity_makes_a_new_predictor(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    drafting.run(3, 1, 4)
    drafting.stage.set_sequence_capacity(48)
    drafting.run(*IDS)
    assert drafting.stage.propose_draft_tokens(190, 4) == reference_draft(files.hybrid_gguf, IDS, 190, 4)


def test_a_cancelled_run_does_not_cancel_a_later_draft(runtime: Runtime, files: ModelFiles) -> None:
    drafting = predicting(runtime, files)
    drafting.run(*IDS)
    drafting.stage.underlying_object.executor.abort()  # it came too late for the run
    assert drafting.stage.propose_draft_tokens(190, 4) == reference_draft(files.hybrid_gguf, IDS, 190, 4)


def test_an_interrupted_draft_leaves_no_guesses(
    runtime: Runtime, files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting = predicting(runtime, files)
    drafting.run(*IDS)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("winml_lite.native.llama.predictor.PredictingContext._copied", interrupt)
        with pytest.raises(KeyboardInterrupt):
            drafting.stage.propose_draft_tokens(190, 4)
    assert drafting.stage.propose_draft_tokens(190, 4) == reference_draft(files.hybrid_gguf, IDS, 190, 4)


def test_the_loop_gives_what_plain_decoding_gives(runtime: Runtime, files: ModelFiles) -> None:
    plain, drafting = hybrid(runtime, files), predicting(runtime, files)
    expected = [int(plain.run(*IDS).argmax())]
    for _ in range(30):
        expected.append(int(plain.run(expected[-1]).argmax()))
    tokens = [int(drafting.run(*IDS).argmax())]
    accepted_drafts = 0
    while len(tokens) < 31:
        draft = drafting.stage.propose_draft_tokens(tokens[-1], 4)
        chosen = rows(drafting.step(tokens[-1], *draft)).argmax(axis=1).tolist()
        accepted = next((index for index, token in enumerate(draft) if token != chosen[index]), len(draft))
        drafting.stage.commit_accepted_prefix(1 + accepted)
        tokens += chosen[: 1 + accepted]
        accepted_drafts += accepted
    assert tokens[:31] == expected
    assert accepted_drafts > 3  # the predictor is of use, in this model now and then


def reference_draft(path: str, tokens: tuple[int, ...], pending: int, count: int) -> list[int]:
    """Draft by the functions of llama.cpp alone: the predictor is fed everything at once."""
    from llama_cpp import llama_cpp as api
    from llama_cpp import llama_cpp_ext as extension

    params = api.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts, params.load_mtp = 0, False, True
    model = api.llama_model_load_from_file(path.encode(), params)
    width = api.llama_model_n_embd_out(model)
    vocabulary_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    contexts = []
    for kind in (0, api.LLAMA_CONTEXT_TYPE_MTP):
        settings = api.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_threads, settings.n_threads_batch = (
            64,
            64,
            64,
            1,
            1,
        )
        settings.type_k = settings.type_v = api.GGML_TYPE_F32
        settings.flash_attn_type, settings.ctx_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED, kind
        contexts.append(api.llama_init_from_model(model, settings))
        extension.llama_set_embeddings_nextn(contexts[-1], True, kind != 0)

    def evaluate(context: object, ids: list[int], hidden: npt.NDArray[np.float32] | None) -> None:
        array = np.array(ids, np.int32)
        marks = (ctypes.c_int8 * len(ids))(*[1] * len(ids))
        batch = api.llama_batch()
        batch.n_tokens, batch.logits = len(ids), marks
        batch.token = ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_int32))
        if hidden is not None:
            batch.embd = ctypes.cast(hidden.ctypes.data, ctypes.POINTER(ctypes.c_float))
        assert api.llama_decode(context, batch) == 0

    evaluate(contexts[0], list(tokens), None)
    states = np.ctypeslib.as_array(extension.llama_get_embeddings_nextn(contexts[0]), (len(tokens), width)).copy()
    evaluate(contexts[1], list(tokens), np.concatenate((np.zeros((1, width), np.float32), states[:-1])))
    token, state, drafted = pending, states[-1].copy(), []
    for _ in range(count):
        evaluate(contexts[1], [token], state)
        logits = np.ctypeslib.as_array(api.llama_get_logits_ith(contexts[1], 0), (vocabulary_size,))
        token = int(logits.argmax())
        state = np.ctypeslib.as_array(extension.llama_get_embeddings_nextn_ith(contexts[1], 0), (width,)).copy()
        drafted.append(token)
    for context in contexts:
        api.llama_free(context)
    api.llama_model_free(model)
    return drafted
