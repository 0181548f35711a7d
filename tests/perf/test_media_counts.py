"""What pictures and sound cost in a conversation: how often they are encoded, and what is evaluated again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai
from genai import media_rows
from models import recipes
from models.media_models import ANSWERS
from winml_lite import MediaEncoder

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

RED, BLUE = np.full((24, 40, 3), (255, 0, 0), np.uint8), np.full((40, 24, 3), (0, 0, 255), np.uint8)
ROWS_BYTES = 4 * 96 * 4


@pytest.fixture
def model(tmp_path: Path) -> Iterator[genai.LanguageModel]:
    projector = recipes.media_projector_gguf(tmp_path, "both")
    with genai.load(recipes.media_gguf(tmp_path), projector=projector, threads=1) as model:
        yield model


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of everything that the encoder has worked on."""
    shapes: list[tuple[int, ...]] = []
    encode = MediaEncoder.encode

    def counting(encoder: MediaEncoder, media: Any, *arguments: Any, **fields: Any) -> Any:
        shapes.append(media.desc()[1])
        return encode(encoder, media, *arguments, **fields)

    monkeypatch.setattr(MediaEncoder, "encode", counting)
    return shapes


def test_a_picture_is_encoded_once_in_a_conversation(
    model: genai.LanguageModel, encoded: list[tuple[int, ...]]
) -> None:
    chat = model.chat()
    chat.send("?", images=[RED])
    assert encoded == [(1, 24, 40, 3)]
    for _ in range(3):
        chat.send("?")
    assert len(encoded) == 1
    chat.send("?", images=[BLUE], audio=[(np.zeros(1600, np.float32), 16000)])
    assert encoded[1:] == [(1, 40, 24, 3), (1, 1600)]
    model.generate("something else", max_new_tokens=1)
    chat.send("?", images=[RED.copy()])
    assert len(encoded) == 3


def test_a_history_from_elsewhere_costs_no_encoding_of_known_pictures(
    model: genai.LanguageModel, encoded: list[tuple[int, ...]]
) -> None:
    for _ in range(3):
        part = {"type": "image", "image": RED.copy()}
        history: list[tuple[str, Any]] = [("user", [part, "?"]), ("assistant", ANSWERS["red"])]
        assert model.chat(messages=history).send("?").text == ANSWERS["red"]
    assert len(encoded) == 1


def test_the_second_turn_evaluates_only_what_is_new(model: genai.LanguageModel) -> None:
    chat = model.chat()
    first = chat.send("?", images=[RED])
    assert first.timings.evaluated_prompt_token_count == first.prompt_token_count
    stream = chat.stream("?")
    assert "".join(stream) == ANSWERS["red"]
    # The answer of this model is tokenised in another way when it comes back.
    assert stream.reused_token_count == first.prompt_token_count
    new = stream.result.prompt_token_count - stream.reused_token_count
    assert stream.result.timings.evaluated_prompt_token_count == new == 18


def test_another_picture_in_the_same_place_is_evaluated_anew(model: genai.LanguageModel) -> None:
    one = model.chat("Look.").send("?", images=[RED])
    other = model.chat("Look.").stream("?", images=[BLUE])
    assert "".join(other) == ANSWERS["blue"]
    assert other.reused_token_count == len(model.tokenizer.encode("<|im_start|>system\nLook.<|im_end|>\n")) + 3
    again = model.chat("Look.").stream("?", images=[BLUE])
    assert "".join(again) == ANSWERS["blue"]
    assert again.reused_token_count == one.prompt_token_count - 1  # a prompt leaves one token to evaluate


def test_text_alone_uses_what_is_in_front_of_a_picture(model: genai.LanguageModel) -> None:
    model.chat("Look.").send("?", images=[RED])
    plain = model.chat("Look.").stream("?")
    list(plain)
    assert plain.reused_token_count == len(model.tokenizer.encode("<|im_start|>system\nLook.<|im_end|>\n")) + 3


def test_rows_that_nobody_needs_are_dropped(
    model: genai.LanguageModel, encoded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_rows, "KEPT_BYTES", 2 * ROWS_BYTES)
    pictures = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 50, 100, 150)]
    chat = model.chat()
    chat.send("?", images=pictures)  # all of one prompt stay
    chat.send("?")
    assert len(encoded) == 4
    model.chat().send("?", images=[RED])
    chat.send("?")
    assert len(encoded) == 8  # 150 and RED were kept
