"""Sessions saved to a file and loaded again (genai 8), on the fake, on ONNX Runtime and on llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, A, B, C, Compose, Composed, D, majority, saying
from genai import TextGenerationOptions
from genai.tasks import TextGenerationSequenceDisclosure, TextGenerationSession, TextGenerationSessionState

State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure
PROMPT = [A, C, C, B, D]
E_NOT_VALID_STATE = 0x8007139F
INVALID_DATA = 0x8007000D


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage whose answer depends on the whole sequence, with room for 64 tokens."""
    with compose(tmp_path / "stage", majority) as stage:
        yield stage


def options(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def generated(session: TextGenerationSession, count: int, *prompt: int) -> list[int]:
    """Generate to the end."""
    stream = session.generate_tokens(prompt or PROMPT, options(count))
    return [update.token_id for update in stream if update.token_id is not None]


def continued(session: TextGenerationSession, count: int, *suffix: int) -> list[int]:
    stream = session.continue_tokens(suffix, options(count))
    return [update.token_id for update in stream if update.token_id is not None]


def reloaded(stage: Composed, session: TextGenerationSession, path: Path) -> TextGenerationSession:
    """A session of another life of the pipeline, with what the first one saved."""
    session.save_state(path)
    session.close()
    stage.pipeline.reset()
    other = stage.session(())
    other.load_state(path)
    return other


def test_a_loaded_session_is_the_saved_one(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 4)
    retained, before = session.retained_token_ids, session.sequence_state
    other = reloaded(stage, session, tmp_path / "session.state")
    assert other.state is State.READY
    assert other.sequence_state == before
    assert before.disclosure is Disclosure.RETAINED
    assert (before.evaluated_token_count, before.retained_token_count) == (8, 9)
    assert other.retained_token_ids == retained


def test_it_continues_as_the_undisturbed_one(stage: Composed, tmp_path: Path) -> None:
    whole = generated(stage.session(()), 12)
    stage.pipeline.reset()
    session = stage.session(())
    first = generated(session, 5)
    assert first + continued(reloaded(stage, session, tmp_path / "session.state"), 7) == whole


def test_it_continues_behind_more_tokens(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 3)
    session.save_state(tmp_path / "session.state")
    wanted = continued(session, 6, B, B)
    session.load_state(tmp_path / "session.state")
    assert continued(session, 6, B, B) == wanted


def test_a_prompt_that_goes_on_from_it_is_not_evaluated_again(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    answer = generated(session, 4)
    other = reloaded(stage, session, tmp_path / "session.state")
    runs = stage.script.runs
    generated(other, 1, *PROMPT, *answer, B)
    assert stage.script.runs == runs + 1
    assert other.sequence_state.evaluated_token_count == len(PROMPT) + 5


def test_after_an_end_of_text_nothing_is_pending(tmp_path: Path, compose: Compose) -> None:
    with compose(tmp_path / "stage", saying(5, A, B, EOS)) as stage:
        session = stage.session()
        assert generated(session, 9) == [A, B]
        other = reloaded(stage, session, tmp_path / "session.state")
        assert other.retained_token_ids == (*PROMPT, A, B)
        with failing(0x80070057):
            other.continue_tokens()


def test_loading_replaces_the_present_sequence(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 2)
    session.save_state(tmp_path / "session.state")
    wanted = session.retained_token_ids
    generated(session, 9, B, B, B)
    session.load_state(tmp_path / "session.state")
    assert session.retained_token_ids == wanted


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_empty_session_has_nothing_to_save(stage: Composed, tmp_path: Path) -> None:
    with failing(E_NOT_VALID_STATE) as caught:
        stage.session().save_state(tmp_path / "session.state")
    assert "EMPTY" in str(caught.value)


def test_only_between_operations(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 2)
    session.save_state(tmp_path / "session.state")
    with session.generate_tokens(PROMPT, options(4)) as stream:
        stream.read_next()
        with failing(E_NOT_VALID_STATE):
            session.save_state(tmp_path / "other.state")
        with failing(E_NOT_VALID_STATE):
            session.load_state(tmp_path / "session.state")
        assert stream.read_next() is not None
    assert not (tmp_path / "other.state").exists()


def test_a_damaged_file_changes_nothing(stage: Composed, tmp_path: Path) -> None:
    path = tmp_path / "session.state"
    session = stage.session(())
    generated(session, 2)
    session.save_state(path)
    path.write_bytes(path.read_bytes()[:-100])
    before = session.retained_token_ids
    wanted = 3
    with failing(0x80070570):
        session.load_state(path)
    assert session.retained_token_ids == before
    assert len(continued(session, wanted)) == wanted


def test_a_missing_file(stage: Composed, tmp_path: Path) -> None:
    with failing(0x80070002):
        stage.session().load_state(tmp_path / "absent.state")


def test_the_state_of_a_stage_alone_is_no_sequence(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 2)
    before = session.retained_token_ids
    stage.stage.save_sequence_state(tmp_path / "stage.state")
    with failing(INVALID_DATA) as caught:
        session.load_state(tmp_path / "stage.state")
    assert "no sequence of tokens" in str(caught.value)
    assert session.retained_token_ids == before


def test_too_many_tokens_for_the_capacity(tmp_path: Path, compose: Compose) -> None:
    path = tmp_path / "session.state"
    with compose(tmp_path / "one", majority) as stage:
        session = stage.session(())
        generated(session, 8)
        session.save_state(path)
    with compose(tmp_path / "two", majority, capacity=9) as small:
        session = small.session(())
        with failing(0x8007007A):
            session.load_state(path)
        assert session.state is State.EMPTY


def test_a_session_that_needs_a_reset_loads_nothing(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 2)
    session.save_state(tmp_path / "session.state")
    stage.pipeline.reset()
    with failing(E_NOT_VALID_STATE):
        session.continue_tokens((), options(1))
    with failing(E_NOT_VALID_STATE):
        session.load_state(tmp_path / "session.state")
    session.reset()
    session.load_state(tmp_path / "session.state")
    assert session.state is State.READY


def test_a_position_that_somebody_else_moved_is_not_saved(stage: Composed, tmp_path: Path) -> None:
    session = stage.session(())
    generated(session, 2)
    stage.stage.rewind(3)
    with failing(E_NOT_VALID_STATE):
        session.save_state(tmp_path / "session.state")
