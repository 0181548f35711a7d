"""A conversation keeps its history: what enters it, what is sent, what is reused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import CHAT_TEMPLATE, EOS, EOT, B, C, Composed, D, composed, saying, successor
from genai import LanguageModel, TextGenerationFinishReason
from genai.sequence import SequenceCore
from winml_lite import WinMLError

Reason = TextGenerationFinishReason


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Composed]:
    """A stage whose chat template writes the first letter of the role, the text and `<eot>`, and opens with an a."""
    with composed(tmp_path, chat_template=CHAT_TEMPLATE) as stage:
        yield stage


@pytest.fixture
def model(stage: Composed) -> LanguageModel:
    core = SequenceCore(stage.composition(), stage.tokenizer, (EOS, EOT))
    return LanguageModel("tiny", "llama.cpp", "tiny.gguf", core, ())


def answer_with(stage: Composed, *ids: int) -> None:
    """Say `ids` after the next prompt, whatever its length."""
    stage.follow(_Answer(ids))


class _Answer:
    """After a prompt, which ends in an a that the template wrote, say the ids."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids
        self._length: int | None = None

    def __call__(self, history: Any) -> Any:
        if self._length is None:
            self._length = len(history)
        return saying(self._length, *self._ids)(history)


def test_a_turn_enters_the_history(stage: Composed, model: LanguageModel) -> None:
    answer_with(stage, B, C, EOT)
    chat = model.chat()
    result = chat.send("d")
    assert (result.text, result.finish_reason) == ("bc", Reason.EOS_TOKEN)
    assert chat.messages == (("user", "d"), ("assistant", "bc"))


def test_the_system_message_comes_first_and_is_not_history(stage: Composed, model: LanguageModel) -> None:
    answer_with(stage, B, EOT)
    chat = model.chat("x")
    result = chat.send("d")
    assert chat.messages == (("user", "d"), ("assistant", "b"))
    # "s" "x" <eot>, then the user's turn: the template writes "u", which the vocabulary lacks, then "d" <eot> and "a"
    assert result.prompt_token_count == len(stage.tokenizer.encode("sx<eot>ud<eot>a"))


def test_the_whole_history_is_sent_and_what_is_known_is_reused(stage: Composed, model: LanguageModel) -> None:
    chat = model.chat()
    answer_with(stage, B, C, EOT)
    first = chat.send("d")
    answer_with(stage, D, EOT)
    stream = chat.stream("c")
    second = stream.read()
    assert second.text == "d"
    assert second.prompt_token_count > first.prompt_token_count
    # the template repeats the answer after the assistant's letter, so the user's turn and that letter are reused
    assert stream.reused_token_count == first.prompt_token_count + 2
    assert chat.messages == (("user", "d"), ("assistant", "bc"), ("user", "c"), ("assistant", "d"))


def test_a_failed_turn_leaves_the_history_as_it_was(stage: Composed, model: LanguageModel) -> None:
    chat = model.chat(messages=[("user", "a"), ("assistant", "b")])
    stage.script.fail_at[1] = WinMLError(0x80004005)
    with failing(0x80004005):
        chat.send("d")
    assert chat.messages == (("user", "a"), ("assistant", "b"))


def test_a_turn_cancelled_without_text_leaves_the_history_as_it_was(model: LanguageModel) -> None:
    chat = model.chat()
    chat.stream("d").close()
    assert chat.messages == ()


def test_a_turn_cut_short_keeps_its_text(stage: Composed, model: LanguageModel) -> None:
    stage.follow(successor)
    chat = model.chat()
    for piece in chat.stream("d"):
        assert piece == "b"
        break
    assert chat.messages == (("user", "d"), ("assistant", "b"))


def test_an_interrupted_turn_keeps_its_text_and_the_chat_goes_on(stage: Composed, model: LanguageModel) -> None:
    stage.script.fail_at[2] = KeyboardInterrupt()
    chat = model.chat()
    with pytest.raises(KeyboardInterrupt):
        chat.send("d")
    assert chat.messages == (("user", "d"), ("assistant", "b"))
    answer_with(stage, C, EOT)
    assert chat.send("d").text == "c"


def test_a_refused_turn_leaves_the_history_as_it_was(model: LanguageModel) -> None:
    chat = model.chat()
    with failing(0x8007007A):
        chat.send("d" * 100)
    assert chat.messages == ()
    assert chat.send("d", max_new_tokens=1).text == "b"


def test_stops_and_options_of_a_turn_count(stage: Composed, model: LanguageModel) -> None:
    stage.follow(successor)
    chat = model.chat()
    result = chat.send("d", stop="d", max_new_tokens=9)
    assert (result.text, result.stop_match) == ("bc", "d")


def test_the_history_may_be_replaced_and_forgotten(model: LanguageModel) -> None:
    chat = model.chat("s")
    chat.messages = (("user", "a"), ("assistant", "b"))
    assert chat.messages == (("user", "a"), ("assistant", "b"))
    chat.reset()
    assert len(chat.messages) == 0
    assert chat.system == "s"


def test_wrong_messages_are_refused(model: LanguageModel) -> None:
    chat = model.chat()
    with pytest.raises(TypeError, match="a message is a pair"):
        chat.messages = (("user", 5),)  # type: ignore[assignment]
    with pytest.raises(TypeError, match="a message is a pair"):
        model.chat(messages=[(1, "a")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text must be a str"):
        chat.send(b"a")  # type: ignore[arg-type]
    assert chat.messages == ()


def test_two_chats_share_a_model_and_not_a_history(stage: Composed, model: LanguageModel) -> None:
    stage.follow(successor)
    first, second = model.chat(), model.chat()
    first.send("c", max_new_tokens=2)
    second.send("d", max_new_tokens=1)
    assert first.messages == (("user", "c"), ("assistant", "bc"))
    assert second.messages == (("user", "d"), ("assistant", "b"))


# --- what a message is ------------------------------------------------------------------------------------------------


def test_messages_may_be_mappings_with_role_and_content(stage: Composed, model: LanguageModel) -> None:
    answer_with(stage, B, EOT)
    chat = model.chat(messages=[{"role": "user", "content": "a"}, {"content": "b", "role": "assistant"}])
    assert chat.messages == (("user", "a"), ("assistant", "b"))
    result = chat.send("d")
    assert result.prompt_token_count == len(stage.tokenizer.encode("ua<eot>ab<eot>ud<eot>a"))


def test_assigned_messages_may_be_mappings(model: LanguageModel) -> None:
    chat = model.chat()
    chat.messages = [{"role": "user", "content": "a"}, ("assistant", "b")]
    assert chat.messages == (("user", "a"), ("assistant", "b"))


def test_a_role_of_the_template_is_taken_as_it_is(model: LanguageModel) -> None:
    assert model.chat(messages=[("critic", "a")]).messages == (("critic", "a"),)


@pytest.mark.parametrize(
    "message",
    [
        "ab",
        b"ab",
        5,
        None,
        ("user",),
        ("user", "a", "b"),
        ("user", None),
        {"user", "a"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "text": "a"},
        {"role": "user", "content": "a", "name": "b"},
    ],
)
def test_everything_else_is_no_message_and_changes_nothing(model: LanguageModel, message: Any) -> None:
    with pytest.raises(TypeError, match="a message"):
        model.chat(messages=[message])
    chat = model.chat(messages=[("user", "a")])
    with pytest.raises(TypeError, match="a message"):
        chat.messages = [("user", "b"), message]
    assert chat.messages == (("user", "a"),)


def test_one_mapping_is_not_a_list_of_messages(model: LanguageModel) -> None:
    with pytest.raises(TypeError, match="a message"):
        model.chat(messages={"role": "user", "content": "a"})  # type: ignore[dict-item]


def test_a_first_system_message_becomes_the_system_message(stage: Composed, model: LanguageModel) -> None:
    answer_with(stage, B, EOT)
    chat = model.chat(messages=[{"role": "system", "content": "x"}, {"role": "user", "content": "c"}])
    assert (chat.system, chat.messages) == ("x", (("user", "c"),))
    assert chat.send("d").prompt_token_count == len(stage.tokenizer.encode("sx<eot>uc<eot>ud<eot>a"))


def test_two_system_messages_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="not both"):
        model.chat("x", messages=[("system", "y")])


def test_an_assigned_system_message_replaces_the_one_before(model: LanguageModel) -> None:
    chat = model.chat("x")
    chat.messages = (("system", "y"), ("user", "a"))
    assert (chat.system, chat.messages) == ("y", (("user", "a"),))
    chat.messages = ()
    assert chat.system == "y"


def test_a_foreign_system_message_is_refused(model: LanguageModel) -> None:
    with pytest.raises(TypeError, match="system must be a str"):
        model.chat([("user", "a")])  # type: ignore[arg-type]


def test_a_chat_shows_model_length_and_system_message(model: LanguageModel) -> None:
    assert repr(model.chat("x", messages=[("user", "a")])) == "<Chat with 'tiny', 1 messages, system 'x'>"
