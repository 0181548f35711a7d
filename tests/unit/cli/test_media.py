"""Pictures and sound at the terminal: `--image`, `--audio`, `--projector`, and the commands of a chat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import genai
from cli import terminal
from cli.line_input import LineReader
from cli.main import main
from fakes.language_model import FakeModel, saying
from genai import ChatMedia

Talk = Callable[..., Result]
PIXELS = np.full((2, 3, 3), 7, np.uint8)
PICTURE, OTHER, SOUND = ChatMedia.image(PIXELS), ChatMedia.image(PIXELS + 1), ChatMedia.audio(([0.5, 0.25], 8000))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """A model that sees and hears."""
    fake = FakeModel(takes_images=True, takes_audio=True)
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `a.png`, `b.png`, `c.wav` and files that are neither."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    for name, media in (("a.png", PICTURE), ("b.png", OTHER)):
        image.fromarray(media.content).save(tmp_path / name)
    genai.write_audio(tmp_path / "c.wav", ([0.5, 0.25], 8000), sample_format="float32")
    (tmp_path / "notes.txt").write_text("neither")
    return tmp_path


def run(*arguments: str | Path, given: str = "") -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=given)


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Run a chat with a person who types lines."""

    def talk(*lines: str, arguments: tuple[str, ...] = ()) -> Result:
        typed = iter(lines)
        monkeypatch.setattr(terminal, "is_interactive", lambda: True)
        monkeypatch.setattr(LineReader, "read", lambda reader, prompt: next(typed, None))
        monkeypatch.setattr("cli.chat.editing", lambda history: contextlib.nullcontext())
        return CliRunner().invoke(main, ["chat", "-q", *arguments])

    return talk


def test_generate_shows_pictures_and_sound(model: FakeModel, folder: Path) -> None:
    model.answers = [saying("A cat")]
    files = ("--image", folder / "a.png", "--audio", folder / "c.wav", "--image", folder / "b.png")
    result = run("generate", "-q", "--projector", folder / "a.png", *files, "What?")
    assert (result.exit_code, result.stdout) == (0, "A cat\n")
    assert model.forms == [{"images": [PICTURE, OTHER], "audio": [SOUND]}]
    assert model.loads[0][1]["projector"] == folder / "a.png"


def test_generate_without_media_says_nothing_of_them(model: FakeModel) -> None:
    model.answers = [saying("A cat")]
    run("generate", "-q", "What?")
    assert model.forms == [{}]
    assert model.loads[0][1]["projector"] is None


@pytest.mark.parametrize(("option", "file"), [("--image", "a.png"), ("--audio", "c.wav")])
def test_a_model_without_a_projector_is_told_of(model: FakeModel, folder: Path, option: str, file: str) -> None:
    model.takes_images = model.takes_audio = False
    for command in ("generate", "chat"):
        result = run(command, "-q", option, folder / file, given="What?\n")
        assert result.exit_code == 2
        assert f"{option}: fake takes no" in result.stderr
        assert "--projector FILE" in result.stderr


def test_raw_text_takes_no_pictures(model: FakeModel, folder: Path) -> None:
    result = run("generate", "--raw", "--image", folder / "a.png", "What?")
    assert result.exit_code == 2
    assert "chat template that --raw leaves out" in result.stderr
    model.can_chat = False
    result = run("generate", "-q", "--image", folder / "a.png", "What?")
    assert result.exit_code == 2
    assert "fake has no chat template, so it takes no --image" in result.stderr


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize(("option", "what"), [("--image", "no picture"), ("--audio", "no sound")])
def test_files_that_are_neither(model: FakeModel, folder: Path, command: str, option: str, what: str) -> None:
    result = run(command, "-q", option, folder / "notes.txt", given="What?\n")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"Error: {folder / 'notes.txt'}: {what} that can be read")


@pytest.mark.parametrize("option", ["--image", "--audio", "--projector"])
def test_files_that_are_not_there(model: FakeModel, tmp_path: Path, option: str) -> None:
    result = run("generate", option, tmp_path / "nowhere", "What?")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_the_first_line_of_a_pipe_goes_with_the_picture(model: FakeModel, folder: Path) -> None:
    model.answers = [saying("A cat"), saying("Yes")]
    result = run("chat", "-q", "--image", folder / "a.png", given="What?\nSure?\n")
    assert (result.exit_code, result.stdout) == (0, "A cat\nYes\n")
    assert model.forms == [{"images": [PICTURE]}, {}]


def test_commands_show_pictures_with_the_next_message(model: FakeModel, folder: Path, talk: Talk) -> None:
    model.answers = [saying("A cat"), saying("Yes")]
    result = talk(
        f"/image {folder / 'a.png'}", f"/image {folder / 'b.png'}", f"/audio {folder / 'c.wav'}", "What?", "?"
    )
    assert model.forms == [{"images": [PICTURE, OTHER], "audio": [SOUND]}, {}]
    assert "(a.png goes with the next message)" in result.stderr


def test_pictures_are_taken_back(model: FakeModel, folder: Path, talk: Talk) -> None:
    model.answers = [saying("Nothing")]
    result = talk("/image -", "What?", arguments=("--image", str(folder / "a.png")))
    assert model.forms == [{}]
    assert "(the next message goes alone)" in result.stderr


def test_commands_tell_what_is_wrong(model: FakeModel, folder: Path, talk: Talk) -> None:
    model.answers = [saying("Nothing")]
    result = talk(f"/image {folder / 'notes.txt'}", "/audio nowhere.wav", "/image", "What?")
    assert model.forms == [{}]
    assert "no picture that can be read" in result.stderr
    assert "/audio nowhere.wav: nowhere.wav: there is no such file" in result.stderr
    assert "no command /image without FILE" in result.stderr


def test_commands_of_a_model_that_does_not_see(model: FakeModel, folder: Path, talk: Talk) -> None:
    model.takes_images = False
    assert "takes no pictures" in talk(f"/image {folder / 'a.png'}").stderr


def test_pictures_of_a_failed_turn_wait_for_the_next(model: FakeModel, folder: Path, talk: Talk) -> None:
    model.answers = [saying("A cat")]
    refusals = iter([genai.WinMLError(0x8007007A, "generate", "too long")])
    chat = model.chat

    def refuse_once(*arguments: object, **fields: object) -> object:
        made = chat()
        stream = made.stream

        def streamed(text: str, **rest: object) -> object:
            error = next(refusals, None)
            if error is not None:
                raise error
            return stream(text, **rest)  # type: ignore[arg-type]

        made.stream = streamed  # type: ignore[method-assign,assignment]
        return made

    model.chat = refuse_once  # type: ignore[method-assign,assignment]
    result = talk("What?", "?", arguments=("--image", str(folder / "a.png")))
    assert "pictures and sound wait for the next message" in result.stderr
    assert model.forms == [{"images": [PICTURE]}]


def test_a_saved_chat_names_its_pictures(model: FakeModel, folder: Path, talk: Talk) -> None:
    media = ChatMedia.image(folder / "a.png")
    made = genai.ChatMessage("user", [media, "What?"])
    (folder / "chat.json").write_text(json.dumps({"system": None, "messages": [made.as_dict()]}))
    result = talk(f"/load {folder / 'chat.json'}", f"/save {folder / 'again.json'}")
    assert model.chats[-1].messages == (made,)
    assert json.loads((folder / "again.json").read_text()) == json.loads((folder / "chat.json").read_text())
    assert result.exit_code == 0
