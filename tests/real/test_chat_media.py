"""Images in chats on the real llama.cpp. Rows that are looked up in the embedding table of the model do what its
tokens would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.real_chats import real_chat
from fakes.rig import built, failing
from fakes.vocabularies import CHATML
from genai.tasks import (
    ChatCompletionContentPart,
    ChatCompletionMessage,
    ChatCompletionPromptCacheMode,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionSession,
    ChatMediaBinding,
    TextGenerationOptions,
    TextGenerationSequenceDisclosure,
)
from models import onnx_models, recipes
from winml_lite import GgufFile, Runtime, Stage

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama", "ort")]

EIGHT = TextGenerationOptions(max_new_tokens=8)
FIRST = [5, 9, 200, 31, 7]
SECOND = [250, 12, 77]
Mode = ChatCompletionPromptCacheMode


def text(value: str) -> ChatCompletionContentPart:
    return ChatCompletionContentPart("text", value)


PARTS = (text("left "), ChatCompletionContentPart("image"), text(" right "), ChatCompletionContentPart("image"))
REQUEST = ChatCompletionRequest((ChatCompletionMessage("user", content_parts=PARTS),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chats")


@pytest.fixture
def session(runtime: Runtime, folder: Path) -> Iterator[ChatCompletionSession]:
    """A chat with the random model, which takes rows that were looked up as images."""
    with real_chat(runtime, recipes.random_gguf(folder), CHATML) as session:
        yield session


def stage_of(session: ChatCompletionSession) -> Stage:
    stage = session.text_generation_session.configuration.state_owner_stage
    assert stage is not None
    return stage


@pytest.fixture
def looking_up(session: ChatCompletionSession, runtime: Runtime, folder: Path) -> ChatCompletionSession:
    """The session with the encoder."""
    with GgufFile(recipes.random_gguf(folder)) as file:
        graph = onnx_models.lookup(file.dequantize("token_embd.weight"))
    stage, pipeline = built(runtime, str(onnx_models.save(graph, folder / "lookup.onnx")))
    session.media_encoder = stage_of(session).create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)
    return session


def bindings(runtime: Runtime, *images: list[int]) -> list[ChatMediaBinding]:
    """Bind ids as the images of `REQUEST`."""
    tensors = [runtime.tensor_from_numpy(np.array(ids, np.int64)) for ids in images]
    return [ChatMediaBinding(0, part, tensor) for part, tensor in zip((1, 3), tensors, strict=True)]


def test_images_stand_where_their_parts_stand(looking_up: ChatCompletionSession, runtime: Runtime) -> None:
    result = looking_up.generate_with_media(REQUEST, bindings(runtime, FIRST, SECOND), EIGHT)
    text_session = looking_up.text_generation_session
    encode = text_session._open().tokenizer.encode
    prompt = [
        *encode("<|im_start|>user\nleft ", False),
        *FIRST,
        *encode(" right ", False),
        *SECOND,
        *encode("<|im_end|>\n<|im_start|>assistant\n", False),
    ]
    with text_session.generate_tokens(prompt, EIGHT) as stream:
        expected = [update.token_id for update in stream]
    assert list(result.text_generation_result.token_ids) == expected
    assert result.prompt_token_count == len(prompt)
    assert result.completion_token_count == 8


def test_a_prompt_with_images_is_not_reused(looking_up: ChatCompletionSession, runtime: Runtime) -> None:
    first = looking_up.generate_with_media(REQUEST, bindings(runtime, FIRST, SECOND), EIGHT)
    assert first.prompt_cache_use.mode is Mode.UNKNOWN
    assert first.prompt_cache_use.prompt_token_count == first.prompt_token_count
    state = looking_up.text_generation_session.sequence_state
    assert state.disclosure is TextGenerationSequenceDisclosure.UNUSABLE
    again = looking_up.generate_with_media(REQUEST, bindings(runtime, FIRST, SECOND), EIGHT)
    assert again.content == first.content
    plain = ChatCompletionRequest((ChatCompletionMessage("user", "left"),))
    result = looking_up.generate(plain, EIGHT)
    assert result.prompt_cache_use.mode is Mode.FULL_PREFILL


def test_tensors_need_to_live_only_until_the_call_returns(looking_up: ChatCompletionSession, runtime: Runtime) -> None:
    given = bindings(runtime, FIRST, SECOND)
    expected = looking_up.generate_with_media(REQUEST, given, EIGHT).content
    with looking_up.stream_with_media(REQUEST, given, EIGHT) as stream:
        for binding in given:
            binding.tensor.close()
        assert "".join(event.text or "" for event in stream) == expected


def test_an_answer_about_images_keeps_to_a_form(looking_up: ChatCompletionSession, runtime: Runtime) -> None:
    pytest.importorskip("llguidance")
    wish = replace(REQUEST, response_format=ChatCompletionResponseFormat.JSON_OBJECT)
    with looking_up.stream_with_media(wish, bindings(runtime, FIRST, SECOND), EIGHT) as stream:
        for _ in stream:
            pass
        assert stream.result.content.startswith("{")
        assert stream.constraint is not None
        assert stream.constraint.state.accepted_token_count == 8


def test_an_image_is_charged_by_its_cells(session: ChatCompletionSession, runtime: Runtime, folder: Path) -> None:
    text_session = session.text_generation_session
    session.media_encoder = text_session.create_media_encoder_from_file(recipes.projector_gguf(folder))
    picture = runtime.tensor_from_numpy(np.zeros((1, 16, 16, 3), np.uint8))
    request = ChatCompletionRequest((ChatCompletionMessage("user", content_parts=PARTS[:2]),))
    result = session.generate_with_media(request, [ChatMediaBinding(0, 1, picture)], EIGHT)
    encode = text_session._open().tokenizer.encode
    around = encode("<|im_start|>user\nleft ", False) + encode("<|im_end|>\n<|im_start|>assistant\n", False)
    assert result.prompt_token_count == len(around) + 34  # 4 rows and what frames them


def test_an_encoder_of_another_stage_and_wrong_media(
    looking_up: ChatCompletionSession, runtime: Runtime, folder: Path
) -> None:
    with real_chat(runtime, recipes.random_gguf(folder), CHATML) as other:
        other.media_encoder = looking_up.media_encoder
        with failing(0x80070057):
            other.stream_with_media(REQUEST, bindings(runtime, FIRST, SECOND))
    floats = [ChatMediaBinding(0, part, runtime.tensor_from_numpy(np.zeros(3, np.float32))) for part in (1, 3)]
    with failing(0x80070057):
        looking_up.stream_with_media(REQUEST, floats)
    looking_up.media_encoder = None
    with failing(0x8007139F):
        looking_up.stream_with_media(REQUEST, bindings(runtime, FIRST, SECOND))
