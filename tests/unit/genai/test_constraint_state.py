"""Constraints that an interrupt cuts short, and tokens that only a grammar's own words make legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from fakes.constraints import ENDOFTEXT, IM_END, IM_START, accept, byte_vocabulary, lazy_result, legal, trigger
from fakes.rig import failing
from genai.constraint_engine import GrammarMatcher
from genai.runtime import TokenConstraintStateFlags, TokenConstraintStatus
from genai.tokenizer import Tokenizer

pytest.importorskip("llguidance")

Advance = Callable[[GrammarMatcher, Sequence[int]], bool]
Status = TokenConstraintStatus
Flags = TokenConstraintStateFlags


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    with Tokenizer.from_file(byte_vocabulary(tmp_path_factory.mktemp("bytes"))) as tokenizer:
        yield tokenizer


def before(advance: Advance) -> Advance:
    """Interrupt before the engine has moved."""

    def interrupted(matcher: GrammarMatcher, token_ids: Sequence[int]) -> bool:
        raise KeyboardInterrupt

    return interrupted


def after(advance: Advance) -> Advance:
    """Interrupt when the engine has moved."""

    def interrupted(matcher: GrammarMatcher, token_ids: Sequence[int]) -> bool:
        advance(matcher, token_ids)
        raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("moment", [before, after])
def test_an_interrupted_acceptance_is_made_good(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, moment: Callable[[Advance], Advance]
) -> None:
    constraint = accept(tokenizer.create_constraint_from_regex("abcd"), "a")
    with monkeypatch.context() as patch:
        patch.setattr(GrammarMatcher, "advance", moment(GrammarMatcher.advance))
        with pytest.raises(KeyboardInterrupt):
            constraint.accept_token(ord("b"))
    assert constraint.state.accepted_token_count == 2
    assert legal(constraint) == {ord("c")}


def test_an_interrupted_illegal_acceptance_poisons(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = accept(tokenizer.create_constraint_from_regex("abcd"), "a")
    with monkeypatch.context() as patch:
        patch.setattr(GrammarMatcher, "advance", after(GrammarMatcher.advance))
        with pytest.raises(KeyboardInterrupt):
            constraint.accept_token(ord("x"))
    assert constraint.state.status is Status.POISONED
    assert constraint.state.accepted_token_count == 1


def test_a_lazy_constraint_is_made_good_too(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    result = lazy_result(tokenizer, 'start: "<c>" /[0-9]/\n', trigger("TEXT", "<c>"))
    constraint = accept(tokenizer.create_constraint(result), "free <c")
    with monkeypatch.context() as patch:
        patch.setattr(GrammarMatcher, "advance", after(GrammarMatcher.advance))
        with pytest.raises(KeyboardInterrupt):
            constraint.accept_token(ord(">"))
    assert legal(constraint) == set(b"0123456789")
    assert constraint.state.accepted_token_count == 8


def test_a_negation_does_not_make_special_tokens_legal(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_grammar('start: A\nA: ~"a"')
    accept(constraint, "b")
    core = constraint._open()
    assert not core.allows(IM_START)
    assert IM_START not in legal(constraint)
    with failing(0x80070057):
        constraint.accept_token(IM_START)


def test_a_grammar_may_name_special_tokens(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_grammar(f'start: <[{IM_START}]> "a" <[{IM_END}]>')
    assert legal(constraint) == {IM_START}
    constraint.accept_token(IM_START)
    accept(constraint, "a")
    assert legal(constraint) == {IM_END}
    assert constraint.state.state_flags is Flags.NONE
    constraint.accept_token(IM_END)
    assert constraint.state.status is Status.COMPLETED


def test_one_token_and_the_mask_agree(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_json_schema({"type": "array", "items": {"type": "string"}})
    core = constraint._open()
    for byte in b'["a\\n", "\xc3\xa9"]':
        assert {token_id for token_id in range(core.table.token_count) if core.allows(token_id)} == legal(constraint)
        constraint.accept_token(byte)
    assert legal(constraint) == {ENDOFTEXT, IM_END}


def test_compiled_grammars_are_kept(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tokenizer.underlying_object.token_table
    tokenizer.create_constraint_from_regex("kept")

    def fail(grammar: str) -> GrammarMatcher:
        raise AssertionError("compiled again")

    monkeypatch.setattr(table, "_compile", fail)
    assert legal(tokenizer.create_constraint_from_regex("kept")) == {ord("k")}
