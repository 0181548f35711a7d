"""Messages of a history: pairs with what belongs to tool calls, and the forms they are given in."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from genai import ChatMessage
from genai.chat_message import as_message
from genai.messages import ChatCompletionContentPart, ChatCompletionMessage, ChatCompletionToolCall

CALL = ChatCompletionToolCall("call00001", "add", '{"a": 1}')
ASKING = ChatMessage("assistant", "Wait.", reasoning_content="Hm.", tool_calls=[CALL])
RESULT = ChatMessage("tool", "5", tool_call_id="call00001", tool_name="add")
MAPPING = {
    "role": "assistant",
    "content": "Wait.",
    "reasoning_content": "Hm.",
    "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
}


def test_a_message_is_a_pair() -> None:
    role, content = ASKING
    assert (role, content, ASKING.role, ASKING.content) == ("assistant", "Wait.", "assistant", "Wait.")
    assert json.dumps([RESULT]) == '[["tool", "5"]]'


def test_messages_are_equal_in_everything_and_to_plain_pairs() -> None:
    assert ASKING == ("assistant", "Wait.")
    assert ("assistant", "Wait.") == ASKING
    assert ASKING != ChatMessage("assistant", "Wait.")
    assert hash(ASKING) == hash(("assistant", "Wait."))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_copy_has_everything(duplicate: Any) -> None:
    assert duplicate(ASKING) == ASKING


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="a message cannot be changed: tool_name"):
        RESULT.tool_name = "sub"


def test_a_message_shows_what_it_holds() -> None:
    assert repr(ChatMessage("user", "Hi")) == "('user', 'Hi')"
    assert repr(RESULT) == "ChatMessage('tool', '5', tool_call_id='call00001', tool_name='add')"


def test_mappings_hold_everything() -> None:
    assert ASKING.as_dict() == MAPPING
    assert RESULT.as_dict() == {"role": "tool", "content": "5", "tool_call_id": "call00001", "name": "add"}
    assert ChatMessage("user", "Hi").as_dict() == {"role": "user", "content": "Hi"}
    assert [as_message(MAPPING), as_message(RESULT.as_dict())] == [ASKING, RESULT]


def test_records_hold_everything() -> None:
    assert as_message(ASKING.record()) == ASKING
    assert as_message(ChatCompletionMessage("assistant", tool_calls=(CALL,))) == ("assistant", "")


def test_arguments_may_be_an_object() -> None:
    function = {"name": "add", "arguments": {"a": 1}}
    message = as_message(
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call00001", "function": function}]}
    )
    assert (message.content, message.tool_calls) == ("", (CALL,))


@pytest.mark.parametrize(
    "given",
    [
        {"role": "user", "content": "Hi", "tool_calls": []},
        {"role": "user", "content": "Hi", "name": "me"},
        {"role": "assistant", "tool_calls": []},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": "a", "tool_calls": ["add"]},
        {"role": "tool", "content": "5", "tool_call_id": 1},
        ChatCompletionMessage("user", content_parts=(ChatCompletionContentPart("text", "a"),)),
    ],
)
def test_what_is_no_message(given: Any) -> None:
    with pytest.raises(TypeError):
        as_message(given)
