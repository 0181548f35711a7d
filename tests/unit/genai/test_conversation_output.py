"""What a formatted conversation says about its answer: marks, triggers, grammars."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from fakes.outputs import output_of
from fakes.vocabularies import CHATML, chat_folder, sentence_piece
from genai.conversation_result import ConversationConstraintTriggerType, ConversationFormatResult
from genai.messages import (
    ChatCompletionContinuation,
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTool,
    ChatCompletionToolChoice,
)
from genai.output_event import ConversationOutputEvent
from genai.tokenizer import Tokenizer
from genai.tool_dialects import DIALECTS, ToolDialect
from winml_lite import NotSupportedError

Message = ChatCompletionMessage
Choice = ChatCompletionToolChoice
Trigger = ConversationConstraintTriggerType
HI = Message("user", "hi")
TOOLS = (ChatCompletionTool("get", "{}"), ChatCompletionTool("f", "{}"))
WRITTEN = [row for row in DIALECTS if row.written is not None]


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Make a byte-level tokenizer with a template that shows tools and speaks of some marks."""
    return lambda marks: Tokenizer.from_file(chat_folder(tmp_path, "{{ tools }}{# " + marks + " #}" + CHATML))


def formatted(tokenizer: Tokenizer, *messages: Message, **fields: Any) -> ConversationFormatResult:
    return tokenizer.format_conversation(ChatCompletionRequest(messages=messages or (HI,), **fields))


def events_of(result: ConversationFormatResult, text: str) -> list[ConversationOutputEvent]:
    parser = result.create_output_parser()
    parser.append(text)
    parser.flush()
    return list(iter(parser.read_event, None))


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.name)
def test_calls_as_the_grammar_wants_them_are_read(row: ToolDialect) -> None:
    w = row.written
    assert w is not None
    calls = [f"{w.before_name}{name}{w.before_arguments}{{}}{w.after}" for name in ("get", "f")]
    output = output_of(row.name, w.first + w.separator.join(calls) + w.last)
    assert [(name, arguments) for _, name, arguments in output.calls] == [("get", "{}"), ("f", "{}")]
    assert (output.content, output.errors) == ("", 0)


@pytest.mark.parametrize(
    ("marks", "value"),
    [
        ("<tool_call>", "<tool_call>"),
        ("[TOOL_CALLS]", "[TOOL_CALLS]"),
        ("<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>"),
        ("<|tool_call|>", "<|tool_call|>"),
    ],
)
def test_the_mark_before_a_call_is_the_trigger(make: Any, marks: str, value: str) -> None:
    (trigger,) = formatted(make(marks), tools=TOOLS).constraint_triggers
    assert (trigger.type, trigger.token_id, trigger.value) == (Trigger.TEXT, None, value)


def test_a_mark_that_is_a_special_token_is_a_token_trigger(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path, "{{ tools }}<tool_call>" + CHATML)
    vocabulary = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary.add_special_tokens(["<tool_call>"])
    vocabulary.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(folder)
    (trigger,) = formatted(tokenizer, tools=TOOLS).constraint_triggers
    assert (trigger.type, trigger.token_id) == (Trigger.TOKEN, tokenizer.find_token_id("<tool_call>"))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('{"name": "get"', 0),
        (' \n{"name": "f"', 2),
        ('<think>x</think>\n\n{"name": "f"', 18),
        ('<think>x</think>{"name": "f", "arguments', 16),
    ],
)
def test_a_call_without_a_mark_is_a_pattern(make: Any, text: str, start: int) -> None:
    (trigger,) = formatted(make(""), tools=TOOLS).constraint_triggers
    assert trigger.type is Trigger.FULL_PATTERN
    match = re.fullmatch(trigger.value, text)
    assert match is not None
    assert match.start(1) == start


@pytest.mark.parametrize("text", ['{"name": "other"', 'See {"name": "get"', '{"answer": 1}', ""])
def test_other_text_does_not_match_the_pattern(make: Any, text: str) -> None:
    (trigger,) = formatted(make(""), tools=TOOLS).constraint_triggers
    assert re.fullmatch(trigger.value, text) is None


@pytest.mark.parametrize(
    "marks", ["<function=<parameter=<tool_call>", "<arg_key><arg_value>", "<|channel|><|message|>"]
)
def test_calls_that_are_no_json_have_no_grammar(make: Any, marks: str) -> None:
    tokenizer = make(marks)
    assert formatted(tokenizer, tools=TOOLS).constraint is None
    for fields in (
        {"tool_choice": Choice.REQUIRED},
        {"tool_choice": Choice.NAMED, "named_tool_choice": "f"},
        {"parallel_tool_calls": ChatCompletionParallelToolCalls.DISABLED},
    ):
        with pytest.raises(NotSupportedError) as caught:
            formatted(tokenizer, tools=TOOLS, **fields)
        assert caught.value.hresult == 0x80070032


def test_channels_have_no_json_format(make: Any) -> None:
    with pytest.raises(NotSupportedError):
        formatted(make("<|channel|><|message|>"), response_format=ChatCompletionResponseFormat.JSON_OBJECT)


def test_the_marks_of_calls_are_preserved_while_there_are_tools(make: Any) -> None:
    tokenizer = make("<tool_call>")
    assert [token.text for token in formatted(tokenizer, tools=TOOLS).preserved_tokens] == [
        "<tool_call>",
        "</tool_call>",
    ]
    assert formatted(tokenizer, tools=TOOLS, tool_choice=Choice.NONE).preserved_tokens == ()


def test_reasoning_is_known_without_a_word_of_the_template(tmp_path: Path) -> None:
    result = formatted(Tokenizer.from_file(sentence_piece(tmp_path), chat_template="{{ messages[0].content }}"))
    assert [event.text for event in events_of(result, "<think>a</think>b")] == ["a", "b", None]


def test_the_parser_starts_where_the_prompt_ends(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(
        chat_folder(tmp_path, CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}")
    )
    events = events_of(formatted(tokenizer), "hm</think>so")
    assert [(event.type.name, event.text) for event in events] == [
        ("REASONING_DELTA", "hm"),
        ("CONTENT_DELTA", "so"),
        ("COMPLETED", None),
    ]


def test_g43_the_parser_of_a_continuation_reports_new_text_only(make: Any) -> None:
    fields = {"continuation": ChatCompletionContinuation.CONTENT}
    result = formatted(make(""), HI, Message("assistant", "The capital"), **fields)
    assert [event.text for event in events_of(result, " is Paris")] == [" is Paris", None]


def test_open_reasoning_is_part_of_the_grammar(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(
        chat_folder(tmp_path, CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}")
    )
    constraint = formatted(tokenizer, response_format=ChatCompletionResponseFormat.JSON_OBJECT).constraint
    assert constraint is not None
    assert "</think>" in constraint.value


def test_additional_stops_end_the_output_of_the_parser(make: Any) -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
    result = formatted(Tokenizer.from_file(make("").path, chat_template=template))
    assert result.additional_stops == ("</assistant>",)
    assert [event.text for event in events_of(result, "Hi.</assistant>\n<user>")] == ["Hi.", None]
