"""Models that draft: how a second one keeps in step with the sequence, and what is learned of drafts."""

from __future__ import annotations

import pytest

from fakes.drafting import SteppingDecoder
from fakes.scripted import A, B, C, D, ScriptedDecoder, X, Y, one_hot, successor
from genai.draft_models import DraftChance, DraftPipeline, ModelPredictor
from winml_lite import WinMLError


def drafting(decoder: ScriptedDecoder, vocabulary_size: int = 16) -> DraftPipeline:
    return DraftPipeline(decoder, vocabulary_size)  # type: ignore[arg-type]


def begun(decoder: ScriptedDecoder, sequence: list[int]) -> DraftPipeline:
    source = drafting(decoder)
    source.begin(sequence)
    return source


# --- keeping in step --------------------------------------------------------------------------------------------------


def test_the_prompt_is_evaluated_in_pieces_but_for_its_last_token() -> None:
    decoder = ScriptedDecoder(successor, chunk=2)
    source = begun(decoder, [X, Y, X, Y, X, A])
    assert decoder.runs == [[X, Y], [X, Y], [X]]
    assert source.propose([X, Y, X, Y, X, A], 3) == [B, C, D]
    assert decoder.runs[3:] == [[A], [B], [C]]


def test_right_drafts_are_not_evaluated_again() -> None:
    decoder = ScriptedDecoder(successor)
    source = begun(decoder, [X, A])
    source.propose([X, A], 3)
    decoder.runs.clear()
    assert source.propose([X, A, B, C, D, A], 2) == [B, C]
    assert decoder.runs == [[D, A], [B]]
    assert decoder.rewinds == []


def test_wrong_drafts_are_taken_back() -> None:
    decoder = ScriptedDecoder(successor)
    source = begun(decoder, [X, A])
    source.propose([X, A], 3)
    decoder.runs.clear()
    assert source.propose([X, A, B, Y], 2) == [B, C]
    assert decoder.runs == [[Y], [B]]
    assert decoder.rewinds == [3]
    assert decoder.history == [X, A, B, Y, B]


def test_steps_without_drafts_are_caught_up_with() -> None:
    decoder = ScriptedDecoder(successor, chunk=2)
    source = begun(decoder, [X, A])
    source.propose([X, A], 1)
    decoder.runs.clear()
    assert source.propose([X, A, B, X, Y, X, C], 1) == [D]
    assert decoder.runs == [[B, X], [Y], [X, C]]


def test_another_operation_keeps_what_it_shares() -> None:
    decoder = ScriptedDecoder(successor)
    source = begun(decoder, [X, A])
    source.propose([X, A], 3)
    decoder.runs.clear()
    source.begin([X, A, B, Y, Y, A])
    assert decoder.runs == [[Y, Y]]
    assert source.propose([X, A, B, Y, Y, A], 1) == [B]


def test_the_same_sequence_again_costs_its_last_token() -> None:
    decoder = ScriptedDecoder(successor)
    source = begun(decoder, [X, Y, A])
    source.propose([X, Y, A], 1)
    decoder.runs.clear()
    source.begin([X, Y, A])
    assert source.propose([X, Y, A], 1) == [B]
    assert decoder.runs == [[A]]


def test_a_state_that_cannot_go_back_is_made_anew() -> None:
    decoder = ScriptedDecoder(successor, can_rewind=False)
    source = begun(decoder, [X, A])
    source.propose([X, A], 3)
    decoder.runs.clear()
    assert source.propose([X, A, B, Y, A], 1) == [B]
    assert decoder.runs == [[X, A, B, Y, A]]
    assert decoder.resets == 1


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_at_a_run_is_taken_up_again(number: int, when: str) -> None:
    decoder = ScriptedDecoder(successor, chunk=2, **{when: {number: KeyboardInterrupt()}})  # type: ignore[arg-type]
    source = drafting(decoder)
    sequence = [X, Y, X, A]
    with pytest.raises(KeyboardInterrupt):
        source.begin(sequence)
        source.propose(sequence, 3)
    assert source.propose(sequence, 3) == [B, C, D]
    assert decoder.history == [X, Y, X, A, B, C]


def test_another_user_of_the_pipeline_is_noticed_by_the_position() -> None:
    decoder = ScriptedDecoder(successor)
    source = begun(decoder, [X, Y, A])
    source.propose([X, Y, A], 1)
    decoder.history = []
    assert source.propose([X, Y, A, B], 1) == [C]
    assert decoder.history == [X, Y, A, B]


def test_a_stopped_draft_ends_between_pieces() -> None:
    decoder = ScriptedDecoder(successor, chunk=1)
    source = drafting(decoder)
    decoder.hooks[2] = source.abort
    with pytest.raises(WinMLError) as caught:
        source.begin([X, Y, X, Y, A])
    assert caught.value.hresult == 0x800704C7
    assert decoder.runs == [[X], [Y]]
    assert decoder.aborts == 1
    source.begin([X, Y, X, Y, A])
    assert source.propose([X, Y, X, Y, A], 1) == [B]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_drafts_keep_within_the_capacity_of_the_model_that_drafts() -> None:
    decoder = ScriptedDecoder(successor, capacity=5)
    source = begun(decoder, [X, Y, A])
    assert len(source.outlook([X, Y, A], 9)) == 3  # the last one is not consumed
    assert source.propose([X, Y, A], 3) == [B, C, D]
    assert decoder.history == [X, Y, A, B, C]
    assert len(source.outlook([X, Y, A, B, C], 9)) == 1
    assert source.outlook([X, Y, A, B, C, D], 9) == ()


def test_a_sequence_that_is_too_long_is_not_evaluated() -> None:
    decoder = ScriptedDecoder(successor, capacity=2)
    source = begun(decoder, [X, Y, A])
    assert decoder.runs == []
    assert source.outlook([X, Y, A], 9) == ()


def test_tokens_that_the_other_model_does_not_know_are_not_drafted() -> None:
    decoder = ScriptedDecoder(lambda history: one_hot(X if history[-1] == B else B))
    source = drafting(decoder, vocabulary_size=11)
    source.begin([X, A])
    assert source.propose([X, A], 3) == [B]


def test_closing_closes_the_composition() -> None:
    decoder = ScriptedDecoder(successor)
    drafting(decoder).close()
    assert decoder.is_closed


# --- the predictor ----------------------------------------------------------------------------------------------------


class PredictingDecoder(SteppingDecoder):
    def propose_draft_tokens(self, pending: int, maximum: int) -> list[int]:
        return [pending + 1] * maximum


def test_the_predictor_is_asked_for_what_follows_the_last_token() -> None:
    source = ModelPredictor(PredictingDecoder(successor))  # type: ignore[arg-type]
    source.begin([A, B])
    assert source.outlook([A, B], 2) == [0.7, 0.7]
    assert source.propose([A, B], 2) == [C, C]


# --- what is learned --------------------------------------------------------------------------------------------------


def test_right_tokens_raise_the_chance_and_a_wrong_one_lowers_it() -> None:
    chance = DraftChance()
    assert chance.outlook(3) == [0.7, 0.7, 0.7]
    chance.observe(2, 2)
    assert chance.outlook(1) == [pytest.approx(0.757)]  # 0.7, 0.73, 0.757
    chance.observe(2, 1)
    assert chance.outlook(1) == [pytest.approx(0.70317)]  # 0.7813, and a tenth less


def test_after_two_drafts_of_nothing_right_there_is_a_pause_of_8_steps() -> None:
    chance = DraftChance()
    chance.observe(3, 0)
    assert chance.outlook(1)
    chance.observe(3, 0)
    assert [bool(chance.outlook(1)) for _ in range(9)] == [False] * 8 + [True]


def test_each_further_miss_doubles_the_pause() -> None:
    chance = DraftChance()
    pauses = []
    chance.observe(3, 0)
    for _ in range(8):
        chance.observe(3, 0)
        waited = 0
        while not chance.outlook(1):
            waited += 1
        pauses.append(waited)
    assert pauses == [8, 16, 32, 64, 128, 256, 512, 512]


def test_a_token_that_was_right_ends_the_pauses() -> None:
    chance = DraftChance()
    for _ in range(4):
        chance.observe(3, 0)
    chance.observe(3, 1)
    chance.observe(3, 0)
    chance.observe(3, 0)
    waited = 0
    while not chance.outlook(1):
        waited += 1
    assert waited == 8
