"""One generation at a time: what an interrupt, an error or a cancel at any point leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import A, B, C, D, ScriptedDecoder, ScriptedTokenizer, one_hot, saying, successor
from genai import CancellationSource, TextGenerationFinishReason, TextGenerationOptions
from genai.loop import GenerationLoop
from genai.sequence import SequenceCore
from genai.tasks import TextGenerationSessionState
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState


def core_of(decoder: Any) -> SequenceCore:
    return SequenceCore(decoder, ScriptedTokenizer(), ())  # type: ignore[arg-type]


def begin(
    decoder: ScriptedDecoder, prompt: list[int], count: int = 3, source: CancellationSource | None = None
) -> GenerationLoop:
    return core_of(decoder).start(prompt, TextGenerationOptions(count), source or CancellationSource())


def state_of(core: SequenceCore) -> TextGenerationSessionState:
    return core.state


def read(loop: GenerationLoop) -> list[int | None]:
    ids = []
    while (update := loop.read_next()) is not None:
        ids.append(update.token_id)
    return ids


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_before_a_run_is_taken_up_again(number: int) -> None:
    decoder = ScriptedDecoder(successor, before={number: KeyboardInterrupt()})
    loop = begin(decoder, [A])
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_after_a_run_is_taken_up_again(number: int) -> None:
    decoder = ScriptedDecoder(successor, after={number: KeyboardInterrupt()})
    loop = begin(decoder, [A, A])
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D]
    assert decoder.history == [A, A, B, C]


def test_an_interrupt_between_pieces_of_a_prompt_keeps_those_that_ran() -> None:
    decoder = ScriptedDecoder(successor, chunk=2, after={2: KeyboardInterrupt()})
    loop = begin(decoder, [A, A, A, A, A], 1)
    with pytest.raises(KeyboardInterrupt):
        loop.read_next()
    assert read(loop) == [B]
    assert decoder.runs == [[A, A], [A, A], [A]]


def test_an_interrupt_after_a_run_of_a_state_that_cannot_rewind_runs_everything_again() -> None:
    decoder = ScriptedDecoder(successor, can_rewind=False, after={2: KeyboardInterrupt()})
    loop = begin(decoder, [A, A])
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D]
    assert decoder.runs == [[A, A], [B], [A, A, B], [C]]


def test_an_interrupted_generation_may_be_closed_at_once() -> None:
    decoder = ScriptedDecoder(successor, after={2: KeyboardInterrupt()})
    core = core_of(decoder)
    loop = core.start([A], TextGenerationOptions(9), CancellationSource())
    _read_until_interrupt(loop)
    loop.close()
    assert state_of(core) is State.READY
    assert (core.retained, core.evaluated) == ([A, B], 2)
    assert loop.result is not None and loop.result.finish_reason is Reason.CANCELED


def test_an_interrupt_while_the_core_is_given_free_is_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of(ScriptedDecoder(successor))
    loop = core.start([A], TextGenerationOptions(1), CancellationSource())
    loop.read_next()
    monkeypatch.setattr(core, "finished", _interrupting)
    with pytest.raises(KeyboardInterrupt):
        loop.read_next()
    assert state_of(core) is State.ACTIVE
    monkeypatch.undo()
    loop.close()
    assert state_of(core) is State.READY
    assert loop.result is not None and loop.result.finish_reason is Reason.MAX_TOKENS


def test_an_error_after_pieces_of_the_prompt_ends_in_error() -> None:
    decoder = ScriptedDecoder(successor, chunk=2, before={2: WinMLError(0x8000000B, "decode")})
    loop = begin(decoder, [A, A, A])
    assert loop.read_next() is None
    assert loop.result is not None
    assert (loop.result.finish_reason, loop.result.error_code) == (Reason.ERROR, 0x8000000B)


def test_a_token_that_the_vocabulary_lacks_is_an_error() -> None:
    def no_such_token(history: object) -> Any:
        raise WinMLError(0x80070057, "token id", "the vocabulary has no token 99")

    loop = begin(ScriptedDecoder(no_such_token), [A])
    assert loop.read_next() is None
    assert loop.result is not None and loop.result.error_message == "token id: the vocabulary has no token 99"


def test_a_cancel_while_the_run_goes_on_selects_nothing() -> None:
    source = CancellationSource()
    decoder = ScriptedDecoder(successor, hooks={2: source.cancel})
    loop = begin(decoder, [A], 9, source)
    assert read(loop) == [B]
    assert loop.result is not None and loop.result.finish_reason is Reason.CANCELED
    assert decoder.aborts == 1


def test_a_cancel_after_the_end_aborts_nothing() -> None:
    source = CancellationSource()
    decoder = ScriptedDecoder(successor)
    read(begin(decoder, [A], 1, source))
    source.cancel()
    assert decoder.aborts == 0


def test_a_source_that_lives_on_does_not_keep_finished_generations() -> None:
    source = CancellationSource()
    core = core_of(ScriptedDecoder(successor))
    read(core.start([A], TextGenerationOptions(1), source))
    read(core.start([A], TextGenerationOptions(1), source))
    assert source.latch._callbacks == []


def test_reading_and_closing_a_finished_generation_changes_nothing() -> None:
    loop = begin(ScriptedDecoder(successor), [A], 1)
    read(loop)
    result = loop.result
    loop.close()
    assert loop.read_next() is None
    assert loop.result is result


def test_the_seed_is_reported_before_and_after() -> None:
    core = core_of(ScriptedDecoder(lambda history: one_hot(A) * 0))
    loop = core.start([A], TextGenerationOptions(4, temperature=1.0, seed=11), CancellationSource())
    read(loop)
    assert loop.result is not None and loop.result.seed == 11


def test_an_answer_that_ends_at_once_has_no_text() -> None:
    core = core_of(ScriptedDecoder(saying(1, D)))
    core.eos_token_ids = (D,)
    loop = core.start([A], TextGenerationOptions(4), CancellationSource())
    assert read(loop) == []
    assert loop.result is not None
    assert (loop.result.text, loop.result.finish_reason) == ("", Reason.EOS_TOKEN)
    assert (state_of(core), core.retained, core.evaluated) == (State.READY, [A], 1)


def test_a_second_generation_cannot_start_beside_an_open_one() -> None:
    core = core_of(ScriptedDecoder(successor))
    core.start([A], TextGenerationOptions(4), CancellationSource())
    with failing(0x8007139F):
        core.start([A], TextGenerationOptions(4), CancellationSource())


def _read_until_interrupt(loop: GenerationLoop) -> list[int | None]:
    ids: list[int | None] = []
    with pytest.raises(KeyboardInterrupt):
        while (update := loop.read_next()) is not None:
            ids.append(update.token_id)
    return ids


def _interrupting(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_a_stage_that_lost_its_state_in_an_interrupt_is_fed_from_the_start() -> None:
    decoder = ScriptedDecoder(successor)
    decoder.hooks[3] = decoder.history.clear
    decoder.before[3] = KeyboardInterrupt()
    loop = begin(decoder, [A, A])
    taken = _read_until_interrupt(loop)
    assert taken + read(loop) == [B, C, D]
    assert decoder.runs[-1] == [A, A, B, C]


def test_rows_longer_than_the_vocabulary_of_the_tokenizer_are_taken() -> None:
    def padded(history: object) -> Any:
        return one_hot(B, 20)

    decoder = ScriptedDecoder(padded, vocabulary_size=0)
    options = TextGenerationOptions(2, temperature=1.0, repetition_penalty=1.1, top_k=1, seed=1)
    loop = core_of(decoder).start([A], options, CancellationSource())
    assert read(loop) == [B, B]


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
@pytest.mark.parametrize("name", ["logits_processors", "stopping"])
def test_a_function_cannot_end_the_generation_unseen(name: str, error: type[Exception]) -> None:
    def fail(*_: object) -> Any:
        raise error

    options: Any = {name: fail}
    loop = core_of(ScriptedDecoder(successor)).start([A], TextGenerationOptions(3, **options), CancellationSource())
    with pytest.raises(RuntimeError, match=f"a function of the options raised {error.__name__}"):
        read(loop)
