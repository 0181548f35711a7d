"""Pictures and sound as parts of messages."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from fakes.rig import failing
from genai import Audio, ChatMedia, ChatMessage
from genai.chat_message import as_message
from genai.chat_parts import as_parts, media_list, text_of

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
SAMPLES = np.array([0.5, -0.25, 0.125], np.float32)
PICTURE, SOUND = ChatMedia.image(PIXELS), ChatMedia.audio((SAMPLES, 8000))


def test_media_know_their_kind_and_size() -> None:
    assert (PICTURE.kind, SOUND.kind) == ("image", "audio")
    assert repr(PICTURE) == "<ChatMedia image of 4 x 2 pixels>"
    assert repr(ChatMedia.audio((np.zeros(4000), 8000))) == "<ChatMedia audio of 0.5 s>"


def test_media_are_equal_by_their_content() -> None:
    assert ChatMedia.image(PIXELS.copy()) == PICTURE
    assert hash(ChatMedia.image(PIXELS.copy())) == hash(PICTURE)
    assert ChatMedia.image(PIXELS.reshape(4, 2, 3)) != PICTURE
    assert ChatMedia.audio((SAMPLES, 16000)) != SOUND
    assert PICTURE != SOUND
    assert PICTURE != "a picture"


def test_media_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PICTURE.path = "elsewhere"  # type: ignore[misc]
    assert isinstance(PICTURE.content, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        PICTURE.content[0, 0, 0] = 1


def test_media_are_copied_and_pickled() -> None:
    for media in (PICTURE, SOUND):
        assert deepcopy(media) == media
        assert pickle.loads(pickle.dumps(media)) == media


def test_channels_of_sound_are_averaged() -> None:
    sound = ChatMedia.audio((np.array([[0.5, 0.0], [1.0, 0.0]], np.float32), 8000)).content
    assert isinstance(sound, Audio)
    assert sound.samples.tolist() == [0.25, 0.5]


@pytest.mark.parametrize("samples", [[], [0.5]])
def test_sound_of_fewer_than_two_samples(samples: list[float]) -> None:
    with failing(0x80070057):
        ChatMedia.audio((samples, 8000))


def test_samples_alone_are_refused() -> None:
    with pytest.raises(TypeError, match="samples alone say no rate"):
        ChatMedia.audio(SAMPLES)  # type: ignore[arg-type]


def test_media_in_the_place_of_the_other_kind() -> None:
    assert ChatMedia.image(PICTURE) is PICTURE
    assert ChatMedia.audio(SOUND) is SOUND
    with pytest.raises(TypeError, match="is no image"):
        ChatMedia.image(SOUND)
    with pytest.raises(TypeError, match="is no audio"):
        ChatMedia.audio(PICTURE)


def test_one_picture_or_sound_or_several() -> None:
    for given in (PIXELS, [PIXELS], (PIXELS,), iter([PICTURE]), PICTURE):
        assert media_list(given, "images") == [PICTURE]
    for sound in ((SAMPLES, 8000), [(SAMPLES, 8000)], SOUND, Audio(SAMPLES, 8000), ((SAMPLES, 8000),)):
        assert media_list(sound, "audio") == [SOUND]
    assert media_list((SOUND, SOUND), "audio") == [SOUND, SOUND]
    assert media_list(None, "images") == media_list((), "images") == []


def test_parts_in_every_form() -> None:
    given = ["a", {"type": "text", "text": "b"}, PICTURE, {"type": "image", "image": PIXELS}]
    assert as_parts([*given, {"type": "audio", "audio": (SAMPLES, 8000)}]) == ("a", "b", PICTURE, PICTURE, SOUND)
    assert as_parts("a") == ("a",)
    assert text_of(as_parts(given)) == "ab"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "picture", "image": PIXELS},
        {"type": "image"},
        {"type": "image", "image": PIXELS, "detail": "high"},
        {"type": "text", "text": 5},
        {"text": "a"},
        {"type": "image_url", "image_url": {"url": "data:", "detail": "high"}},
        {"type": "image_url", "image_url": 5},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
        {"type": "input_audio", "input_audio": "UklGRg=="},
        5,
        None,
        PIXELS,
    ],
)
def test_what_is_no_part(part: Any) -> None:
    with pytest.raises(TypeError, match="part"):
        as_parts([part])


@pytest.mark.parametrize("content", [5, None, b"ab", {"type": "text", "text": "a"}])
def test_what_is_no_content(content: Any) -> None:
    with pytest.raises(TypeError, match="the content of a message"):
        as_parts(content)


@pytest.mark.parametrize("address", ["data:image/png,abc", "data:image/png;base64", "data:image/png;base64,a*b"])
def test_addresses_that_hold_no_file(address: str) -> None:
    with failing(0x80070057) as caught:
        as_parts([{"type": "image", "image": address}])
    assert "data address" in str(caught.value)


def test_parts_as_web_services_take_them() -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    picture, sound = PICTURE.as_dict()["image"], SOUND.as_dict()["audio"]
    assert as_parts([{"type": "image_url", "image_url": {"url": picture}}]) == (PICTURE,)
    assert as_parts([{"type": "image_url", "image_url": picture}]) == (PICTURE,)
    sent = {"data": sound.removeprefix("data:audio/wav;base64,"), "format": "wav"}
    assert as_parts([{"type": "input_audio", "input_audio": sent}]) == (SOUND,)
    assert media_list(picture, "images") == [PICTURE]
    assert media_list([sound], "audio") == [SOUND]


@pytest.mark.parametrize("url", ["https://example.com/cat.png", "file:///cat.png", "cat.png", ""])
def test_an_image_url_that_holds_no_picture_is_not_fetched(url: str) -> None:
    with failing(0x80070057) as caught:
        as_parts([{"type": "image_url", "image_url": {"url": url}}])
    assert "nothing is fetched" in str(caught.value)


def test_input_audio_that_is_no_base64() -> None:
    with failing(0x80070057):
        as_parts([{"type": "input_audio", "input_audio": {"data": "a*b", "format": "wav"}}])


def test_an_error_shows_the_beginning_of_a_long_part() -> None:
    with pytest.raises(TypeError, match="picture_url") as caught:
        as_parts([{"type": "picture_url", "picture_url": "data:image/png;base64," + 10_000 * "A"}])
    assert len(str(caught.value)) < 400


def test_media_go_through_json() -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    texts = [json.dumps(media.as_dict()) for media in (PICTURE, SOUND)]
    assert as_parts([json.loads(text) for text in texts]) == (PICTURE, SOUND)
    assert texts[0].startswith('{"type": "image", "image": "data:image/png;base64,')


def test_a_message_with_media_is_a_pair_with_its_text() -> None:
    message = ChatMessage("user", ["See ", PICTURE, "", "this."])
    assert message == ("user", "See this.")
    assert message.parts == ("See ", PICTURE, "this.")
    assert as_message(("user", ["See ", PICTURE, "this."])) == message
    assert as_message({"role": "user", "content": ["See ", PICTURE, "this."]}) == message
    assert message != ChatMessage("user", "See this.")
    assert deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_message_of_texts_alone_has_no_parts() -> None:
    message = ChatMessage("user", ["See ", "this."])
    assert message.parts == ()
    assert message.record().content == "See this."


def test_a_message_as_a_record_and_as_a_mapping() -> None:
    record = ChatMessage("user", [PICTURE, "What?"]).record()
    assert record.content is None
    assert [(part.type, part.text) for part in record.content_parts] == [("image", None), ("text", "What?")]
    media = ChatMedia(PICTURE.content, path="cat.png")
    assert ChatMessage("user", [media, "What?"]).as_dict() == {
        "role": "user",
        "content": [{"type": "image", "image": "cat.png"}, {"type": "text", "text": "What?"}],
    }
