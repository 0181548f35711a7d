"""Constraints driven by hand: statements 46 and 54 to 63 of genai 13, and the cases of class constraint.

The vocabulary has a token for each byte, so a text can be accepted byte by byte. Sessions are
`test_constrained_sessions.py`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.constraints import (
    ENDOFTEXT,
    HE,
    HELLO,
    HI,
    IM_END,
    IM_START,
    NI_BYTES,
    SIZE,
    accept,
    byte_vocabulary,
    candidates,
    lazy_result,
    legal,
    trigger,
)
from fakes.rig import failing
from fakes.vocabularies import byte_level
from genai import tasks
from genai.conversation_result import ConversationPreservedToken
from genai.runtime import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    NotSupportedError,
    TokenConstraint,
    TokenConstraintCandidate,
    TokenConstraintStateFlags,
    TokenConstraintStatus,
    Tokenizer,
    WinMLError,
)
from rules.project import ROOT

pytest.importorskip("llguidance")

Flags = TokenConstraintStateFlags
Status = TokenConstraintStatus
DIGITS = set(b"0123456789")
ENDS = {IM_END, ENDOFTEXT}
OBJECT = dataclasses.replace(HI, response_format=ChatCompletionResponseFormat.JSON_OBJECT)
CALL = 'start: "<c>" /[0-9]+/\n'

E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F
NO_LEGAL_TOKEN = 0x80070491
NOT_SUPPORTED = 0x80070032
WRONG_THREAD = 0x8001010E


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_vocabulary(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Iterator[Tokenizer]:
    with Tokenizer.from_file(folder) as tokenizer:
        yield tokenizer


@pytest.fixture
def json_object(tokenizer: Tokenizer) -> TokenConstraint:
    """The constraint of a request for any JSON object."""
    return tokenizer.create_constraint(tokenizer.format_conversation(OBJECT))


@pytest.fixture
def number(tokenizer: Tokenizer) -> TokenConstraint:
    """Digits, one or more."""
    return tokenizer.create_constraint_from_regex("[0-9]+")


def text_of(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


# --- making -----------------------------------------------------------------------------------------------------------


def test_g46_a_result_without_a_constraint(tokenizer: Tokenizer) -> None:
    with failing(NOT_SUPPORTED, NotSupportedError):
        tokenizer.create_constraint(tokenizer.format_conversation(HI))


def test_g46_a_result_of_another_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    with Tokenizer.from_file(folder) as other, failing(E_INVALIDARG):
        tokenizer.create_constraint(other.format_conversation(OBJECT))


def test_only_a_format_result_has_a_constraint(tokenizer: Tokenizer) -> None:
    with pytest.raises(TypeError, match="format_result must be a ConversationFormatResult"):
        tokenizer.create_constraint("{}")  # type: ignore[arg-type]


def test_an_unknown_syntax_is_refused(tokenizer: Tokenizer) -> None:
    result = tokenizer.format_conversation(OBJECT)
    assert result.constraint is not None
    other = dataclasses.replace(result, constraint=dataclasses.replace(result.constraint, syntax_version=2))
    with failing(NOT_SUPPORTED, NotSupportedError):
        tokenizer.create_constraint(other)


def test_a_vocabulary_without_an_end_cannot_be_constrained(tmp_path: Path) -> None:
    with Tokenizer.from_file(byte_level(tmp_path)) as endless, failing(NOT_SUPPORTED, NotSupportedError):
        endless.create_constraint_from_regex("a")


def test_without_the_engine_the_extra_is_named(folder: Path) -> None:
    program = (
        "import sys\nsys.modules['llguidance'] = None\nfrom genai import Tokenizer, NotSupportedError\n"
        f"try: Tokenizer.from_file({str(folder)!r}).create_constraint_from_regex('a')\n"
        "except NotSupportedError as error: print(hex(error.hresult), error.native_message)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0x8007007e constraints need llguidance: pip install 'winml-lite[guidance]'")


def test_the_vocabulary_is_that_of_the_tokenizer(tokenizer: Tokenizer, number: TokenConstraint) -> None:
    assert number.vocabulary_identity == tokenizer.vocabulary_identity
    assert number.vocabulary_identity.token_count == SIZE


def test_equal_vocabularies_share_their_table(tokenizer: Tokenizer, folder: Path) -> None:
    with Tokenizer.from_file(folder) as twin:
        assert twin.underlying_object.token_table is tokenizer.underlying_object.token_table


# --- filtering and selecting ------------------------------------------------------------------------------------------


def test_g54_order_and_logits_stay_and_the_input_too(number: TokenConstraint) -> None:
    given = candidates([ord("7"), ord("x"), ord("1")], [3.0, 9.0, math.nan])
    before = list(given)
    found = number.filter_candidates(given)
    assert [candidate.token_id for candidate in found] == [ord("7"), ord("1")]
    assert found[0] is given[0]
    assert math.isnan(found[1].logit)
    assert all(one is other for one, other in zip(given, before, strict=True))


def test_g55_an_object_begins_with_a_brace(tokenizer: Tokenizer, json_object: TokenConstraint) -> None:
    survivors = legal(json_object)
    assert ord("{") in survivors
    assert all(text_of(tokenizer, token_id).strip().startswith("{") for token_id in survivors)


def test_g56_a_complete_object_can_stop(json_object: TokenConstraint) -> None:
    accept(json_object, '{"a": [1, {"b": null}]}')
    assert json_object.state.status is Status.ACTIVE
    assert json_object.state.state_flags is Flags.CAN_STOP
    assert legal(json_object) == ENDS
    json_object.accept_token(IM_END)
    assert json_object.state.status is Status.COMPLETED
    assert json_object.state.state_flags is Flags.NONE


def test_g57_an_illegal_token_poisons(json_object: TokenConstraint) -> None:
    with failing(E_INVALIDARG):
        json_object.accept_token(ord("x"))
    assert json_object.state.status is Status.POISONED
    assert json_object.state.state_flags is Flags.NONE
    with failing(E_NOT_VALID_STATE):
        json_object.accept_token(ord("{"))
    json_object.reset()
    assert json_object.state.status is Status.ACTIVE
    assert accept(json_object, "{}").state.state_flags is Flags.CAN_STOP


def test_a_stop_token_before_the_end_is_illegal(json_object: TokenConstraint) -> None:
    accept(json_object, "{")
    assert not legal(json_object) & ENDS
    with failing(E_INVALIDARG):
        json_object.accept_token(IM_END)
    assert json_object.state.status is Status.POISONED


def test_a_completed_constraint_takes_no_more(number: TokenConstraint) -> None:
    accept(number, "1").accept_token(IM_END)
    for call in (lambda: number.accept_token(ord("2")), lambda: number.filter_candidates(candidates())):
        with failing(E_NOT_VALID_STATE):
            call()
    number.reset()
    assert legal(number) == DIGITS


def test_special_tokens_are_never_part_of_a_text(tokenizer: Tokenizer) -> None:
    anything = tokenizer.create_constraint_from_regex("(?s:.)*")
    assert IM_START not in legal(anything)
    assert legal(accept(anything, "x")) >= ENDS


def test_a_token_that_ends_inside_a_character_is_legal(tokenizer: Tokenizer) -> None:
    one = tokenizer.create_constraint_from_regex("你")
    assert legal(one) == {0xE4, NI_BYTES}
    one.accept_token(NI_BYTES)
    assert one.state.state_flags is Flags.NONE
    assert legal(one) == {0xA0}


def test_g60_of_equal_logits_the_lower_id_wins(number: TokenConstraint) -> None:
    ids = [ord("1"), ord("2"), ord("3"), ord("x")]
    assert number.select_highest_allowed_candidate(candidates(ids, [5, 7, 7, 9])) == ord("2")


def test_g60_nan_and_minus_infinity_are_never_chosen(number: TokenConstraint) -> None:
    ids = [ord("1"), ord("2"), ord("3")]
    assert number.select_highest_allowed_candidate(candidates(ids, [math.nan, -math.inf, -5])) == ord("3")
    with failing(NO_LEGAL_TOKEN):
        number.select_highest_allowed_candidate(candidates(ids, [math.nan, -math.inf, math.nan]))


def test_g60_plus_infinity_wins(number: TokenConstraint) -> None:
    ids = [ord("1"), ord("2"), ord("3")]
    assert number.select_highest_allowed_candidate(candidates(ids, [1e30, math.inf, math.nan])) == ord("2")


def test_g60_ids_must_ascend(number: TokenConstraint) -> None:
    for ids in ([ord("2"), ord("1")], [ord("1"), ord("1")]):
        with failing(E_INVALIDARG):
            number.select_highest_allowed_candidate(candidates(ids))


def test_g60_selecting_changes_nothing(number: TokenConstraint) -> None:
    before = number.state
    number.select_highest_allowed_candidate(candidates())
    assert number.state == before
    assert legal(number) == DIGITS


def test_g61_filter_and_selection_agree_that_nothing_is_legal(number: TokenConstraint) -> None:
    for given in (candidates([ord("x"), ord("y")]), []):
        with failing(NO_LEGAL_TOKEN):
            number.filter_candidates(given)
        with failing(NO_LEGAL_TOKEN):
            number.select_highest_allowed_candidate(given)
    assert number.state.status is Status.ACTIVE


def test_unknown_and_repeated_candidates(number: TokenConstraint) -> None:
    for ids in ([ord("1"), SIZE], [ord("1"), ord("1")]):
        with failing(E_INVALIDARG):
            number.filter_candidates(candidates(ids))
    with failing(E_INVALIDARG):
        number.select_highest_allowed_candidate(candidates([ord("1"), SIZE]))


def test_g62_every_accepted_token_counts(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TEXT", "<c>")))
    assert lazy.state.accepted_token_count == 0
    for count, byte in enumerate(b"hi <c>4", 1):
        lazy.accept_token(byte)
        assert lazy.state.accepted_token_count == count
    with failing(E_INVALIDARG):
        lazy.accept_token(ord("x"))
    assert lazy.state.accepted_token_count == 7


def test_stop_and_preserved_tokens(tokenizer: Tokenizer) -> None:
    marks = tuple(ConversationPreservedToken(token_id, "") for token_id in (IM_START, ENDOFTEXT, None))
    result = dataclasses.replace(tokenizer.format_conversation(OBJECT), preserved_tokens=marks)
    constraint = tokenizer.create_constraint(result)
    ids = (IM_START, IM_END, ENDOFTEXT, ord("a"), 10**6)
    assert [constraint.is_stop_token(token_id) for token_id in ids] == [False, True, True, False, False]
    assert [constraint.is_preserved_token(token_id) for token_id in ids] == [False, False, True, False, False]


def test_g63_another_thread_may_not_use_it(number: TokenConstraint) -> None:
    codes: list[int] = []

    def run() -> None:
        for call in (
            lambda: number.state,
            lambda: number.filter_candidates(candidates()),
            lambda: number.accept_token(ord("1")),
            number.reset,
            number.close,
        ):
            try:
                call()
            except WinMLError as error:
                codes.append(error.hresult)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [WRONG_THREAD] * 5
    assert legal(number) == DIGITS


def test_a_closed_constraint(number: TokenConstraint) -> None:
    with number:
        pass
    number.close()
    for call in (lambda: number.state, lambda: number.accept_token(1), number.reset, number.__enter__):
        with pytest.raises(RuntimeError, match="TokenConstraint is closed"):
            call()


# --- values -----------------------------------------------------------------------------------------------------------


def test_both_import_roots_have_the_same_class() -> None:
    assert tasks.TokenConstraint is TokenConstraint


def test_numbers_of_statuses_and_flags() -> None:
    assert [int(status) for status in (Status.ACTIVE, Status.COMPLETED, Status.POISONED)] == [0, 1, 2]
    assert [int(flag) for flag in (Flags.NONE, Flags.AWAITING_TRIGGER, Flags.CAN_STOP)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("token_id", "logit", "error"),
    [
        (True, 0.0, TypeError),
        ("1", 0.0, TypeError),
        (-1, 0.0, ValueError),
        (2**32, 0.0, ValueError),
        (1, True, TypeError),
        (1, "0", TypeError),
        (1, 3.5e38, ValueError),
        (1, -(10**400), ValueError),
    ],
)
def test_a_candidate_checks_its_fields(token_id: int, logit: float, error: type[Exception]) -> None:
    with pytest.raises(error):
        TokenConstraintCandidate(token_id, logit)


def test_a_candidate_may_have_any_float32() -> None:
    assert TokenConstraintCandidate(2**32 - 1, 3).logit == 3.0
    assert TokenConstraintCandidate(0, -math.inf).logit == -math.inf
    assert TokenConstraintCandidate(0, 3.4028234e38).logit == 3.4028234e38


# --- lazy constraints -------------------------------------------------------------------------------------------------


def test_g58_a_lazy_constraint_waits_for_its_trigger(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TEXT", "<c>")))
    assert lazy.state.state_flags == Flags.AWAITING_TRIGGER | Flags.CAN_STOP
    assert legal(lazy) == set(range(SIZE))
    accept(lazy, "free <text> <c>")
    assert lazy.state.state_flags is Flags.NONE
    assert legal(lazy) == DIGITS
    assert accept(lazy, "42").state.state_flags is Flags.CAN_STOP


def test_a_waiting_constraint_may_stop_at_any_time(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TEXT", "<c>")))
    accept(lazy, "no call").accept_token(IM_END)
    assert lazy.state.status is Status.COMPLETED


def test_g58_a_token_triggers_and_is_the_first_to_be_checked(tokenizer: Tokenizer) -> None:
    grammar = f"start: <[{IM_START}]> /[0-9]+/\n"
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, grammar, trigger("TOKEN", "", IM_START)))
    accept(lazy, "free").accept_token(IM_START)
    assert legal(lazy) == DIGITS


def test_a_trigger_token_that_the_grammar_forbids_poisons(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TOKEN", "", IM_START)))
    with failing(E_INVALIDARG):
        lazy.accept_token(IM_START)
    assert lazy.state.status is Status.POISONED


def test_g59_a_trigger_that_begins_inside_a_token(tokenizer: Tokenizer) -> None:
    # "lo!" begins inside the token "hello": the grammar sees "lo", then "!".
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, 'start: "lo!" /[0-9]+/\n', trigger("TEXT", "lo!")))
    lazy.accept_token(HELLO)
    assert lazy.state.state_flags & Flags.AWAITING_TRIGGER
    lazy.accept_token(ord("!"))
    assert legal(lazy) == DIGITS


def test_g59_what_the_trigger_token_says_beyond_it_is_enforced(tokenizer: Tokenizer) -> None:
    # "el" is in "hello", which goes on with "lo" where the grammar wants digits.
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, 'start: "el" /[0-9]+/\n', trigger("TEXT", "el")))
    with failing(E_INVALIDARG):
        lazy.accept_token(HELLO)


def test_g59_a_trigger_after_a_broken_character(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TEXT", "<c>")))
    lazy.accept_token(0xE4)  # the first byte of a character that never ends
    assert legal(accept(lazy, "<c>")) == DIGITS


def test_a_pattern_triggers_at_its_first_group_with_text(tokenizer: Tokenizer) -> None:
    grammar = 'start: "7" /[a-c]/ "!"\n'
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, grammar, trigger("PATTERN", "n=()(x)?([0-9])")))
    accept(lazy, "é n=7")
    assert legal(lazy) == set(b"abc")


def test_a_pattern_without_groups_triggers_at_its_start(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("PATTERN", "<[a-z]>")))
    assert legal(accept(lazy, "hm <c>")) == DIGITS


def test_a_full_pattern_must_match_the_whole_text(tokenizer: Tokenizer) -> None:
    result = lazy_result(tokenizer, CALL, trigger("FULL_PATTERN", "<c>"))
    late = accept(tokenizer.create_constraint(result), "x<c>")
    assert late.state.state_flags & Flags.AWAITING_TRIGGER
    assert legal(accept(tokenizer.create_constraint(result), "<c>")) == DIGITS


def test_reset_waits_for_the_trigger_again(tokenizer: Tokenizer) -> None:
    lazy = tokenizer.create_constraint(lazy_result(tokenizer, CALL, trigger("TEXT", "<c>")))
    accept(lazy, "<c>4").reset()
    assert lazy.state.state_flags == Flags.AWAITING_TRIGGER | Flags.CAN_STOP
    assert legal(accept(lazy, "c> <c>")) == DIGITS


@pytest.mark.parametrize("wrong", [(), (("TEXT", ""),), (("TOKEN", "x"),), (("PATTERN", "("),)])
def test_triggers_that_can_never_be_found(tokenizer: Tokenizer, wrong: tuple[tuple[str, str], ...]) -> None:
    with failing(E_INVALIDARG):
        tokenizer.create_constraint(lazy_result(tokenizer, CALL, *(trigger(*parts) for parts in wrong)))


# --- forms ------------------------------------------------------------------------------------------------------------


def follows(constraint: TokenConstraint, text: str) -> bool:
    """Whether the whole text is allowed."""
    constraint.reset()
    try:
        return bool(accept(constraint, text).state.state_flags & Flags.CAN_STOP)
    except WinMLError:
        return False


def test_a_schema_fixes_types_order_and_bounds(tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "n": {"type": "integer", "maximum": 9}},
        "required": ["name", "n"],
        "additionalProperties": False,
    }
    for given in (schema, json.dumps(schema)):
        constraint = tokenizer.create_constraint_from_json_schema(given)
        assert follows(constraint, '{"name": "Bob", "n": 9}')
        assert not follows(constraint, '{"name": "Bobo", "n": 9}')
        assert not follows(constraint, '{"name": "Bob", "n": 10}')
        assert not follows(constraint, '{"n": 9, "name": "Bob"}')


def test_a_boolean_schema(tokenizer: Tokenizer) -> None:
    assert follows(tokenizer.create_constraint_from_json_schema(True), "[null]")
    with failing(E_INVALIDARG):
        tokenizer.create_constraint_from_json_schema(False)


def test_a_lenient_request_ignores_what_cannot_be_enforced(tokenizer: Tokenizer) -> None:
    request = ChatCompletionRequest(
        (ChatCompletionMessage("user", "hi"),),
        response_format=ChatCompletionResponseFormat.JSON_SCHEMA,
        response_schema_json='{"type": "integer", "not": {"const": 3}}',
    )
    assert follows(tokenizer.create_constraint(tokenizer.format_conversation(request)), "3")
    strict = tokenizer.format_conversation(dataclasses.replace(request, response_schema_strict=True))
    with pytest.raises(NotSupportedError, match='"not"'):
        tokenizer.create_constraint(strict)


def test_a_regular_expression_matches_the_whole_text(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_regex(r"[a-c]{2}/\d")
    assert follows(constraint, "ab/7")
    assert not follows(constraint, "ab/")
    assert not follows(constraint, "xab/7")


def test_choices_are_exact(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_choices(["yes", "yes!", 'a "b"\n\\'])
    assert all(follows(constraint, text) for text in ("yes", "yes!", 'a "b"\n\\'))
    assert not any(follows(constraint, text) for text in ("ye", "yes!!", ""))


def test_grammars_in_both_notations(tokenizer: Tokenizer) -> None:
    for grammar in ('start: "(" start ")" | /[a-z]+/', 'root ::= "(" root ")" | [a-z]+'):
        constraint = tokenizer.create_constraint_from_grammar(grammar)
        assert follows(constraint, "((ab))")
        assert not follows(constraint, "((ab)")


def test_a_longer_token_is_legal_where_its_bytes_are(tokenizer: Tokenizer) -> None:
    constraint = tokenizer.create_constraint_from_choices(["hello"])
    assert legal(constraint) == {ord("h"), HE, HE + 2, HELLO}


# --- cases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "zzz"}, "zzz"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "format": "zzz"}, "zzz"),
        ({"type": "string", "pattern": "a(?=b)"}, "look"),
    ],
)
def test_s_con_01_a_schema_that_cannot_be_enforced_is_refused_by_name(
    tokenizer: Tokenizer, schema: dict[str, object], named: str
) -> None:
    with pytest.raises(WinMLError, match=named):
        tokenizer.create_constraint_from_json_schema(schema)


GRAMMARS = (
    "",
    "root ::=",
    "root ::= x",
    'root ::= root "a"',
    "root ::= " + "(" * 10000 + '"a"' + ")" * 10000,
    "start: " + "(" * 10000 + '"a"' + ")" * 10000,
    "start: r0\n" + "".join(f'r{i}: r{i + 1} "x"\n' for i in range(20000)) + 'r20000: "a"\n',
    "start: x",
    'start: "a',
)


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has `tokenizer` in a process of its own."""
    start = f"from genai import Tokenizer, WinMLError\ntokenizer = Tokenizer.from_file({str(folder)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", start + program], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )


def test_s_con_02_a_wrong_grammar_is_an_error_and_not_a_crash(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "grammars.json").write_text(json.dumps(GRAMMARS), encoding="utf-8")
    program = (
        f"import json\nfor grammar in json.load(open({str(tmp_path / 'grammars.json')!r})):\n"
        "  try: tokenizer.create_constraint_from_grammar(grammar)\n"
        "  except WinMLError as error: print(hex(error.hresult))"
    )
    done = run(folder, program)
    assert (done.returncode, done.stderr) == (0, "")
    wrong, too_deep = ["0x80070057"], ["0x80070032"]
    assert done.stdout.split() == wrong * 5 + too_deep + wrong * 3


def test_s_con_02_chains_of_references_do_not_overflow_the_stack(folder: Path) -> None:
    program = (
        "links = {f'a{i}': {'type': 'array', 'items': {'$ref': f'#/$defs/a{i + 1}'}} for i in range(3000)}\n"
        "schema = {'$defs': {**links, 'a3000': {'type': 'null'}}, '$ref': '#/$defs/a0'}\n"
        "print(tokenizer.create_constraint_from_json_schema(schema).state.status.name)"
    )
    done = run(folder, program)
    assert (done.returncode, done.stdout) == (0, "ACTIVE\n"), done.stderr


def test_s_con_02_a_mistake_in_a_grammar_has_a_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(WinMLError, match="line 2, column 10: there is no rule 'y'"):
        tokenizer.create_constraint_from_grammar('root ::= x\nx    ::= y "a"')
    with pytest.raises(WinMLError, match=r'2\(4\): unknown name: "y"'):
        tokenizer.create_constraint_from_grammar("start: x\nx: y")


def test_s_con_03_no_control_character_inside_a_string(json_object: TokenConstraint) -> None:
    accept(json_object, '{"a')
    assert not legal(json_object) & set(range(0x20))


def test_s_con_04_blanks_between_tokens_are_few(json_object: TokenConstraint) -> None:
    accept(json_object, "{ ")
    assert not legal(json_object) & set(b" \n\t\r")
    json_object.reset()
    accept(json_object, "{\n" + " " * 20)
    assert not legal(json_object) & set(b" \n\t\r")
