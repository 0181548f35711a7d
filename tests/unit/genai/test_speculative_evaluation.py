"""Verifying drafts: which runs are made, which rows are handed out, and where the sequence stands afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fakes.drafting import SetCosts, SetDrafts, SteppingDecoder
from fakes.scripted import EOS, A, B, C, D, ScriptedDecoder, ScriptedTokenizer, X, Y, saying, successor
from genai import CancellationSource, TextGenerationFinishReason, TextGenerationOptions, speculative_evaluation
from genai.loop import GenerationLoop
from genai.sequence import SequenceCore
from genai.speculation import Speculation
from genai.speculative_statistics import TextGenerationSpeculativeMethod, TextGenerationSpeculativeStatistics
from genai.tasks import TextGenerationSessionState
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Method = TextGenerationSpeculativeMethod


def core_of(decoder: ScriptedDecoder, *drafts: list[int], limit: int = 16, eos: tuple[int, ...] = ()) -> SequenceCore:
    core = SequenceCore(decoder, ScriptedTokenizer(), eos)  # type: ignore[arg-type]
    core.speculation = Speculation(Method.MODEL, limit, SetDrafts(list(drafts)), SetCosts())
    return core


def begin(core: SequenceCore, prompt: list[int], count: int = 9, **fields: Any) -> GenerationLoop:
    return core.start(prompt, TextGenerationOptions(count, **fields), CancellationSource())


def read(loop: GenerationLoop) -> list[int | None]:
    ids = []
    while (update := loop.read_next()) is not None:
        ids.append(update.token_id)
    return ids


def statistics(loop: GenerationLoop) -> TextGenerationSpeculativeStatistics:
    assert loop.result is not None
    found = loop.result.speculative_statistics
    assert found is not None
    return found


def source_of(core: SequenceCore) -> SetDrafts:
    assert core.speculation is not None
    source = core.speculation.source
    assert isinstance(source, SetDrafts)
    return source


def test_right_drafts_cost_one_run() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A], 6)
    assert read(loop) == [B, C, D, A, B, C]
    assert decoder.runs == [[D, A], [B, C, D, A], [B]]
    assert statistics(loop) == TextGenerationSpeculativeStatistics(Method.MODEL, 1, 3, 3)
    assert core.evaluated == 7
    assert decoder.history == [D, A, B, C, D, A, B]
    assert decoder.rewinds == []


def test_what_follows_a_wrong_guess_is_taken_back() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, X, A])
    loop = begin(core, [D, A], 5)
    assert read(loop) == [B, C, D, A, B]
    assert decoder.runs == [[D, A], [B, C, X, A], [D], [A]]
    assert decoder.rewinds == [4]
    assert statistics(loop) == TextGenerationSpeculativeStatistics(Method.MODEL, 1, 3, 1)
    assert source_of(core).observed == [(3, 1)]


def test_a_draft_that_is_wrong_at_once_gives_one_token() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [X, X])
    loop = begin(core, [D, A], 4)
    assert read(loop) == [B, C, D, A]
    assert decoder.runs == [[D, A], [B, X, X], [C], [D]]
    assert statistics(loop).acceptance_rate == 0.0


def test_a_read_of_a_verified_row_runs_nothing() -> None:
    decoder = SteppingDecoder(successor)
    loop = begin(core_of(decoder, [C, D, A]), [D, A])
    counts = []
    for _ in range(6):
        loop.read_next()
        counts.append(len(decoder.runs))
    assert counts == [1, 2, 2, 2, 2, 3]
    loop.close()


def test_evaluated_counts_the_rows_that_were_handed_out() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A])
    counts = []
    for _ in range(5):
        loop.read_next()
        counts.append((core.evaluated, len(core.retained)))
    assert counts == [(2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    loop.close()


def test_closing_among_verified_rows_leaves_what_was_read() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A])
    for _ in range(3):
        loop.read_next()
    loop.close()
    assert core.retained == [D, A, B, C, D]
    assert core.evaluated == 4
    assert decoder.history == [D, A, B, C]
    assert statistics(loop) == TextGenerationSpeculativeStatistics(Method.MODEL, 1, 3, 2)
    assert core.state is State.READY


def test_a_cancel_among_verified_rows_leaves_what_was_read() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    source = CancellationSource()
    loop = core.start([D, A], TextGenerationOptions(9), source)
    for _ in range(3):
        loop.read_next()
    source.cancel()
    assert loop.read_next() is None
    assert loop.result is not None
    assert loop.result.finish_reason is Reason.CANCELED
    assert decoder.history == [D, A, B, C]
    assert core.retained == [D, A, B, C, D]


def test_a_sequence_goes_on_after_verified_rows_were_left() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A])
    for _ in range(3):
        loop.read_next()
    loop.close()
    again = core.resume([], TextGenerationOptions(3), CancellationSource())
    assert read(again) == [A, B, C]


def test_a_prefix_of_verified_tokens_is_reused() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A])
    for _ in range(3):
        loop.read_next()
    loop.close()
    decoder.runs.clear()
    assert read(begin(core, [D, A, B, C, D, A], 1)) == [B]
    assert decoder.runs == [[D, A]]


def test_an_end_among_verified_rows_keeps_all_that_was_emitted() -> None:
    decoder = SteppingDecoder(saying(2, B, C, EOS))
    core = core_of(decoder, [C, D, A], eos=(EOS,))
    loop = begin(core, [D, A])
    assert read(loop) == [B, C]
    assert loop.result is not None
    assert loop.result.finish_reason is Reason.EOS_TOKEN
    assert core.retained == [D, A, B, C]
    assert core.evaluated == 4
    assert decoder.history == [D, A, B, C]


def test_a_stop_text_among_verified_rows_leaves_its_token_pending() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A], stop=("d",))
    read(loop)
    assert loop.result is not None
    assert loop.result.text == "bc"
    assert core.retained == [D, A, B, C, D]
    assert core.evaluated == 4
    assert decoder.history == [D, A, B, C]


def test_a_draft_stops_before_an_end() -> None:
    decoder = SteppingDecoder(saying(2, B, C, EOS))
    core = core_of(decoder, [C, EOS, A], eos=(EOS,))
    assert read(begin(core, [D, A])) == [B, C]
    assert decoder.runs == [[D, A], [B, C]]


def test_a_draft_stops_before_a_stop_token() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    assert read(begin(core, [D, A], stop_token_ids=(D,))) == [B, C]
    assert decoder.runs == [[D, A], [B, C]]


def test_a_draft_that_is_an_end_is_none() -> None:
    decoder = SteppingDecoder(saying(2, B, EOS))
    core = core_of(decoder, [EOS, A], eos=(EOS,))
    loop = begin(core, [D, A])
    assert read(loop) == [B]
    assert decoder.runs == [[D, A], [B]]
    assert statistics(loop).draft_token_count == 0


def test_drafts_keep_within_the_token_limit() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A, B, C])
    assert read(begin(core, [D, A], 4)) == [B, C, D, A]
    assert decoder.runs == [[D, A], [B, C, D]]  # one row each for C, D and A


def test_drafts_keep_within_the_capacity() -> None:
    decoder = SteppingDecoder(successor, capacity=6)
    core = core_of(decoder, [C, D, A, B, C])
    loop = begin(core, [D, A], 99)
    assert read(loop) == [B, C, D, A]
    assert loop.result is not None
    assert loop.result.finish_reason is Reason.SEQUENCE_CAPACITY
    assert decoder.runs == [[D, A], [B, C, D]]
    assert (core.evaluated, len(core.retained)) == (5, 6)


def test_drafts_keep_within_their_limit() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A, B, C], limit=2)
    assert read(begin(core, [D, A], 5)) == [B, C, D, A, B]
    assert decoder.runs == [[D, A], [B, C, D], [A]]


def test_nothing_is_drafted_where_a_step_costs_what_it_brings() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    assert core.speculation is not None
    core.speculation.costs = SetCosts(slope=0.9)
    assert read(begin(core, [D, A], 5)) == [B, C, D, A, B]
    assert decoder.runs == [[D, A], [B], [C], [D], [A]]


def test_a_source_that_fails_ends_drafting_only(caplog: pytest.LogCaptureFixture) -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D, A])
    source_of(core).failure = WinMLError(0x80004005, "draft", "broken")
    loop = begin(core, [D, A], 4)
    assert read(loop) == [B, C, D, A]
    assert decoder.runs == [[D, A], [B], [C], [D]]
    assert "broken" in str(statistics(loop).failure)
    assert "broken" in caplog.text
    assert len(source_of(core).asked) == 1


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_interrupt_before_a_run_is_taken_up_again(number: int) -> None:
    decoder = SteppingDecoder(successor, before={number: KeyboardInterrupt()})
    core = core_of(decoder, [C, D, X], [D, A], [A, B])
    loop = begin(core, [D, A], 8)
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D, A, B, C, D, A]
    assert decoder.history == core.retained[:-1]


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_interrupt_after_a_run_is_taken_up_again(number: int) -> None:
    decoder = SteppingDecoder(successor, after={number: KeyboardInterrupt()})
    core = core_of(decoder, [C, D, X], [D, A], [A, B])
    loop = begin(core, [D, A], 8)
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D, A, B, C, D, A]
    assert decoder.history == core.retained[:-1]


def _interrupted_at(number: int, read: Callable[[], object]) -> bool:
    """Read with an interrupt before the line of `speculative_evaluation.py` with this number; False: there is none."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != speculative_evaluation.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_loses_nothing() -> None:
    number = 0
    while True:
        number += 1
        decoder = SteppingDecoder(successor)
        core = core_of(decoder, [C, D, X], [B, C])
        loop = begin(core, [D, A], 8)
        taken: list[int | None] = []

        def take_all(loop: GenerationLoop = loop, taken: list[int | None] = taken) -> None:
            while (update := loop.read_next()) is not None:
                taken.append(update.token_id)

        if not _interrupted_at(number, take_all):
            break
        take_all()
        assert taken == [B, C, D, A, B, C, D, A], f"line {number}"
        assert decoder.history == core.retained[:-1], f"line {number}"
        assert core.evaluated == len(decoder.history), f"line {number}"
    assert number > 100


def test_an_interrupt_at_any_line_may_be_the_end() -> None:
    number = 0
    while True:
        number += 1
        decoder = SteppingDecoder(successor)
        core = core_of(decoder, [C, D, X], [B, C])
        loop = begin(core, [D, A], 8)
        if not _interrupted_at(number, lambda loop=loop: read(loop)):  # type: ignore[misc]
            break
        loop.close()
        assert core.retained == [D, A, B, C, D, A, B, C, D, A][: len(core.retained)], f"line {number}"
        assert decoder.history == core.retained[: core.evaluated], f"line {number}"
        again = read(begin(core, [D, A, B], 3))
        assert again == [C, D, A], f"line {number}"


def test_an_interrupted_step_may_be_left_at_once() -> None:
    decoder = SteppingDecoder(successor, after={2: KeyboardInterrupt()})
    core = core_of(decoder, [C, D, A])
    loop = begin(core, [D, A])
    assert _read_until_interrupt(loop) == [B]
    loop.close()
    assert core.retained == [D, A, B]
    assert decoder.history == [D, A]


def test_a_state_that_cannot_go_back_begins_anew_and_drafts_no_more() -> None:
    decoder = SteppingDecoder(successor, can_rewind=False)
    core = core_of(decoder, [C, X], [A, B])
    loop = begin(core, [D, A], 6)
    assert read(loop) == [B, C, D, A, B, C]
    assert decoder.runs == [[D, A], [B, C, X], [D, A, B, C, D], [A], [B]]
    assert decoder.resets == 1
    assert "taken back" in str(statistics(loop).failure)


def test_a_failing_step_is_an_error() -> None:
    decoder = SteppingDecoder(successor, before={2: WinMLError(0x80004005, "step", "broken")})
    core = core_of(decoder, [C, D])
    loop = begin(core, [D, A])
    assert read(loop) == [B]
    assert loop.result is not None
    assert loop.result.error_code == 0x80004005
    assert core.state is State.RESET_REQUIRED
    core.reset()
    assert read(begin(core, [D, A], 2)) == [B, C]


def test_a_late_cancel_of_an_earlier_operation_is_no_end() -> None:
    decoder = SteppingDecoder(successor, before={2: WinMLError(0x800704C7, "step", "stopped")})
    core = core_of(decoder, [C, D])
    assert read(begin(core, [D, A], 3)) == [B, C, D]
    assert decoder.runs == [[D, A], [B, C], [B], [C]]


def test_a_cancel_during_a_step_samples_nothing() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D])
    source = CancellationSource()
    decoder.hooks[2] = source.cancel
    loop = core.start([D, A], TextGenerationOptions(9), source)
    assert read(loop) == [B]
    assert core.retained == [D, A, B]
    assert core.evaluated == 3
    assert decoder.history == [D, A, B]
    assert source_of(core).aborts == 1


def test_a_finished_generation_is_not_called_by_its_source_of_cancellation() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder, [C, D])
    source = CancellationSource()
    loop = core.start([D, A], TextGenerationOptions(3), source)
    assert read(loop) == [B, C, D]
    source.cancel()
    assert source_of(core).aborts == 0


def test_without_a_draft_steps_are_single() -> None:
    decoder = SteppingDecoder(successor)
    core = core_of(decoder)
    loop = begin(core, [D, A], 3)
    assert read(loop) == [B, C, D]
    assert decoder.runs == [[D, A], [B], [C]]
    assert statistics(loop) == TextGenerationSpeculativeStatistics(Method.MODEL, 0, 0, 0)


def test_penalties_count_verified_tokens_one_by_one() -> None:
    def logits(history: Any) -> Any:
        row = successor(history)
        row[Y] = 8.0
        return row

    decoder = SteppingDecoder(logits)
    core = core_of(decoder, [C, D, A, B, C])
    sequential = SequenceCore(ScriptedDecoder(logits), ScriptedTokenizer(), ())  # type: ignore[arg-type]
    drafted = read(begin(core, [X, A], 7, repetition_penalty=1.2))
    assert drafted == read(begin(sequential, [X, A], 7, repetition_penalty=1.2))
    assert drafted[:3] == [B, C, D]
    assert Y in drafted


def _read_until_interrupt(loop: GenerationLoop) -> list[int | None]:
    taken: list[int | None] = []
    with pytest.raises(KeyboardInterrupt):
        while (update := loop.read_next()) is not None:
            taken.append(update.token_id)
    return taken
