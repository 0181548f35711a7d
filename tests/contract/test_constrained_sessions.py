"""Constraints in sessions, over a scripted stage whose logits would rather say something else. They run on the fake, on
ONNX Runtime and on llama.cpp.

Statement 77 of genai 13 (with a real constraint), genai 6.2, 6.5 and 6.8, and the cases of class constraint that need a
generation. The vocabulary has a token for each byte.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fakes.constraints import ENDOFTEXT, HI, IM_END, SIZE, byte_vocabulary, candidates
from fakes.rig import failing
from fakes.scripted import Compose, Composed, Row
from fakes.vocabularies import sentence_piece
from genai import TextGenerationOptions, TokenConstraint
from genai.conversation_result import ConversationPreservedToken
from genai.loop import GenerationLoop
from genai.messages import ChatCompletionResponseFormat
from genai.tasks import TextGenerationFinishReason, TextGenerationSession, TextGenerationSessionState
from genai.tokenizer import Tokenizer
from models.table_decoders import TableDecoder

pytest.importorskip("llguidance")

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F
NO_LEGAL_TOKEN = 0x80070491
OBJECT = dataclasses.replace(HI, response_format=ChatCompletionResponseFormat.JSON_OBJECT)
PROMPT = list(b"say: ")


def preferring(text: str) -> TableDecoder:
    """Score the bytes of `text` highest, from the first on; then the lower id."""
    row: Row = -np.arange(SIZE).astype(np.float32)
    for place, byte in enumerate(dict.fromkeys(text.encode())):
        row[byte] = 1000.0 - place
    return TableDecoder(SIZE, constant=row)


noise = TableDecoder(SIZE, following=np.random.default_rng(5).standard_normal((SIZE, SIZE)).astype(np.float32) * 4)
"""Random logits that depend on the last token."""


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    return byte_vocabulary(tmp_path_factory.mktemp("bytes")), SIZE


@pytest.fixture
def stage(tmp_path: Path, vocabulary: tuple[Path, int], compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, noise, capacity=512, vocabulary=vocabulary) as stage:
        yield stage


@pytest.fixture
def session(stage: Composed) -> TextGenerationSession:
    return stage.session()


@pytest.fixture
def json_object(stage: Composed) -> TokenConstraint:
    return stage.tokenizer.create_constraint(stage.tokenizer.format_conversation(OBJECT))


def options(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def test_an_answer_ends_where_the_constraint_does(stage: Composed) -> None:
    stage.follow(preferring("7x"))
    session = stage.session()
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]{3}")
    with session.generate_tokens_with_constraint(PROMPT, digits, options(20)) as stream:
        assert [update.fragment for update in stream] == ["7", "7", "7"]
        result = stream.result
    assert (result.text, result.finish_reason, result.constraint_complete) == ("777", Reason.EOS_TOKEN, True)
    assert digits.state.accepted_token_count == 4  # the EOS token too
    assert session.retained_token_ids == (*PROMPT, *b"777")
    assert session.sequence_state.evaluated_token_count == len(PROMPT) + 3
    assert result.parsed is None


def test_g77_random_logits_at_a_high_temperature_stay_legal(stage: Composed, session: TextGenerationSession) -> None:
    constraint = stage.tokenizer.create_constraint_from_json_schema(
        {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3}
    )
    for seed in range(1, 11):
        with session.generate_tokens_with_constraint(
            PROMPT, constraint, options(200, temperature=3, top_k=50, top_p=0.9, min_p=0.01, seed=seed)
        ) as stream:
            for _ in stream:
                pass
            assert stream.result.finish_reason is Reason.EOS_TOKEN
        values = json.loads(stream.result.text)
        assert len(values) <= 3
        assert all(value <= 99 for value in values)


def test_without_eos_tokens_the_constraint_still_stops(stage: Composed) -> None:
    stage.follow(preferring("7"))
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]{2}")
    with stage.session(eos_token_ids=()).generate_tokens_with_constraint(PROMPT, digits, options(20)) as stream:
        assert "".join(update.fragment for update in stream) == "77"
        assert stream.result.finish_reason is Reason.STOP_TOKEN


def test_a_preserved_stop_token_stays_in_the_output(stage: Composed) -> None:
    stage.follow(preferring("{}"))
    session = stage.session()
    result = stage.tokenizer.format_conversation(OBJECT)
    marks = tuple(ConversationPreservedToken(token_id, "") for token_id in (IM_END, ENDOFTEXT))
    constraint = stage.tokenizer.create_constraint(dataclasses.replace(result, preserved_tokens=marks))
    with session.generate_tokens_with_constraint(PROMPT, constraint, options(20)) as stream:
        updates = [(update.token_id, update.fragment) for update in stream]
        assert updates == [(ord("{"), "{"), (ord("}"), "}"), (ENDOFTEXT, "<|endoftext|>")]
        assert stream.result.finish_reason is Reason.EOS_TOKEN
    assert session.retained_token_ids == (*PROMPT, *b"{}", ENDOFTEXT)


def test_the_constraint_starts_over(stage: Composed) -> None:
    stage.follow(preferring("7"))
    session = stage.session()
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]{2}")
    digits.accept_token(ord("1"))
    for _ in range(2):
        with session.generate_tokens_with_constraint(PROMPT, digits, options(20)) as stream:
            assert "".join(update.fragment for update in stream) == "77"


def test_one_stream_at_a_time_uses_a_constraint(stage: Composed, session: TextGenerationSession) -> None:
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]+")
    stream = session.generate_tokens_with_constraint(PROMPT, digits, options(20))
    stream.read_next()
    with failing(E_NOT_VALID_STATE):
        digits.accept_token(ord("1"))
    with failing(E_NOT_VALID_STATE):
        digits.reset()
    assert digits.state.accepted_token_count == 1
    assert digits.filter_candidates(candidates([ord("1")]))
    stream.close()
    digits.reset()
    with session.generate_tokens_with_constraint(PROMPT, digits, options(1)) as again:
        assert again.read_next() is not None


def test_a_foreign_constraint_is_refused(stage: Composed, session: TextGenerationSession, tmp_path: Path) -> None:
    path = sentence_piece(tmp_path / "other", {"tokenizer_config.json": {"eos_token": "</s>"}})
    with Tokenizer.from_file(path) as other:
        foreign = other.create_constraint_from_regex("[0-9]+")
        with failing(E_INVALIDARG):
            session.generate_tokens_with_constraint(PROMPT, foreign)
    with pytest.raises(TypeError, match="constraint must be a TokenConstraint"):
        session.generate_tokens_with_constraint(PROMPT, "[0-9]+")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        session.generate_tokens_with_constraint([], foreign)
    assert session.state is State.EMPTY


def test_a_closed_constraint_is_refused(stage: Composed, session: TextGenerationSession) -> None:
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]+")
    digits.close()
    with pytest.raises(RuntimeError, match="TokenConstraint is closed"):
        session.generate_tokens_with_constraint(PROMPT, digits)


def test_continuing_under_a_constraint(stage: Composed) -> None:
    stage.follow(preferring("7"))
    session = stage.session()
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]{2}")
    with session.generate_tokens(PROMPT, options(2)) as stream:
        assert len(list(stream)) == 2
    with session.continue_tokens_with_constraint([ord(" ")], digits, options(20)) as stream:
        assert "".join(update.fragment for update in stream) == "77"
        assert stream.result.finish_reason is Reason.EOS_TOKEN
    assert session.retained_token_ids == (*PROMPT, *b"77 77")


def test_nothing_legal_above_minus_infinity_ends_with_an_error(stage: Composed) -> None:
    row = np.full(SIZE, -np.inf, np.float32)
    row[ord("x")] = 1
    stage.follow(TableDecoder(SIZE, constant=row))
    session = stage.session()
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]+")
    with session.generate_tokens_with_constraint(PROMPT, digits) as stream:
        assert stream.read_next() is None
        assert (stream.result.finish_reason, stream.result.error_code) == (Reason.ERROR, NO_LEGAL_TOKEN)
    assert session.state is State.RESET_REQUIRED
    digits.reset()


def test_capabilities_name_constraints(session: TextGenerationSession) -> None:
    capabilities = session.capabilities
    assert capabilities.supports_constraints
    assert capabilities.supports_constrained_continuation
    assert capabilities.supports_constrained_embedding_segments is capabilities.supports_embedding_segments


def test_an_unconstrained_result_says_nothing_of_constraints(session: TextGenerationSession) -> None:
    with session.generate_tokens(PROMPT, options(1)) as stream:
        list(stream)
        assert stream.result.constraint_complete is None


def test_a_text_that_lacks_its_stop_token_is_not_complete(stage: Composed) -> None:
    stage.follow(preferring("7"))
    digits = stage.tokenizer.create_constraint_from_regex("7{2}8")
    stream = stage.session().generate_tokens_with_constraint(PROMPT, digits, options(20, stop_token_ids=[ord("8")]))
    assert "".join(update.fragment for update in stream) == "77"
    assert (stream.result.finish_reason, stream.result.constraint_complete) == (Reason.STOP_TOKEN, False)
    assert digits.state.accepted_token_count == 3


def test_a_text_that_a_stop_has_cut_is_not_complete(stage: Composed) -> None:
    stage.follow(preferring("7"))
    digits = stage.tokenizer.create_constraint_from_regex("7{2}8")
    stream = stage.session().generate_tokens_with_constraint(PROMPT, digits, options(20, stop=["8"]))
    assert "".join(update.fragment for update in stream) == "77"
    assert (stream.result.finish_reason, stream.result.constraint_complete) == (Reason.STOP_TOKEN, False)


def test_an_interrupt_between_acceptance_and_use_loses_nothing(
    stage: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.follow(preferring("7"))
    session = stage.session()
    digits = stage.tokenizer.create_constraint_from_regex("[0-9]{3}")
    stream = session.generate_tokens_with_constraint(PROMPT, digits, options(20))
    assert stream.read_next() is not None
    with monkeypatch.context() as patch:
        patch.setattr(GenerationLoop, "_emit", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            stream.read_next()
    assert digits.state.accepted_token_count == 2
    assert [update.fragment for update in stream] == ["7", "7"]
    assert stream.result.text == "777"


def _interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


# --- cases ------------------------------------------------------------------------------------------------------------


def test_s_con_01_a_refused_schema_runs_no_model(stage: Composed, session: TextGenerationSession) -> None:
    with failing(E_INVALIDARG):
        stage.tokenizer.create_constraint_from_json_schema({"type": "zzz"})
    assert session.state is State.EMPTY
    assert stage.script.runs == 0


def test_s_con_03_the_answer_is_json_from_its_first_character(stage: Composed, json_object: TokenConstraint) -> None:
    # Line ends first, then chatter, then what ends a string and an object.
    stage.follow(preferring('\n\tSure, here is:"}{'))
    session = stage.session()
    with session.generate_tokens_with_constraint(PROMPT, json_object, options(200)) as stream:
        fragments = [update.fragment for update in stream]
    assert fragments[0] == "{"
    assert re.fullmatch(r'\{\n *"S+', "".join(fragments))  # no line end within the string


def test_s_con_03_strings_end_and_parse(stage: Composed) -> None:
    stage.follow(preferring('\n"'))
    session = stage.session()
    text = stage.tokenizer.create_constraint_from_json_schema({"type": "string"})
    with session.generate_tokens_with_constraint(PROMPT, text, options(50)) as stream:
        list(stream)
        assert json.loads(stream.result.text, strict=True) == ""


def test_s_con_04_blanks_are_bounded_and_the_answer_ends(stage: Composed, json_object: TokenConstraint) -> None:
    stage.follow(preferring(" \n}"))
    session = stage.session()
    with session.generate_tokens_with_constraint(PROMPT, json_object, options(100)) as stream:
        list(stream)
        assert (stream.result.text, stream.result.finish_reason) == ("{ }", Reason.EOS_TOKEN)


def test_s_con_04_a_cut_answer_is_not_complete(stage: Composed, json_object: TokenConstraint) -> None:
    stage.follow(preferring('"a'))
    session = stage.session()
    with session.generate_tokens_with_constraint(PROMPT, json_object, options(3)) as stream:
        list(stream)
        assert (stream.result.text, stream.result.finish_reason) == ('{""', Reason.MAX_TOKENS)
        assert stream.result.constraint_complete is False


def test_s_con_05_greedy_equals_the_best_of_the_whole_mask(
    stage: Composed, session: TextGenerationSession, json_object: TokenConstraint
) -> None:
    with session.generate_tokens_with_constraint(PROMPT, json_object, options(100)) as stream:
        emitted = [update.token_id for update in stream]
    history = list(PROMPT)
    json_object.reset()
    for token_id in emitted:
        row = noise(history)
        assert json_object.select_highest_allowed_candidate(candidates(logits=row.tolist())) == token_id
        assert token_id is not None
        json_object.accept_token(token_id)
        history.append(token_id)
    assert len(emitted) >= 20
