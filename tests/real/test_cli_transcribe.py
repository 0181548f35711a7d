"""`winml-lite transcribe` on the tiny model that hears tones, and on Whisper itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import genai
from cli import terminal
from cli.main import main
from cli.transcribe import _clock
from fakes.model_files import require_engine
from fakes.piped import Pipe
from fakes.real_models import catalog_model
from fakes.spoken import spoken
from models.voice_models import loudness_sequence
from models.whisper_models import tiny_whisper, tones

pytest.importorskip("soundfile", reason="sound files need soundfile: pip install 'winml-lite[media]'")
pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
SRT = "1\n00:00:00,000 --> 00:00:01,000\none\n\n2\n00:00:02,000 --> 00:00:03,000\ncafé\n\n"

INTERRUPTED = """
import sys
from cli import transcribe
from cli.main import main
transcribe._ProgressBar.__call__ = lambda *report: print("a window was heard", file=sys.stderr, flush=True)
main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a model and two recordings in it."""
    require_engine("ort")
    tiny_whisper(tmp_path / "model")
    genai.write_audio(tmp_path / "words.wav", (tones([0, None, 6]), 16000))
    genai.write_audio(tmp_path / "two.flac", (tones([1]), 16000))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def transcribe(*arguments: str, given: bytes | None = None, model: str = "model") -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["transcribe", *arguments, "--model", model], input=given)


@contextmanager
def struck_soon() -> Iterator[None]:
    """Have Ctrl-C strike in half a second."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def from_pipe(pipe: Pipe, *arguments: str) -> Result:
    """Run the command with a pipe as standard input."""
    return CliRunner().invoke(main, ["transcribe", "-", *arguments, "--model", "model"], input=cast(IO[bytes], pipe))


def test_a_line_for_each_piece(folder: Path) -> None:
    result = transcribe("words.wav")
    assert (result.exit_code, result.stdout) == (0, "one\ncafé\n")
    model, speed = result.stderr.splitlines()
    assert model == "model on ONNX Runtime: model"
    assert speed.startswith("words.wav: 0:03 of sound in ")
    assert "real-time factor 0." in speed


def test_nothing_but_the_text(folder: Path) -> None:
    assert transcribe("words.wav", "-q").stderr == ""


def test_several_recordings_have_headings(folder: Path) -> None:
    assert transcribe("words.wav", "two.flac", "-q").stdout == "words.wav\none\ncafé\ntwo.flac\ntwo\n"


def test_standard_input(folder: Path) -> None:
    assert transcribe("-", "-q", given=(folder / "two.flac").read_bytes()).stdout == "two\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_waits_for_its_writer(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    writer = threading.Timer(0.5, lambda: (folder / "pipe").write_bytes((folder / "two.flac").read_bytes()))
    writer.daemon = True  # nothing else ends its wait for a reader
    writer.start()
    assert transcribe("pipe", "-q").stdout == "two\n"
    writer.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_an_interrupt_ends_waiting_for_the_writer_of_a_named_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with struck_soon(), pytest.raises(KeyboardInterrupt):
        genai.read_audio("pipe")


@pytest.mark.parametrize("arguments", [["--srt"], ["--format", "srt"], ["--format", "srt", "--srt"]])
def test_subtitles(folder: Path, arguments: list[str]) -> None:
    assert transcribe("words.wav", "-q", *arguments).stdout == SRT


def test_web_subtitles(folder: Path) -> None:
    found = transcribe("two.flac", "-q", "--vtt").stdout
    assert found == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\ntwo\n\n"


def test_json(folder: Path) -> None:
    record = json.loads(transcribe("words.wav", "two.flac", "--json").stdout)
    assert (record["model"], record["file"]) == ("model", "model")
    assert [entry["recording"] for entry in record["recordings"]] == ["words.wav", "two.flac"]
    first = record["recordings"][0]
    assert (first["text"], first["language"], first["duration"]) == ("one café", "en", 3.0)
    assert [(piece["start"], piece["end"], piece["text"]) for piece in first["segments"]] == [
        (0.0, 1.0, "one"),
        (2.0, 3.0, "café"),
    ]
    assert first["timings"]["real_time_factor"] > 0


def test_without_timestamps(folder: Path) -> None:
    assert transcribe("words.wav", "-q", "--no-timestamps").stdout == "one café\n"


def test_two_formats_are_one_too_many(folder: Path) -> None:
    result = transcribe("words.wav", "--srt", "--vtt")
    assert result.exit_code == 2
    assert "give one format, not srt and vtt" in result.stderr


class TestOutput:
    @pytest.mark.parametrize(("name", "content"), [("a.srt", SRT), ("a.txt", "one\ncafé\n")])
    def test_the_name_of_the_file_says_the_format(self, folder: Path, name: str, content: str) -> None:
        result = transcribe("words.wav", "-o", name)
        assert (folder / name).read_bytes() == content.encode()
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1] == f"written: {name}"

    @pytest.mark.parametrize("name", ["a.docx", "a"])
    def test_a_name_that_says_no_format_is_refused_before_a_model_is_loaded(self, folder: Path, name: str) -> None:
        result = transcribe("words.wav", "-o", name, model="absent")
        assert result.exit_code == 2
        assert ".txt, .json, .srt, .vtt" in " ".join(result.stderr.split())
        assert not (folder / name).exists()

    def test_a_name_that_says_no_format_goes_with_one(self, folder: Path) -> None:
        transcribe("words.wav", "-o", "a.out", "--format", "text")
        assert (folder / "a.out").read_text(encoding="utf-8") == "one\ncafé\n"

    def test_a_folder_that_is_there_takes_one(self, folder: Path) -> None:
        (folder / "texts").mkdir()
        transcribe("words.wav", "-o", "texts")
        assert (folder / "texts" / "words.txt").read_text(encoding="utf-8") == "one\ncafé\n"

    def test_a_folder_for_several_texts(self, folder: Path) -> None:
        assert transcribe("words.wav", "two.flac", "-o", "out.docs").exit_code == 0
        assert sorted(path.name for path in (folder / "out.docs").iterdir()) == ["two.txt", "words.txt"]

    def test_json_in_a_file(self, folder: Path) -> None:
        transcribe("words.wav", "-o", "a.json")
        assert json.loads((folder / "a.json").read_text(encoding="utf-8"))["text"] == "one café"

    def test_a_folder_for_several(self, folder: Path) -> None:
        (folder / "sub").mkdir()
        genai.write_audio(folder / "sub" / "words.wav", (tones([2]), 16000))
        transcribe("words.wav", "sub/words.wav", "two.flac", "--srt", "-o", "out")
        assert sorted(path.name for path in (folder / "out").iterdir()) == ["two.srt", "words-2.srt", "words.srt"]
        assert (folder / "out" / "words.srt").read_text(encoding="utf-8") == SRT

    def test_subtitles_of_several_need_a_folder(self, folder: Path) -> None:
        result = transcribe("words.wav", "two.flac", "--srt")
        assert result.exit_code == 2
        assert "name a folder with --output" in result.stderr

    def test_a_file_is_no_folder_for_several(self, folder: Path) -> None:
        assert transcribe("words.wav", "two.flac", "-o", "two.flac").exit_code == 2

    def test_a_file_that_cannot_be_written(self, folder: Path) -> None:
        result = transcribe("words.wav", "-o", "nowhere/a.srt")
        assert result.exit_code == 1
        assert "cannot be written" in result.stderr


class TestFailures:
    def test_a_missing_file(self, folder: Path) -> None:
        result = transcribe("nowhere.wav")
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1] == "Error: nowhere.wav: there is no such file (0x80070002)"

    def test_the_others_are_transcribed_all_the_same(self, folder: Path) -> None:
        (folder / "no.wav").write_bytes(b"no sound")
        result = transcribe("no.wav", "two.flac")
        assert (result.exit_code, result.stdout) == (3, "two.flac\ntwo\n")
        assert "Error: no.wav: no sound that can be read" in result.stderr
        assert result.stderr.splitlines()[-1] == "Error: 1 of 2 files could not be read"

    def test_json_has_an_entry_for_each_file_in_order(self, folder: Path) -> None:
        (folder / "no.wav").write_bytes(b"no sound")
        result = transcribe("nowhere.wav", "two.flac", "no.wav", "--json", "-q")
        missing, heard, broken = json.loads(result.stdout)["recordings"]
        assert missing == {"recording": "nowhere.wav", "error": "nowhere.wav: there is no such file (0x80070002)"}
        assert (heard["recording"], heard["text"], "error" in heard) == ("two.flac", "two", False)
        assert (broken["recording"], sorted(broken)) == ("no.wav", ["error", "recording"])
        assert "no.wav: no sound that can be read" in broken["error"]
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (3, "Error: 2 of 3 files could not be read")

    def test_json_of_the_only_file_that_cannot_be_read(self, folder: Path) -> None:
        (folder / "no.wav").write_bytes(b"no sound")
        result = transcribe("no.wav", "--json", "-q")
        (entry,) = json.loads(result.stdout)["recordings"]
        assert (result.exit_code, result.stderr) == (3, f"Error: {entry['error']}\n")

    def test_a_language_that_the_model_does_not_know(self, folder: Path) -> None:
        result = transcribe("words.wav", "--language", "de")
        assert result.exit_code == 2
        assert "the model knows English only" in result.stderr

    def test_a_model_of_another_kind(self, folder: Path) -> None:
        result = transcribe("words.wav", model="smollm2")
        assert result.exit_code == 2
        assert "genai.load('smollm2')" in result.stderr

    def test_no_file(self, folder: Path) -> None:
        assert transcribe().exit_code == 2


class TestTerminal:
    @pytest.fixture(autouse=True)
    def _looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cli.terminal.is_terminal", lambda stream: True)

    def test_times_stand_before_the_text(self, folder: Path) -> None:
        assert transcribe("words.wav", "-q").stdout == "[0:00.00 -> 0:01.00]  one\n[0:02.00 -> 0:03.00]  café\n"

    def test_progress_is_drawn_and_wiped_out_before_the_text(self, folder: Path) -> None:
        bar = f"words.wav {'█' * 24} 100% of 0:03"
        errors = transcribe("words.wav").stderr
        assert f"\r{bar}\r{' ' * len(bar)}\r" in errors

    def test_progress_of_a_stream_of_unknown_length(self, folder: Path) -> None:
        assert "\r-: 0:01 heard" in transcribe("-", given=(folder / "two.flac").read_bytes()).stderr


class TestLive:
    """Two words with a pause between them, as a recorder writes them into a pipe: without a length."""

    @pytest.fixture(autouse=True)
    def _loudness(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have loud sound taken for speech."""
        onnx.save(loudness_sequence(), folder / "voice.onnx")
        with genai.VoiceActivity(folder / "voice.onnx") as activity:
            monkeypatch.setattr(genai.SpeechModel, "_voice_activity", lambda model, given, is_needed: activity)
            yield

    @pytest.fixture
    def recorder(self, folder: Path) -> Pipe:
        genai.write_audio(folder / "said.wav", (tones([0, None, 6, None], amplitude=0.9), 16000))
        content = (folder / "said.wav").read_bytes()
        return Pipe(content[:40] + b"\xff" * 4 + content[44:])

    def test_each_sentence_is_written_before_the_next_is_read(
        self, recorder: Pipe, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[tuple[str, float]] = []
        monkeypatch.setattr(terminal, "answer", lambda text: written.append((text, (recorder.taken - 44) / 3200)))
        result = from_pipe(recorder, "--live", "-q")
        assert (result.exit_code, result.stderr) == (0, "")
        # and how many tenths of a second were read
        assert [piece for piece in written if piece[0]] == [("one\n", 16), ("café\n", 36)]

    def test_without_it_a_pipe_is_read_to_its_end_first(self, recorder: Pipe) -> None:
        result = from_pipe(recorder, "-q")
        assert (result.exit_code, result.stdout) == (0, "one\ncafé\n")

    def test_a_terminal_is_told_why_nothing_is_seen(self, recorder: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cli.terminal.is_terminal", lambda stream: True)
        result = from_pipe(recorder)
        assert "-: it is read to its end first; with --live it is heard as it comes\n" in result.stderr

    def test_other_formats_say_how_to_make_wav(self) -> None:
        result = from_pipe(Pipe(b"fLaC" + bytes(100)), "--live", "-q")
        assert result.exit_code == 3
        assert "must be WAV; `ffmpeg -i INPUT -f wav -` makes it of other formats" in result.stderr

    def test_pauses_need_voice_activity(self) -> None:
        result = transcribe("words.wav", "--live", "--no-vad")
        assert result.exit_code == 2
        assert "leave --no-vad out" in result.stderr


@pytest.mark.parametrize(
    ("seconds", "digits", "shown"),
    [(0, 0, "0:00"), (59.6, 0, "1:00"), (61.5, 2, "1:01.50"), (59.999, 2, "1:00.00"), (3661, 0, "1:01:01")],
)
def test_clock(seconds: float, digits: int, shown: str) -> None:
    assert _clock(seconds, digits) == shown


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C alone there")
def test_ctrl_c_leaves_what_was_heard_so_far(folder: Path) -> None:
    genai.write_audio(folder / "long.wav", (np.tile(tones([0, None]), 3600), 16000))  # two hours
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "transcribe", "long.wav", "-m", "model", "--no-vad", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "model on ONNX Runtime: model\n"
    assert process.stderr.readline() == "a window was heard\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=500)
    assert (process.returncode, errors.splitlines()[-1]) == (130, "interrupted")
    [record] = json.loads(output)["recordings"]
    assert record["finish_reason"] == "CANCELED"
    assert set(record["text"].split()) == {"one"}


def test_hello_world(tmp_path: Path) -> None:
    require_engine("ort")
    genai.write_audio(tmp_path / "hello.wav", (spoken("Hello world. This is a test."), 16000))
    arguments: list[Any] = ["transcribe", tmp_path / "hello.wav", "--model", catalog_model("whisper-tiny.en")]
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0
    assert "hello world" in result.stdout.casefold()


def test_show_describes_a_model_that_hears(folder: Path) -> None:
    result = CliRunner().invoke(main, ["show", "model", "--json"])
    files = json.loads(result.stdout)["files"]
    assert [Path(file["path"]).name for file in files] == ["decoder.onnx", "encoder.onnx"]
    assert files[1]["inputs"][0]["shape"] == ["batch", 80, 3000]


def test_show_says_which_token_ends_what_a_model_hears(folder: Path) -> None:
    end = json.loads((folder / "model" / "whisper.json").read_text(encoding="utf-8"))["tokens"]["end"]
    lines = CliRunner().invoke(main, ["show", "model"]).stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("tokenizer"))
    assert line.endswith(f", begin None, end [{end}]")


def test_tokens_of_a_model_that_hears(folder: Path) -> None:
    result = CliRunner().invoke(main, ["tokens", "--model", "model", "--no-special", "one"])
    assert (result.exit_code, result.stderr) == (0, "3 tokens\n")


def test_a_recording_that_is_not_there_is_told_before_a_model_is_loaded(folder: Path) -> None:
    result = CliRunner().invoke(main, ["transcribe", "wrods.wav", "--model", "no model"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "Error: wrods.wav: there is no such file (0x80070002)\n"
