"""Reasoning, content and tool calls in a model's output: the parser, and one example for each dialect."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from fakes.outputs import Output, Type, dialect, events_of, joined, output_of, parser_of
from genai.continuation import REASONING_TAGS
from genai.tool_dialects import DIALECTS, find_dialect
from winml_lite import WinMLError

ARGUMENTS = '{"city": "Łódź </tool_call> \\"x\\"", "n": [3, {}]}'
GET = ("call_0", "get", ARGUMENTS)
F = ("call_1", "f", "{}")
SPOKEN = ("call_0", "get", '{"city": "Łódź", "n": 3}')

EXAMPLES = [
    ("hermes", f'<tool_call>\n{{"name": "get", "arguments": {ARGUMENTS}}}\n</tool_call>', [GET]),
    ("hermes", '<tool_call>{"name": "get", "arguments": "{\\"n\\": 1}"}</tool_call>', [("call_0", "get", '{"n": 1}')]),
    ("llama-3", f'{{"name": "get", "parameters": {ARGUMENTS}}}', [GET]),
    ("llama-3", f'<|python_tag|>{{"name": "get", "parameters": {ARGUMENTS}}}', [GET]),
    ("llama-3", f'{{"type": "function", "name": "get", "parameters": {ARGUMENTS}}}; {{"name": "f"}}', [GET, F]),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get", "arguments": {ARGUMENTS}, "id": "abc"}}, {{"name": "f", "arguments": {{}}}}]',
        [("abc", "get", ARGUMENTS), F],
    ),
    (
        "mistral-v11",
        f"[TOOL_CALLS]get[ARGS]{ARGUMENTS}[TOOL_CALLS]f[CALL_ID]123[ARGS]{{}}",
        [GET, ("123", "f", "{}")],
    ),
    ("json", f'{{"name": "get", "arguments": {ARGUMENTS}}}\n{{"name": "f", "arguments": {{}}}}', [GET, F]),
    ("json", f'[{{"name": "get", "arguments": {ARGUMENTS}}}, {{"name": "f"}}]', [GET, F]),
    ("phi-4-mini", f'<|tool_call|>[{{"name": "get", "arguments": {ARGUMENTS}}}]<|/tool_call|>', [GET]),
    ("granite", f'<|tool_call|>[{{"name": "get", "arguments": {ARGUMENTS}}}]', [GET]),
    ("nemotron", f'<TOOLCALL>[{{"name": "get", "arguments": {ARGUMENTS}}}]</TOOLCALL>', [GET]),
    (
        "apriel",
        f'<tool_calls>[{{"name": "get", "arguments": {ARGUMENTS}, "id": "0"}}]</tool_calls>',
        [("0", "get", ARGUMENTS)],
    ),
    (
        "command-r7b",
        f'<|START_ACTION|>[\n {{"tool_call_id": "0", "tool_name": "get", "parameters": {ARGUMENTS}}}\n]<|END_ACTION|>',
        [("0", "get", ARGUMENTS)],
    ),
    (
        "deepseek-r1",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [GET, F],
    ),
    (
        "deepseek-v3.1",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [GET],
    ),
    (
        "kimi-k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>"
        f"{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
        [("functions.get:0", "get", ARGUMENTS)],
    ),
    ("functionary-v3.1", f"<function=get>{ARGUMENTS}</function>", [GET]),
    (
        "qwen3-coder",
        "<tool_call>\n<function=get>\n<parameter=city>\nŁódź\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
        [SPOKEN, F],
    ),
    (
        "seed-oss",
        "<seed:tool_call>\n<function=get>\n<parameter=city>Łódź</parameter>\n<parameter=n>3</parameter>\n</function>\n"
        "</seed:tool_call>",
        [SPOKEN],
    ),
    (
        "minimax-m2",
        '<minimax:tool_call>\n<invoke name="get">\n<parameter name="city">Łódź</parameter>\n'
        '<parameter name="n">3</parameter>\n</invoke>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>',
        [SPOKEN, F],
    ),
    (
        "glm-4.5",
        "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Łódź</arg_value>\n<arg_key>n</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>f</tool_call>",
        [SPOKEN, F],
    ),
    ("gemma-4", '<|tool_call>call:get{city:<|"|>Łódź<|"|>,n:3}<tool_call|>', [SPOKEN]),
    (
        "lfm2",
        '<|tool_call_start|>[get(city="Łódź", n=3), f()]<|tool_call_end|>',
        [SPOKEN, F],
    ),
    (
        "lfm2",
        "<|tool_call_start|>[get(a='it\\'s \\n', b=[1, True, {'c': None}], )]<|tool_call_end|>",
        [("call_0", "get", '{"a": "it\'s \\n", "b": [1, true, {"c": null}]}')],
    ),
    (
        "lfm2",
        f'<|tool_call_start|>[{{"name": "get", "arguments": {ARGUMENTS}, "id": "x"}}]<|tool_call_end|>',
        [("x", "get", ARGUMENTS)],
    ),
    (
        "functiongemma",
        "<start_function_call>call:get{city:<escape>Łódź<escape>,n:3}<end_function_call>",
        [SPOKEN],
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.get <|constrain|>json<|message|>"
        f"{ARGUMENTS}<|call|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{{}}<|call|>",
        [GET, F],
    ),
]


@pytest.mark.parametrize(("name", "text", "calls"), EXAMPLES)
def test_calls_of_every_family_are_read(name: str, text: str, calls: list[Any]) -> None:
    assert output_of(name, text) == Output(calls=calls)


def test_every_dialect_has_an_example() -> None:
    assert {name for name, _, _ in EXAMPLES} == {row.name for row in DIALECTS}


@pytest.mark.parametrize(("name", "text", "calls"), EXAMPLES)
def test_damaged_texts_are_read_alike_in_any_pieces_and_whole_calls_are_json(
    name: str, text: str, calls: list[Any]
) -> None:
    rng = random.Random(7)
    for _ in range(40):
        characters = list(text)
        for _ in range(rng.randint(1, 3)):
            characters.insert(rng.randrange(len(characters)), rng.choice('{}[]<>|",:/ntx \\'))
            del characters[rng.randrange(len(characters))]
        output = output_of(name, "".join(characters)[: rng.randint(1, len(characters))])
        assert all(isinstance(json.loads(arguments), dict) for _, _, arguments in output.calls)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "minimax-m2", "functionary-v3.1", "phi-4-mini"])
def test_calls_are_cut_out_of_the_content(name: str) -> None:
    call = next(text for known, text, _ in EXAMPLES if known == name)
    output = output_of(name, f"\n<think>\nhm\n\n</think>\n\nI look.\n\n{call}\n Done.\n")
    assert (output.reasoning, output.content) == ("hm", "I look.\n\nDone.\n")
    assert output_of(name, f"I look.\n{call}\n").content == "I look."


def test_arguments_arrive_while_they_are_written() -> None:
    parser = parser_of("hermes")
    parser.append('<tool_call>{"name": "get", "arguments": {"city": "Pa')
    events = list(iter(parser.read_event, None))
    assert [event.type for event in events] == [Type.TOOL_CALL_START, Type.TOOL_ARGUMENTS_DELTA]
    assert events[1].text == '{"city": "Pa'


def test_arguments_before_the_name_wait_for_it() -> None:
    text = '<tool_call>{"arguments": {"n": 1}, "name": "get"}</tool_call>'
    assert output_of("hermes", text).calls == [("call_0", "get", '{"n": 1}')]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "f", "arguments": {"a": }}',
        '{"name": "f, "arguments": {}}',
        '{"name": 5, "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "arguments": "x"}',
        '{"name": "f", "name": "g"}',
        '{"name": "f", "arguments": {}, "parameters": {}}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": "line\nend"}}',
        "f(1)",
        "[]",
        '{"name": "f", "arguments": ' + '{"a":' * 200 + "1" + "}" * 200 + "}",
    ],
)
def test_a_malformed_call_is_one_error(call: str) -> None:
    output = output_of("hermes", f"a<tool_call>{call}</tool_call> b")
    assert (output.content, output.calls, output.errors) == ("ab", [], 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral-v11", "[TOOL_CALLS][ARGS]{}"),
        ("mistral-v11", "[TOOL_CALLS]" + "f" * 1000 + "[ARGS]{}"),
        ("kimi-k2", "<|tool_call_begin|> <|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("qwen3-coder", "<function=></function>"),
        ("gemma-4", "<|tool_call>call:{}<tool_call|>"),
        ("gemma-4", "<|tool_call>call:f{a:NaN}<tool_call|>"),
        ("gemma-4", "<|tool_call>call:f{a:" + "[" * 70 + "<tool_call|>"),
        ("harmony", "<|channel|>commentary to=functions.f<|message|>[]<|call|>"),
        ("lfm2", "<|tool_call_start|>f(1)<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[(a=1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a=b)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a={1: 2})]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a=" + "[" * 70 + "<|tool_call_end|>"),
        ("llama-3", '{"name": "get", "parameters": {]}'),
    ],
)
def test_malformed_calls_of_other_families_are_one_error(name: str, text: str) -> None:
    assert (output_of(name, text).calls, output_of(name, text).errors) == ([], 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>"),
        ("hermes", "Well. <tool_call>\n"),
        ("hermes", '<tool_call>\n{"na'),
        ("hermes", '<tool_call>{"arguments": {"city": "Par'),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral-v11", "[TOOL_CALLS]ge"),
        ("phi-4-mini", "<|tool_call|>["),
        ("gemma-4", "a\n<|tool_call>call"),
        ("kimi-k2", "<|tool_call_begin|>functions.get"),
        ("kimi-k2", "<|tool_calls_section_begin|>"),
        ("qwen3-coder", "<tool_call>"),
        ("qwen3-coder", "Well.\n<tool_call>\n"),
    ],
)
def test_what_ends_before_a_call_has_a_name_is_content(name: str, text: str) -> None:
    assert output_of(name, text) == Output(content=text)
    assert joined(events_of(parser_of(name), text)) == Output(content=text)


def test_a_call_that_ends_without_a_name_is_content_behind_whole_ones() -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>\n{'
    assert output_of("hermes", text) == Output(content="<tool_call>\n{", calls=[("call_0", "f", "{}")])


def test_the_content_that_a_call_became_comes_from_all_its_text() -> None:
    parser = parser_of("hermes")
    for piece in ("Hm", " <tool_call>", "\n", "{"):
        parser.append(piece)
    parser.flush()
    located = []
    while (event := parser.read_located_event()) is not None:
        located.append((event[0].text, *event[1:]))
    assert located == [("Hm", 0, 2), (" <tool_call>\n{", 2, 16), (None, 16, 16)]


def test_a_call_that_is_cut_off_has_no_end() -> None:
    events = events_of(parser_of("hermes"), ['<tool_call>{"name": "get", "arguments": {"city": "Par'])
    assert [event.type for event in events] == [Type.TOOL_CALL_START, Type.TOOL_ARGUMENTS_DELTA, Type.COMPLETED]


@pytest.mark.parametrize(
    "text",
    [
        "[link](https://example.org) and more",
        '{"name": "Bob", "parameters": {}}',
        '{"answer": 42}',
        '  {"a": [1, 2',
        'See {"name": "get", "parameters": {}}',
        "[1, 2, 3]\n",
    ],
)
def test_json_that_names_no_tool_is_content(text: str) -> None:
    assert output_of("llama-3", text) == Output(content=text)
    assert output_of("json", text) == Output(content=text)


def test_a_whole_call_may_have_its_members_in_any_order() -> None:
    assert output_of("json", '{"arguments": {"n": 1}, "name": "get"}').calls == [("call_0", "get", '{"n": 1}')]


def test_without_tools_calls_are_content() -> None:
    text = 'a <tool_call>{"name": "f", "arguments": {}}</tool_call> \n'
    assert output_of(None, text) == Output(content=text)


def test_frames_around_an_answer_are_no_text() -> None:
    assert output_of("command-r7b", "<|START_RESPONSE|>Hello.<|END_RESPONSE|>").content == "Hello."


# Reasoning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", REASONING_TAGS)
def test_every_pair_of_reasoning_tags_is_read(tags: Any) -> None:
    text = f"{tags.opening}\na\n{tags.closing}\n\nb"
    assert output_of(None, text, reasoning=tags) == Output(content="b", reasoning="a")


def test_the_answer_may_begin_inside_the_reasoning() -> None:
    assert output_of(None, "\na\n</think>\n\nb", starts_in_reasoning=True) == Output(content="b", reasoning="a")


def test_continued_reasoning_keeps_its_first_line_end() -> None:
    output = output_of(None, "\na</think>b", starts_in_reasoning=True, is_continuation=True)
    assert output == Output(content="b", reasoning="\na")


def test_reasoning_that_is_cut_off_keeps_its_last_line_end() -> None:
    assert output_of(None, "<think>a\n").reasoning == "a\n"


def test_a_call_may_follow_the_reasoning() -> None:
    text = '<think>hm</think>\n\n{"name": "f", "arguments": {}}'
    assert output_of("json", text) == Output(reasoning="hm", calls=[("call_0", "f", "{}")])


def test_marks_inside_reasoning_are_reasoning() -> None:
    text = '<think>I could <tool_call>{"name": "f"}</tool_call></think>no'
    assert output_of("hermes", text) == Output(content="no", reasoning='I could <tool_call>{"name": "f"}</tool_call>')


def test_channels_are_reasoning_and_content() -> None:
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi.\n<|return|>"
    assert output_of(None, text, has_channels=True) == Output(content="Hi.\n", reasoning="hm")


def test_a_channel_that_the_prompt_opened_goes_on() -> None:
    fields = {"has_channels": True, "is_continuation": True}
    assert output_of(None, "more<|end|>", **fields) == Output(content="more")
    assert output_of(None, "more<|end|>", **fields, starts_in_reasoning=True) == Output(reasoning="more")


# The parser ------------------------------------------------------------------------------------------


def test_text_that_may_become_a_mark_is_held_back() -> None:
    parser = parser_of("hermes", stops=("STOP",))
    parser.append("a <thi")
    assert joined(iter(parser.read_event, None)).content == "a"
    parser.append("nly")
    assert joined(iter(parser.read_event, None)).content == " <thinly"


def test_a_stop_text_ends_the_output() -> None:
    assert output_of(None, "one END two", stops=("END",)) == Output(content="one ")
    assert output_of(None, "one EN", stops=("END",)) == Output(content="one EN")


def test_append_after_flush_needs_a_reset() -> None:
    parser = parser_of(None)
    parser.flush()
    with pytest.raises(WinMLError) as caught:
        parser.append("a")
    assert caught.value.hresult == 0x8007139F
    parser.reset()
    assert joined(events_of(parser, ["a"])).content == "a"


def test_only_text_can_be_appended() -> None:
    with pytest.raises(TypeError):
        parser_of(None).append(b"a")  # type: ignore[arg-type]


def test_the_first_row_that_fits_a_template_is_taken() -> None:
    assert find_dialect("… <tool_call> …") is dialect("hermes")
    assert find_dialect("<tool_call><function=x><parameter=y>") is dialect("qwen3-coder")
    assert find_dialect("<tool_call><arg_key><arg_value>") is dialect("glm-4.5")
    assert find_dialect("{{ tools }}") is dialect("json")


def test_marks_that_begin_alike_do_not_hide_each_other() -> None:
    assert output_of("minimax-m2", "<minimax:tool_cal <invoke nam </minimax:tool").content == (
        "<minimax:tool_cal <invoke nam </minimax:tool"
    )


def test_a_closed_parser_is_refused() -> None:
    with parser_of("hermes") as parser:
        parser.append("x")
    parser.close()
    for call in (lambda: parser.append("y"), parser.flush, parser.read_event, parser.reset, parser.__enter__):
        with pytest.raises(RuntimeError, match="ConversationOutputParser is closed"):
            call()
