"""Images in a formatted conversation: where they come, the tokens around them, and bindings that do not fit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fakes.rig import failing
from fakes.vocabularies import BYTE_LEVEL_CHAT, CHATML, byte_level, chat_folder
from genai.chat_media import bound_media, format_with_images
from genai.conversation_result import ConversationFormatResult
from genai.messages import ChatCompletionContentPart, ChatCompletionMessage, ChatCompletionRequest
from genai.tasks import ChatMediaBinding
from genai.tokenizer import Tokenizer
from rules.project import ROOT
from winml_lite import NotSupportedError, Runtime, Tensor

NOT_SUPPORTED = 0x80070032
IM_START, IM_END = 263, 264
IMAGE = ChatCompletionContentPart("image")
TYPED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ONLY_PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FAMILIES = tomllib.loads((ROOT / "tests" / "peer" / "chat_templates.toml").read_text(encoding="utf-8"))["template"]


def text(value: str) -> ChatCompletionContentPart:
    return ChatCompletionContentPart("text", value)


def shown(*parts: ChatCompletionContentPart, role: str = "user") -> ChatCompletionRequest:
    """A request of one message."""
    return ChatCompletionRequest((ChatCompletionMessage(role, content_parts=parts),))


def formatted(folder: Path, request: ChatCompletionRequest, template: str = TYPED) -> ConversationFormatResult:
    with Tokenizer.from_file(chat_folder(folder, template)) as tokenizer:
        return format_with_images(tokenizer, request)


def spelled(ids: tuple[int, ...]) -> str:
    """Tokens of the byte vocabulary as text; the two marks of ChatML as < and >."""
    return "".join({IM_START: "<", IM_END: ">"}.get(token_id, chr(token_id)) for token_id in ids)


@pytest.mark.parametrize("template", [TYPED, ONLY_PARTS, CHATML])
def test_text_runs_are_split_at_the_images(tmp_path: Path, template: str) -> None:
    result = formatted(tmp_path, shown(text("a "), IMAGE, text(" b"), IMAGE, IMAGE), template)
    assert list(map(spelled, result.token_runs)) == ["<user\na ", " b", "", ">\n<assistant\n"]
    assert result.media_places == ((0, 1), (0, 3), (0, 4))
    assert result.token_ids == tuple(token for run in result.token_runs for token in run)
    assert result.text == "<|im_start|>user\na  b<|im_end|>\n<|im_start|>assistant\n"
    assert result.generation_prompt == "<|im_start|>assistant\n"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family["name"])
def test_images_in_the_templates_of_well_known_families(tmp_path: Path, family: dict[str, str]) -> None:
    with Tokenizer.from_file(chat_folder(tmp_path, family["text"])) as tokenizer:
        result = format_with_images(tokenizer, shown(text("Look: "), IMAGE, text("What?")))
        before, behind = map(tokenizer.decode, result.token_runs)
    assert before.endswith("Look: ")
    assert behind.startswith("What?")


def test_without_images_there_is_one_run(tmp_path: Path) -> None:
    result = formatted(tmp_path, shown(text("a")))
    assert result.token_runs == (result.token_ids,)
    assert result.media_places == ()


def test_images_are_found_where_the_template_puts_them(tmp_path: Path) -> None:
    messages = tuple(ChatCompletionMessage("user", content_parts=(text(name), IMAGE)) for name in "ab")
    backwards = TYPED.replace("in messages", "in messages | reverse")
    result = formatted(tmp_path, ChatCompletionRequest(messages), backwards)
    assert result.media_places == ((1, 1), (0, 1))


@pytest.mark.parametrize(
    ("template", "count"),
    [
        (ONLY_PARTS.replace("{{ part.text }}", "{{ part.text | length }}"), "0 times"),
        (ONLY_PARTS.replace("{{ part.text }}", "{{ part.text }}{{ part.text }}"), "2 times"),
    ],
)
def test_a_template_that_does_not_show_an_image_once_is_refused(tmp_path: Path, template: str, count: str) -> None:
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        formatted(tmp_path, shown(text("a"), IMAGE), template)
    assert count in str(caught.value)


def test_text_of_an_unusual_character_is_no_image(tmp_path: Path) -> None:
    character = "\ufdd2"
    result = formatted(tmp_path, shown(text(f"{character}0{character}"), IMAGE))
    assert result.media_places == ((0, 1),)
    assert bytes(result.token_runs[0][1:]).decode() == f"user\n{character}0{character}"


def test_control_spellings_beside_an_image_stay_text(tmp_path: Path) -> None:
    result = formatted(tmp_path, shown(text("<|im_end|>"), IMAGE, text("<|im_start|>")))
    assert [spelled(run) for run in result.token_runs] == [
        "<user\n<|im_end|>",
        "<|im_start|>>\n<assistant\n",
    ]
    assert sum(token == IM_END for token in result.token_ids) == 1


def test_bos_begins_the_prompt_only(tmp_path: Path) -> None:
    with Tokenizer.from_file(byte_level(tmp_path, BYTE_LEVEL_CHAT, add_bos=True), chat_template=TYPED) as tokenizer:
        tokenizer.underlying_object.vocabulary.bos_token_id = 262
        result = format_with_images(tokenizer, shown(IMAGE, text("a")))
    assert [run[0] for run in result.token_runs] == [262, ord("a")]


def test_images_without_bindings_cannot_be_formatted(tmp_path: Path) -> None:
    with (
        Tokenizer.from_file(chat_folder(tmp_path, TYPED)) as tokenizer,
        failing(NOT_SUPPORTED, NotSupportedError) as caught,
    ):
        tokenizer.format_conversation(shown(IMAGE))
    assert "stream_with_media" in str(caught.value)


def test_a_message_with_an_image_cannot_be_continued(tmp_path: Path) -> None:
    parts = (IMAGE, text("a"))
    messages = (ChatCompletionMessage("user", "b"), ChatCompletionMessage("assistant", content_parts=parts))
    with failing(NOT_SUPPORTED, NotSupportedError):
        formatted(tmp_path, ChatCompletionRequest(messages, continuation=2))  # type: ignore[arg-type]


# --- bindings

REQUEST = ChatCompletionRequest(
    (
        ChatCompletionMessage("user", "no parts"),
        ChatCompletionMessage("user", content_parts=(text("a"), IMAGE, ChatCompletionContentPart("image", "b"))),
    )
)


@pytest.fixture
def tensor(runtime: Runtime) -> Tensor:
    return runtime.tensor_from_tokens([1])


def test_bindings_are_kept_by_place(tensor: Tensor) -> None:
    assert bound_media(shown(text("a"), IMAGE), [ChatMediaBinding(0, 1, tensor)]) == {(0, 1): tensor}
    assert bound_media(shown(IMAGE), ()) == {}


@pytest.mark.parametrize("place", [(2, 0), (0, 0), (1, 3), (1, 0), (1, 2)])
def test_a_place_that_holds_no_plain_image(tensor: Tensor, place: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"message {place[0]}"):
        bound_media(REQUEST, [ChatMediaBinding(*place, tensor)])


def test_g125_a_place_that_is_bound_twice(tensor: Tensor) -> None:
    with pytest.raises(ValueError, match="bound twice"):
        bound_media(shown(IMAGE), [ChatMediaBinding(0, 0, tensor)] * 2)


def test_an_image_without_a_binding(tensor: Tensor) -> None:
    with pytest.raises(ValueError, match="part 1 of message 0 is an image without a binding"):
        bound_media(shown(IMAGE, IMAGE), [ChatMediaBinding(0, 0, tensor)])


def test_bindings_have_types_of_their_own(tensor: Tensor) -> None:
    with pytest.raises(TypeError, match="ChatMediaBinding"):
        bound_media(shown(IMAGE), [(0, 0, tensor)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Tensor"):
        ChatMediaBinding(0, 0, b"pixels")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="message_index"):
        ChatMediaBinding(True, 0, tensor)
    with pytest.raises(ValueError, match="content_part_index"):
        ChatMediaBinding(0, -1, tensor)
