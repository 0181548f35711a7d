"""Grammars as texts: GBNF to Lark, and the limits that keep the engine's compiler safe. What they mean to the engine is
tests/contract/test_constraints.py.
"""

from __future__ import annotations

import pytest

from fakes.rig import failing
from genai.grammar import (
    MAX_RULES,
    CallSyntax,
    choices_grammar,
    json_object_grammar,
    json_schema_grammar,
    regex_grammar,
    text_grammar,
    tool_call_grammar,
)
from genai.grammar_gbnf import gbnf_to_lark
from winml_lite import WinMLError

E_INVALIDARG = 0x80070057


def test_a_grammar_without_recursion_is_one_lexeme() -> None:
    lark = gbnf_to_lark('root ::= item ("," item)* # a list\nitem ::= [a-z]+ "!"?\n')
    assert lark == 'start: ROOT\nROOT: (ITEM (("," ITEM))*)\nITEM: ((/[a-z]/)+ ("!")?)\n'


def test_recursive_rules_stay_rules_and_what_lies_between_becomes_lexemes() -> None:
    lark = gbnf_to_lark('root ::= "[" " "* root "]" | Num\nNum ::= [0-9]')
    assert lark == 'start: ((PART_0_X start "]") | NUM)\nNUM: /[0-9]/\nPART_0_X: ("[" (" ")*)\n'


def test_names_stay_apart() -> None:
    lark = gbnf_to_lark(
        'root ::= a-b a_b A-B "(" root ")" | start\na-b ::= "1"\na_b ::= "2"\nA-B ::= "3"\nstart ::= "4"'
    )
    assert 'A_B: "1"\nA_B_X: "2"\nA_B_X_X: "3"\nR_START: "4"' in lark


def test_classes_and_escapes() -> None:
    lark = gbnf_to_lark(r'root ::= [^"\\\]\x7F-\u00e9] . "\t\"\U0001F600"')
    assert r'/[^\x{22}\x{5c}\x{5d}\x{7f}-\x{e9}]/ /(?s:.)/ "\t\"😀"' in lark


def test_special_tokens_pass_through() -> None:
    assert gbnf_to_lark('root ::= <[12]> "a" <|end|>') == 'start: (<[12]> "a" <|end|>)\n'


def test_an_empty_alternative() -> None:
    assert gbnf_to_lark('root ::= "a" |') == 'start: ROOT\nROOT: ("a" | "")\n'


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("", "line 1, column 1: there is no rule 'root'"),
        ("root ::=", "line 1, column 1: the rule 'root' is empty"),
        ("root ::= x", "line 1, column 10: there is no rule 'x'"),
        ('root ::= "a"\n  root ::= "b"', "line 2, column 3: the rule 'root' is defined twice"),
        ('root ::= ("a"', "line 1, column 10: '(' without ')'"),
        ('root ::= "a")', "line 1, column 13: ')' without '('"),
        ('root ::= | * "a"', "line 1, column 12: '*' has nothing before it to repeat"),
        ("root ::= [z-a]", "line 1, column 10: the range 'z' to 'a' runs backwards"),
        ("root ::= []", "line 1, column 10: the character class is empty"),
        (r'root ::= "\q"', r"line 1, column 10: unknown escape '\\q'"),
        ('root ::= "a', "line 1, column 10: '\"' was not expected"),
        ('"a"', "line 1, column 1: a rule was expected (name ::= ...), not '\"a\"'"),
        ("root ::= " + "(" * 70 + '"a"' + ")" * 70, "line 1, column 75: groups are nested more than 64 deep"),
    ],
)
def test_a_mistake_in_gbnf_has_a_place(grammar: str, problem: str) -> None:
    with failing(E_INVALIDARG) as caught:
        gbnf_to_lark(grammar)
    assert caught.value.native_message == problem


def test_the_notation_is_recognised() -> None:
    assert text_grammar("start: /a/\n") == "start: /a/\n"
    assert text_grammar('root ::= "a"') == 'start: ROOT\nROOT: "a"\n'


@pytest.mark.parametrize("rule", ['r{}: "a"\n', 'r{} ::= "a"\n'])
def test_too_many_rules(rule: str) -> None:
    with pytest.raises(WinMLError, match=f"{MAX_RULES + 1} rules"):
        text_grammar("".join(rule.format(number) for number in range(MAX_RULES + 1)))


def test_a_schema_keeps_the_order_of_its_properties() -> None:
    grammar = json_schema_grammar({"properties": {"b": True, "a": True}}, strict=False)
    assert grammar.startswith('start: %json {"properties": {"b": true, "a": true}, "x-guidance": {')
    assert '"lenient": true' in grammar


@pytest.mark.parametrize("schema", [{"const": {1, 2}}, {"const": float("nan")}, False])
def test_what_is_no_schema(schema: object) -> None:
    with failing(E_INVALIDARG):
        json_schema_grammar(schema)  # type: ignore[arg-type]


def test_a_schema_that_contains_itself() -> None:
    schema: dict[str, object] = {}
    schema["items"] = schema
    with failing(E_INVALIDARG):
        json_schema_grammar(schema)


def test_slashes_and_line_ends_of_a_pattern_are_escaped() -> None:
    assert regex_grammar("a/\\/\n\\\n\\d") == "start: /a\\/\\/\\n\\n\\d/\n"


def test_a_lone_backslash_at_the_end() -> None:
    with failing(E_INVALIDARG):
        regex_grammar("a\\")


def test_choices_are_spelled_as_strings() -> None:
    assert choices_grammar(["a", '"é"\n']) == 'start: CHOICE\nCHOICE: "a" | "\\"é\\"\\n"\n'


def test_open_reasoning_comes_first() -> None:
    as_text = json_object_grammar("</think>")
    assert as_text.startswith("start: reasoning answer\n")
    assert 'reasoning[suffix="</think>"]: /(?s:.*)/' in as_text
    assert "reasoning: /(?s:.*)/ <[7]>\n" in json_object_grammar("</think>", {"</think>": 7})


def test_a_call_names_special_tokens_by_id_and_takes_any_few_blanks() -> None:
    syntax = CallSyntax("", '<call> {"name": "', '", "arguments": ', "}</call>", "\n", "")
    grammar = tool_call_grammar([("now", {})], syntax, parallel=True, tokens={"<call>": 5})
    assert grammar.startswith("start: call (BLANKS call)*\ncall: call_0\n")
    assert 'call_0: <[5]> BLANKS "{\\"name\\":" BLANKS "\\"" "now" "\\"," BLANKS "\\"arguments\\":" BLANKS' in grammar
    assert "(BLANKS call)*" not in tool_call_grammar([("now", {})], syntax, parallel=False)


def test_a_name_in_quotes_is_json_and_none_of_it_a_mark() -> None:
    quoted = CallSyntax("", '{"name": "', '", "arguments": ', "}", "", "")
    grammar = tool_call_grammar([('say "<call>" now', {})], quoted, parallel=False, tokens={"<call>": 5})
    assert r'"say \\\"<call>\\\" now"' in grammar
    bare = CallSyntax("", "[TOOL_CALLS]", "[ARGS]", "", "", "")
    assert r'"a\"b"' in tool_call_grammar([('a"b', {})], bare, parallel=False)
