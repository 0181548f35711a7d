"""Pictures and sound in chats of the short road, on the real llama.cpp and libmtmd.

The decoder says what the last picture or sound was; its weights are written by hand (`models/media_models.py`).
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import genai
from fakes.rig import failing
from models import recipes
from models.media_models import ANSWERS, NOTHING
from winml_lite import Tensor

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

Pixels = npt.NDArray[np.uint8]
Load = Callable[..., genai.LanguageModel]
RED_ANSWER, BLUE_ANSWER = ANSWERS["red"], ANSWERS["blue"]
PAIRS = [("llama", "gemma3"), ("qwen2vl", "qwen2vl"), ("llama", "both")]
TOOLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def plain(width: int, height: int, colour: tuple[int, int, int]) -> Pixels:
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3)).copy()


RED, BLUE = plain(40, 24, (255, 0, 0)), plain(24, 40, (0, 0, 255))
TONE = (0.8 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)).astype(np.float32)
LOUD, QUIET = (TONE, 16000), (TONE / 1000, 16000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="module")
def load(folder: Path) -> Iterator[Load]:
    """Loads each pair of decoder and projector once."""
    models: dict[tuple[str, str], genai.LanguageModel] = {}

    def load(architecture: str = "llama", kind: str = "gemma3") -> genai.LanguageModel:
        pair = architecture, kind
        if pair not in models:
            projector = recipes.media_projector_gguf(folder, kind)
            models[pair] = genai.load(recipes.media_gguf(folder, architecture), projector=projector, threads=1)
        return models[pair]

    yield load
    for model in models.values():
        model.close()


# --- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("architecture", "kind"), PAIRS)
def test_the_answer_is_about_the_picture(load: Load, architecture: str, kind: str) -> None:
    chat = load(architecture, kind).chat()
    assert chat.send("What is in this picture?").text == NOTHING
    assert chat.send("What is in this picture?", images=[RED]).text == RED_ANSWER
    assert chat.send("And in this one?", images=[BLUE]).text == BLUE_ANSWER
    assert chat.send("Are you sure?").text == BLUE_ANSWER  # the history shows it again


@pytest.mark.parametrize("kind", ["qwen2a", "both"])
def test_the_answer_is_about_the_sound(load: Load, kind: str) -> None:
    chat = load("llama", kind).chat()
    assert chat.send("What do you hear?", audio=[LOUD]).text == ANSWERS["loud"]
    assert chat.send("And now?", audio=[QUIET]).text == ANSWERS["quiet"]


def test_a_projector_of_both_kinds_takes_both_at_once(load: Load) -> None:
    model = load("llama", "both")
    assert (model.takes_images, model.takes_audio) == (True, True)
    reply = model.chat().send([sound(LOUD), picture(RED), "What is it?"])
    assert reply.text == RED_ANSWER
    assert reply.prompt_token_count == 802


@pytest.mark.parametrize(("architecture", "kind"), PAIRS)
@pytest.mark.parametrize(
    ("images", "answer"), [((RED, BLUE), BLUE_ANSWER), ((BLUE, RED), RED_ANSWER), ((RED, RED, BLUE), BLUE_ANSWER)]
)
def test_the_order_of_pictures_counts(
    load: Load, architecture: str, kind: str, images: tuple[Pixels, ...], answer: str
) -> None:
    assert load(architecture, kind).chat().send("Which is last?", images=images).text == answer


def picture(source: Any) -> dict[str, Any]:
    return {"type": "image", "image": source}


def sound(source: Any) -> dict[str, Any]:
    return {"type": "audio", "audio": source}


def test_parts_stand_where_they_are_given(load: Load) -> None:
    chat = load().chat()
    parts: list[Any] = ["First ", picture(BLUE), {"type": "text", "text": " then "}, picture(RED), "?"]
    assert chat.send(parts).text == RED_ANSWER
    message = chat.messages[0]
    assert message.content == "First  then ?"
    assert [part if isinstance(part, str) else part.kind for part in message.parts] == [
        "First ",
        "image",
        " then ",
        "image",
        "?",
    ]


@pytest.mark.parametrize(("architecture", "kind"), PAIRS)
@pytest.mark.parametrize(("width", "height"), [(8, 8), (40, 16), (16, 40), (61, 37), (3, 3)])
def test_pictures_of_any_shape(load: Load, architecture: str, kind: str, width: int, height: int) -> None:
    chat = load(architecture, kind).chat()
    assert chat.send("?", images=[plain(width, height, (0, 0, 255))]).text == BLUE_ANSWER


def test_rows_of_a_picture_in_two_dimensions_take_fewer_positions_than_cells(load: Load) -> None:
    model = load("qwen2vl", "qwen2vl")
    reply = model.chat().send("?", images=[plain(40, 24, (255, 0, 0))], max_new_tokens=1)
    assert reply.prompt_token_count == 9 + 17  # 15 rows between two framing tokens
    position = model._open().composition.position
    assert position == 9 + 7  # 5 columns and 3 rows of them take 5 positions


# --- what is taken ------------------------------------------------------------------------------------------------


def test_pictures_in_every_form(load: Load, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image = pillow.fromarray(RED)
    image.save(tmp_path / "red.png")
    data = (tmp_path / "red.png").read_bytes()
    chat = load().chat()
    with open(tmp_path / "red.png", "rb") as file:
        for source in (tmp_path / "red.png", str(tmp_path / "red.png"), data, image, RED, file):
            chat.reset()
            assert chat.send("?", images=[source]).text == RED_ANSWER
            chat.reset()
            if source is not file:
                assert chat.send("?", images=source).text == RED_ANSWER  # a single one


def test_sound_of_another_rate_and_of_two_channels(load: Load, tmp_path: Path) -> None:
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    pytest.importorskip("soxr", reason="soxr is not installed")
    tone = 0.8 * np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
    stereo = genai.Audio(np.stack([tone, tone], axis=1).astype(np.float32), 44100)
    genai.write_audio(tmp_path / "loud.wav", stereo)
    chat = load("llama", "qwen2a").chat()
    for source in (stereo, tmp_path / "loud.wav", (tmp_path / "loud.wav").read_bytes()):
        chat.reset()
        assert chat.send("?", audio=[source]).text == ANSWERS["loud"]


def test_a_long_sound_comes_in_pieces_of_30_seconds(load: Load) -> None:
    model = load("llama", "qwen2a")
    short = model.chat().send("?", audio=[LOUD], max_new_tokens=1).prompt_token_count
    long = model.chat().send("?", audio=[(np.tile(TONE, 65), 16000)], max_new_tokens=1).prompt_token_count
    assert (short, long) == (11 + 750, 11 + 3 * 750)


# --- several turns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("architecture", "kind"), PAIRS)
def test_a_conversation_answers_as_one_that_begins_anew(load: Load, architecture: str, kind: str) -> None:
    model = load(architecture, kind)
    chat = model.chat(system="Look.")
    known = [chat.send("One.", images=[RED]), chat.send("Two.", images=[BLUE]), chat.send("Three.")]
    for turn, reply in enumerate(known):
        model.generate("something else", max_new_tokens=1)
        before = chat.messages[: 2 * turn]
        message = chat.messages[2 * turn]
        fresh = model.chat("Look.", messages=before).send(message.parts or message.content)
        assert fresh.token_ids == reply.token_ids
        assert fresh.prompt_token_count == reply.prompt_token_count


def test_other_calls_between_two_turns_do_no_harm(load: Load) -> None:
    model = load()
    chat = model.chat()
    assert chat.send("?", images=[RED]).text == RED_ANSWER
    model.score("What", [" is", " was"])
    assert chat.send("?").text == RED_ANSWER
    assert model.chat().send("?").text == NOTHING
    assert chat.send("?", images=[BLUE]).text == BLUE_ANSWER


def test_a_history_goes_to_another_chat_through_json(load: Load, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    pillow.fromarray(RED).save(tmp_path / "red.png")
    model = load("llama", "both")
    chat = model.chat()
    chat.send([sound(QUIET), picture(tmp_path / "red.png"), picture(BLUE), "?"])
    text = json.dumps([message.as_dict() for message in chat.messages])
    assert str(tmp_path / "red.png") in text
    again = model.chat(messages=json.loads(text))
    assert again.messages == chat.messages
    assert pickle.loads(pickle.dumps(chat.messages)) == chat.messages
    assert again.send("?").text == chat.send("?").text == BLUE_ANSWER


def test_a_turn_that_fails_leaves_the_history_as_it_was(load: Load, folder: Path) -> None:
    with genai.load(
        recipes.media_gguf(folder), projector=recipes.media_projector_gguf(folder), context_length=60, threads=1
    ) as model:
        chat = model.chat()
        with failing(0x8007007A) as caught:
            chat.send("What is there to see in these?", images=[RED, BLUE])
        assert "context_length" in str(caught.value)
        assert chat.messages == ()
        assert chat.send("?", images=[RED]).text == RED_ANSWER


def test_tools_beside_a_picture(folder: Path) -> None:
    def brightness(value: int) -> int:
        """Say how bright it is."""
        return value

    with genai.load(
        recipes.media_gguf(folder),
        projector=recipes.media_projector_gguf(folder),
        chat_template=TOOLS,
        threads=1,
    ) as model:
        chat = model.chat(tools=[brightness])
        first = chat.send("?", images=[BLUE])
        assert (first.text, first.tool_calls) == (BLUE_ANSWER, ())
        assert chat.send("?").text == BLUE_ANSWER


def test_an_answer_about_a_picture_keeps_to_a_form(load: Load) -> None:
    pytest.importorskip("llguidance")
    reply = load().chat().send("?", images=[RED], choices=["A blue picture.", "A red picture."])
    assert reply.parsed == RED_ANSWER


def test_a_state_with_pictures_is_not_saved(load: Load, tmp_path: Path) -> None:
    model = load()
    model.chat().send("?", images=[RED])
    with failing(0x80070032, genai.NotSupportedError) as caught:
        model.save_state(tmp_path / "state")
    assert "pictures" in str(caught.value)
    model.chat().send("?")
    model.save_state(tmp_path / "state")
    model.chat().send("?", images=[RED])
    model.load_state(tmp_path / "state")
    assert model.chat().send("?").text == NOTHING


# --- streams, tasks, threads ------------------------------------------------------------------------------------------


def test_an_answer_comes_piece_by_piece(load: Load) -> None:
    with load().chat().stream("?", images=[RED]) as stream:
        assert list(stream) == ["A red", " picture", "."]


def test_turns_in_an_event_loop(load: Load) -> None:
    import asyncio

    chat = load().chat()

    async def talk() -> list[str]:
        first = await chat.asend("?", images=[RED])
        pieces = [piece async for piece in chat.astream("?", images=[BLUE])]
        return [first.text, "".join(pieces)]

    assert asyncio.run(talk()) == [RED_ANSWER, BLUE_ANSWER]


def test_chats_of_several_threads(load: Load) -> None:
    model = load()
    answers: dict[int, list[str]] = {}

    def talk(number: int) -> None:
        chat = model.chat()
        images = (RED, BLUE) if number % 2 else (BLUE, RED)
        answers[number] = [chat.send("?", images=[image]).text for image in images]

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {
        0: [BLUE_ANSWER, RED_ANSWER],
        1: [RED_ANSWER, BLUE_ANSWER],
        2: [BLUE_ANSWER, RED_ANSWER],
        3: [RED_ANSWER, BLUE_ANSWER],
    }


def test_a_source_that_was_cancelled_before_encodes_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("llama", "qwen2a")
    source = genai.CancellationSource()
    source.cancel()
    monkeypatch.setattr(model._media_rows()._encoder.__class__, "encode", None)
    reply = model.chat().send("?", audio=[(TONE * np.float32(0.37), 16000)], cancellation=source)
    assert reply.finish_reason is genai.TextGenerationFinishReason.CANCELED
    assert reply.generated_token_count == 0


def test_a_cancel_while_a_sound_is_prepared_stops_the_turn(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("llama", "qwen2a")
    source = genai.CancellationSource()
    rows = model._media_rows()
    prepare = rows._tensor

    def prepare_and_cancel(part: genai.ChatMedia) -> Tensor:
        source.cancel()
        return prepare(part)

    chat = model.chat()
    given = (TONE * np.float32(0.99), 16000)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "_tensor", prepare_and_cancel)
        reply = chat.send("?", audio=[given], cancellation=source)
    assert reply.finish_reason is genai.TextGenerationFinishReason.CANCELED
    assert chat.messages == ()
    assert chat.send("?", audio=[given]).text == ANSWERS["loud"]


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_model_without_a_projector(folder: Path) -> None:
    with genai.load(recipes.media_gguf(folder), threads=1) as model:
        assert (model.takes_images, model.takes_audio) == (False, False)
        with failing(0x80070032, genai.NotSupportedError) as caught:
            model.chat().send("?", images=[RED])
        assert "projector=" in str(caught.value)
        history: list[tuple[str, Any]] = [("user", [picture(RED), "?"]), ("assistant", RED_ANSWER)]
        with failing(0x80070032, genai.NotSupportedError) as caught:
            model.chat(messages=history).send("?")
        assert "projector=" in str(caught.value)


@pytest.mark.usefixtures("ort")
def test_an_onnx_model(folder: Path) -> None:
    path = recipes.scripted_onnx(folder)
    with genai.load(path, threads=1) as model, failing(0x80070032, genai.NotSupportedError) as caught:
        model.chat().send("?", images=[RED])
    assert "ONNX Runtime" in str(caught.value)
    with failing(0x80070032) as refused:
        genai.load(path, projector=recipes.media_projector_gguf(folder))
    assert "a projector goes with GGUF models only" in str(refused.value)


def test_what_the_projector_does_not_take(load: Load) -> None:
    for kind, fields, text in (
        ("gemma3", {"audio": [LOUD]}, "takes pictures, no sound"),
        ("qwen2a", {"images": [RED]}, "takes sound, no pictures"),
    ):
        given: Any = fields
        with failing(0x80070032, genai.NotSupportedError) as caught:
            load("llama", kind).chat().send("?", **given)
        assert text in str(caught.value)


def test_projectors_that_do_not_fit(folder: Path) -> None:
    model = recipes.media_gguf(folder)
    with failing(0x80070032, genai.NotSupportedError) as caught:
        genai.load(model, projector=recipes.projector_gguf(folder))  # for rows of 64
    assert "n_embd = 96" in str(caught.value)
    assert "published with this very model" in str(caught.value)
    with failing(0x80070570) as corrupt:
        genai.load(model, projector=model)
    assert "not a projector" in str(corrupt.value)
    with failing(0x80070002) as missing:
        genai.load(model, projector=folder / "nowhere.gguf")
    assert "nowhere.gguf" in str(missing.value)
    with failing(0x80070032) as alone:
        genai.load(recipes.media_projector_gguf(folder))
    assert "projector=" in str(alone.value)


def test_rows_that_see_each_other_need_a_batch_that_holds_them(folder: Path) -> None:
    files: Any = {"source": recipes.media_gguf(folder), "projector": recipes.media_projector_gguf(folder)}
    with genai.load(**files, threads=1, batch_size=3) as model:
        with failing(0x80070032, genai.NotSupportedError) as caught:
            model.chat().send("?", images=[RED])
        assert "genai.load(..., batch_size=4), or at the terminal --batch-size 4" in str(caught.value)
        assert model.chat().send("?").text == NOTHING
    with genai.load(**files, threads=1, batch_size=4) as model:
        assert model.chat().send("?", images=[RED]).text == RED_ANSWER


def test_drafting_beside_pictures(folder: Path) -> None:
    files: Any = {"source": recipes.media_gguf(folder), "projector": recipes.media_projector_gguf(folder)}
    with genai.load(**files, threads=1, speculation="lookup") as model:
        chat = model.chat()
        assert chat.send("?").text == NOTHING
        assert chat.send("?", images=[BLUE]).text == BLUE_ANSWER
        assert chat.send("?", images=[RED]).text == RED_ANSWER
        assert model.chat().send("?").text == NOTHING


def test_a_closed_model_refuses_pictures(folder: Path) -> None:
    model = genai.load(recipes.media_gguf(folder), projector=recipes.media_projector_gguf(folder), threads=1)
    chat = model.chat()
    stream = chat.stream("?", images=[RED])
    next(stream)
    model.close()
    with pytest.raises(RuntimeError, match="LanguageModel is closed"):
        chat.send("?", images=[RED])


def test_files_that_are_no_pictures_and_no_sound(load: Load, tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    path = tmp_path / "notes.txt"
    path.write_text("no picture")
    model = load("llama", "both")
    with failing(0x80070570) as caught:
        model.chat().send("?", images=[path])
    assert str(path) in str(caught.value)
    with failing(0x80070570) as caught:
        model.chat().send("?", audio=[path])
    assert str(path) in str(caught.value)
    with failing(0x80070002):
        model.chat().send("?", images=[tmp_path / "nowhere.png"])
    with pytest.raises(TypeError, match="a picture is a path"):
        model.chat().send("?", images=[5])
    with pytest.raises(TypeError, match="samples alone say no rate"):
        model.chat().send("?", audio=[TONE])  # type: ignore[list-item]
