"""The kept sequence and its state machine, over a decoder that is a few lines of Python."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import A, B, C, D, ScriptedDecoder, ScriptedTokenizer, sum_state
from genai import CancellationSource, TextGenerationOptions
from genai.loop import GenerationLoop
from genai.sequence import SequenceCore
from genai.tasks import TextGenerationSequenceDisclosure, TextGenerationSessionState
from winml_lite import WinMLError

State = TextGenerationSessionState
E_NOT_VALID_STATE = 0x8007139F


def core_of(decoder: Any) -> SequenceCore:
    return SequenceCore(decoder, ScriptedTokenizer(), ())  # type: ignore[arg-type]


def start(core: SequenceCore, prompt: list[int], count: int = 2) -> GenerationLoop:
    return core.start(prompt, TextGenerationOptions(count), CancellationSource())


def state_of(core: SequenceCore) -> TextGenerationSessionState:
    return core.state


def read(loop: GenerationLoop) -> list[int | None]:
    ids = []
    while (update := loop.read_next()) is not None:
        ids.append(update.token_id)
    return ids


@pytest.fixture
def decoder() -> ScriptedDecoder:
    return ScriptedDecoder(sum_state(4))


@pytest.fixture
def core(decoder: ScriptedDecoder) -> SequenceCore:
    return core_of(decoder)


def test_starting_runs_nothing(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    start(core, [A, B])
    assert decoder.runs == []
    assert state_of(core) is State.ACTIVE


def test_the_prompt_is_one_run_and_each_token_another(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    assert read(start(core, [A, B], 3)) == [B, C, A]
    assert decoder.runs == [[A, B], [B], [C]]


@pytest.mark.parametrize(
    ("chunk", "runs"),
    [
        (1, [[A], [B], [C], [D]]),
        (2, [[A, B], [C, D]]),
        (3, [[A, B, C], [D]]),
        (4, [[A, B, C, D]]),
        (5, [[A, B, C, D]]),
    ],
)
def test_s_ctx_07_every_split_of_the_prompt_gives_the_same_token(chunk: int, runs: list[list[int]]) -> None:
    decoder = ScriptedDecoder(sum_state(8), chunk=chunk)
    assert read(start(core_of(decoder), [A, B, C, D], 1)) == [6]
    assert decoder.runs == runs


def test_a_shared_prefix_is_rewound_to(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    read(start(core, [A, B, C, D], 1))
    loop = start(core, [A, B, C, A, A], 1)
    assert decoder.rewinds == [3]
    assert loop.reused_token_count == 3
    read(loop)
    assert decoder.runs[-1] == [A, A]


def test_an_equal_prompt_evaluates_only_its_last_token(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    read(start(core, [A, B, C], 2))
    read(start(core, [A, B, C], 1))
    assert decoder.runs[-1] == [C]


def test_a_prompt_that_goes_on_from_the_answer_reuses_all_that_was_evaluated(
    core: SequenceCore, decoder: ScriptedDecoder
) -> None:
    assert read(start(core, [A, B], 2)) == [B, C]
    read(start(core, [A, B, B, C, D], 1))
    assert decoder.rewinds == []
    assert decoder.runs[-1] == [C, D]


def test_without_a_common_beginning_the_state_is_reset(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    read(start(core, [A, B], 2))
    assert start(core, [B, A], 1).reused_token_count == 0
    assert (decoder.resets, decoder.rewinds) == (1, [])


def test_a_state_that_cannot_rewind_is_built_again(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    decoder.can_rewind = False
    read(start(core, [A, B, C, D], 1))
    loop = start(core, [A, B, C, A], 2)
    assert loop.reused_token_count == 0
    assert read(loop) == [D, C]
    assert decoder.runs[-2:] == [[A, B, C, A], [D]]


def test_unbounded_capacity_is_zero(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    decoder.capacity = 0
    assert len(read(start(core, [A, B], 300))) == 300


def test_an_empty_core_clears_what_others_left_in_the_pipeline(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    decoder.history = [D, D]
    assert read(start(core, [A, B], 1)) == [B]
    assert decoder.resets == 1


def test_closing_gives_the_parts_up(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    core.close()
    core.close()
    assert decoder.is_closed
    assert state_of(core) is State.CLOSED


# --- recovering -------------------------------------------------------------------------------------------------------


def test_recovering_ends_an_operation_that_was_left_open(core: SequenceCore) -> None:
    loop = start(core, [A, B], 5)
    loop.read_next()
    core.recover()
    assert state_of(core) is State.READY
    assert loop.result is not None and loop.result.token_ids == (B,)
    assert read(start(core, [A, B], 2)) == [B, C]


def test_recovering_drops_a_failed_sequence(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    decoder.before[1] = WinMLError(0x80004005)
    read(start(core, [A, B]))
    assert state_of(core) is State.RESET_REQUIRED
    core.recover()
    assert state_of(core) is State.EMPTY
    assert read(start(core, [A, B], 1)) == [B]


def test_recovering_drops_a_sequence_that_the_stage_does_not_have(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    read(start(core, [A, B]))
    decoder.history.append(A)
    core.recover()
    assert read(start(core, [A, B], 1)) == [B]


def test_recovering_a_sound_sequence_keeps_it(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    read(start(core, [A, B, C], 2))
    core.recover()
    assert start(core, [A, B, C, D]).reused_token_count == 3
    assert decoder.resets == 0


def test_a_pipeline_that_refuses_to_reset_requires_one(core: SequenceCore, decoder: ScriptedDecoder) -> None:
    loop = start(core, [A, B])
    decoder.refuses_reset = True
    with failing(0x80004005):
        loop.close()
    assert state_of(core) is State.RESET_REQUIRED
    decoder.refuses_reset = False
    core.reset()
    assert state_of(core) is State.EMPTY


def test_an_operation_that_is_over_cannot_end_a_later_one(core: SequenceCore) -> None:
    first = start(core, [A, B], 1)
    read(first)
    second = start(core, [A, B], 2)
    first.close()
    first.read_next()
    assert state_of(core) is State.ACTIVE
    assert read(second) == [B, C]


def test_the_state_tells_counts_and_disclosure(core: SequenceCore) -> None:
    read(start(core, [A, B], 2))
    state = core.sequence_state
    assert state.disclosure is TextGenerationSequenceDisclosure.RETAINED
    assert (state.session_state, state.evaluated_token_count, state.retained_token_count) == (State.READY, 3, 4)


def test_resetting_while_an_operation_is_open_is_refused(core: SequenceCore) -> None:
    start(core, [A])
    with failing(E_NOT_VALID_STATE):
        core.reset()
    with failing(E_NOT_VALID_STATE):
        core.close()
