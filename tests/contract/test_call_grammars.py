"""The constraint of tool calls: what each family writes passes its own grammar, and comes out of its parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.outputs import events_of, joined
from fakes.vocabularies import CHATML, chat_folder
from genai.messages import (
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionTool,
    ChatCompletionToolChoice,
)
from genai.tokenizer import Tokenizer
from genai.tool_dialects import DIALECTS, ToolDialect
from winml_lite import WinMLError

pytest.importorskip("llguidance")

SCHEMA = (
    '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}'
)
TOOLS = (
    ChatCompletionTool("get", SCHEMA),
    ChatCompletionTool("f", '{"type": "object", "additionalProperties": false}'),
)
WRITTEN = [row for row in DIALECTS if row.written is not None]
HI = ChatCompletionMessage("user", "hi")
CAN_STOP = 2


def opened(folder: Path, row: ToolDialect) -> Tokenizer:
    """A byte-level tokenizer with a template of the family."""
    return Tokenizer.from_file(chat_folder(folder, "{{ tools }}{# " + " ".join(row.template_marks) + " #}" + CHATML))


def written(row: ToolDialect, *calls: tuple[str, str]) -> str:
    """Calls as the family writes them."""
    w: Any = row.written
    shown = [w.before_name + name + w.before_arguments + arguments + w.after for name, arguments in calls]
    return str(w.first + w.separator.join(shown) + w.last)


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.name)
def test_g45_calls_of_every_family_pass_the_grammar_and_the_parser(tmp_path: Path, row: ToolDialect) -> None:
    tokenizer = opened(tmp_path, row)
    result = tokenizer.format_conversation(
        ChatCompletionRequest((HI,), TOOLS, tool_choice=ChatCompletionToolChoice.REQUIRED)
    )
    text = written(row, ("get", '{"n": 1}'), ("f", "{}"))
    with tokenizer.create_constraint(result) as constraint:
        for token_id in tokenizer.encode(text, False):
            constraint.accept_token(token_id)
        assert constraint.state.state_flags & CAN_STOP
    calls = joined(events_of(result.create_output_parser(), [text])).calls
    assert [call[1:] for call in calls] == [("get", '{"n": 1}'), ("f", "{}")]


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.name)
def test_possible_calls_are_checked_once_they_have_begun(tmp_path: Path, row: ToolDialect) -> None:
    tokenizer = opened(tmp_path, row)
    result = tokenizer.format_conversation(ChatCompletionRequest((HI,), TOOLS))
    begin, _, rest = written(row, ("get", '{"n": 1}')).partition('{"n"')
    with tokenizer.create_constraint(result) as constraint:
        for token_id in tokenizer.encode(begin + '{"n"', False):
            constraint.accept_token(token_id)
        with pytest.raises(WinMLError) as caught:
            constraint.accept_token(ord("x"))
        assert caught.value.hresult == 0x80070057
    assert rest.startswith(": 1}")


def test_calls_one_after_the_other_can_be_forbidden(tmp_path: Path) -> None:
    row = next(row for row in WRITTEN if row.name == "hermes")
    tokenizer = opened(tmp_path, row)
    request = ChatCompletionRequest(
        (HI,),
        TOOLS,
        tool_choice=ChatCompletionToolChoice.REQUIRED,
        parallel_tool_calls=ChatCompletionParallelToolCalls.DISABLED,
    )
    with tokenizer.create_constraint(tokenizer.format_conversation(request)) as constraint:
        for token_id in tokenizer.encode(written(row, ("f", "{}")), False):
            constraint.accept_token(token_id)
        with pytest.raises(WinMLError):
            constraint.accept_token(ord("\n"))
