"""`winml-lite transcribe`: what is said in recordings, as text or subtitles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import click

import genai
from genai.subtitles import VTT_HEADER, cues

from . import completion, terminal
from .options import ModelChoice, gather, onnx_model_options
from .several_files import (
    STANDARD_INPUT,
    check_all_read,
    check_before_loading,
    targets,
    tell_unreadable,
    why_unreadable,
    writing,
)

Format: TypeAlias = Literal["text", "json", "srt", "vtt"]
_ENDINGS: dict[str, Format] = {".txt": "text", ".json": "json", ".srt": "srt", ".vtt": "vtt"}
_BAR = 24
_OPTIONS = ("live", "language", "translate", "prompt", "no_timestamps", "no_vad")


def _speech_options(command: Any) -> Any:
    """Add what is done to the sound; the command gets `fields`, keyword arguments of `SpeechModel.stream`."""
    command = gather(_OPTIONS, _fields, "fields")(command)
    for option in (
        click.option("--no-vad", is_flag=True, help="Hear the silences of long recordings, too."),
        click.option("--no-timestamps", is_flag=True, help="One piece of text for each window of up to 30 seconds."),
        click.option("--prompt", metavar="TEXT", help="Names and words that will occur, in the style that is wanted."),
        click.option("--translate", is_flag=True, help="Write English, whatever is spoken."),
        click.option("--language", metavar="CODE", help="What is spoken, as in en or de.  [default: finds out]"),
        click.option("--live", is_flag=True, help="Write each sentence a moment after it, as of a microphone."),
    ):
        command = option(command)
    return command


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    if values["live"] and values["no_vad"]:
        raise click.UsageError("--live finds the pauses by voice activity: leave --no-vad out")
    return {
        "live": values["live"],
        "language": values["language"],
        "translate": values["translate"],
        "prompt": values["prompt"],
        "timestamps": not values["no_timestamps"],
        "voice_activity": False if values["no_vad"] else None,
    }


def _format_options(command: Any) -> Any:
    """Add `--format` and its short forms; the command gets `form`, None where nothing is said."""
    short = tuple(name for name in get_args(Format) if name != "text")
    command = gather(("form", *short), _form, "form")(command)
    for name in short:
        command = click.option(f"--{name}", is_flag=True, help=f"The same as --format {name}.")(command)
    text = "What is written.  [default: what the name of --output says, else text]"
    return click.option("--format", "form", type=click.Choice(get_args(Format)), help=text)(command)


def _form(values: dict[str, Any]) -> Format | None:
    chosen = {name for name in get_args(Format) if values.get(name) or values["form"] == name}
    if len(chosen) > 1:
        raise click.UsageError(f"give one format, not {' and '.join(sorted(chosen))}")
    return chosen.pop() if chosen else None


def _named_form(files: tuple[str, ...], output: Path | None) -> Format:
    """Return the form that the name of the only transcript says; text where there is none, or a folder of them."""
    if output is None or output.is_dir():
        return "text"
    form = _ENDINGS.get(output.suffix.lower())
    if form is None and len(files) == 1:
        known = ", ".join(_ENDINGS)
        raise click.UsageError(f"--output {output}: the ending must be one of {known}, or say --format")
    return form or "text"


@click.command("transcribe")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.files)
@_format_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file, or a folder for several recordings.")
@_speech_options
@onnx_model_options("whisper-tiny.en", "speech")
def command(
    files: tuple[str, ...], form: Format | None, output: Path | None, fields: dict[str, Any], choice: ModelChoice
) -> None:
    """Write down what is said in recordings.

    \b
    winml-lite transcribe talk.mp3
    winml-lite transcribe talk.mp3 --output talk.srt
    winml-lite transcribe *.wav --json > talks.json
    arecord -f S16_LE -r 16000 | winml-lite transcribe - --live

    FILE is a sound file (WAV, FLAC, OGG, MP3 ...) of any length, or "-" for standard input. Text appears as it is
    heard, one piece a line, with its times where somebody looks on; Ctrl-C leaves what was heard so far. A file that
    cannot be read is told, the others are transcribed all the same, and the exit code is 3; with --json its entry has
    an "error" in place of the text.

    The model is a name, or a folder that `winml-lite convert` has made of a Whisper model. Silences of more than two
    seconds in recordings of more than 30 are passed over; the small model for that is downloaded once.

    With --live the text of a sentence comes a moment after it. Standard input, a WAV, is then heard as it comes. The
    model runs once for each sentence, so that a recording takes longer.
    """
    form = form or _named_form(files, output)
    check_before_loading(files, "soundfile", "sound files need soundfile")
    transcripts = _targets(files, output, form)
    with choice.load_with(genai.load_speech) as model:
        if not choice.quiet:
            terminal.note(f"{model.name} on {model.engine}: {model.file}")
        done: list[dict[str, Any]] = []
        try:
            for file, target in zip(files, transcripts, strict=True):
                try:
                    transcription = _Writing(model, file, target, form, choice.quiet)
                    result = transcription.run(fields, is_one_of_several=len(files) > 1)
                except genai.WinMLError as error:
                    text = why_unreadable(file, error)
                    done.append({"recording": file, "error": text})
                    tell_unreadable(text, is_only=len(files) == 1)
                    continue
                done.append({"recording": file, **result.as_dict()})
                if transcription.is_interrupted:
                    raise KeyboardInterrupt
        finally:
            if form == "json" and output is None and done:
                terminal.answer_json({"model": model.name, "file": model.file, "recordings": done})
    check_all_read(sum("error" not in record for record in done), len(files))


class _Writing:
    """One recording on its way to a file or to standard output."""

    def __init__(self, model: genai.SpeechModel, file: str, target: Path | None, form: Format, quiet: bool) -> None:
        self._model = model
        self._file = file
        self._target = target
        self._form = form
        self._quiet = quiet
        self._bar = _ProgressBar(file)
        self.is_interrupted = False

    def run(self, fields: dict[str, Any], *, is_one_of_several: bool) -> genai.Transcript:
        """Transcribe, and return the whole: after Ctrl-C what was heard so far, which is written, too."""
        source: Any = sys.stdin.buffer if self._file == STANDARD_INPUT else self._file
        progress = None if self._quiet else self._bar
        if self._file == STANDARD_INPUT and not fields["live"]:
            self._tell_of_live(source)
        try:
            stream = self._model.stream(source, progress=progress, **fields)
        except ValueError as error:  # a language that the model does not know
            raise click.UsageError(str(error)) from None
        title = f"{self._file}\n" if is_one_of_several and self._target is None and self._form == "text" else ""
        written: list[str] = []
        try:
            for piece in _pieces(stream, self._form):
                self._bar.clear()
                written.append(piece)
                if self._target is None:
                    terminal.answer(title + piece)
                    title = ""
        except KeyboardInterrupt:
            self.is_interrupted = True
            stream.close()
        finally:
            self._bar.clear()
        terminal.answer(title)  # nothing was said
        result = stream.result
        if self._target is not None:
            _write(self._target, result.json() + "\n" if self._form == "json" else "".join(written))
        if not self._quiet:
            self._tell_speed(result, is_live=fields["live"])
        return result

    def _tell_of_live(self, source: Any) -> None:
        """Say on a terminal why nothing is seen until a recorder is stopped."""
        if not self._quiet and terminal.is_terminal(sys.stderr) and not source.seekable():
            terminal.note("-: it is read to its end first; with --live it is heard as it comes")

    def _tell_speed(self, result: genai.Transcript, *, is_live: bool) -> None:
        timings = result.timings
        heard = f"{_clock(timings.sound_seconds)} of sound"
        if is_live:  # the rest of the time it was waited for
            took = f"the model took {timings.encode_seconds + timings.decode_seconds:.1f} s"
        else:
            took = f"in {timings.seconds:.1f} s, real-time factor {timings.real_time_factor:.2f}"
        terminal.note(f"{self._file}: {heard}{'; ' if is_live else ' '}{took}")
        if self._target is not None:
            terminal.note(f"written: {self._target}")


def _pieces(stream: genai.SpeechStream, form: Format) -> Iterator[str]:
    """Yield what is written, as it is heard; JSON is written at the end."""
    if form == "srt":
        yield from cues(stream, "srt")
    elif form == "vtt":
        yield VTT_HEADER
        yield from cues(stream, "vtt")
    else:
        with_times = terminal.is_terminal(sys.stdout)
        for segment in stream:
            if form == "text":
                times = f"[{_clock(segment.start, 2)} -> {_clock(segment.end, 2)}]  " if with_times else ""
                yield f"{times}{segment.text}\n"


class _ProgressBar:
    """A line on standard error that is redrawn after each window; nothing where that is no terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._width = 0
        self._is_drawn = terminal.is_terminal(sys.stderr)

    def __call__(self, done: float, whole: float | None) -> None:
        """Show how far it is, in seconds."""
        if not self._is_drawn:
            return
        text = f"{self._name}: {_clock(done)} heard"
        if whole:
            share = min(1.0, done / whole)
            filled = round(share * _BAR)
            text = f"{self._name} {'█' * filled}{'░' * (_BAR - filled)} {share:4.0%} of {_clock(whole)}"
        self.clear()
        text = terminal.fitting(text)
        self._width = len(text)
        terminal.redraw(text, is_last=False)

    def clear(self) -> None:
        """Make room for what is written."""
        if self._width:
            terminal.redraw(" " * self._width + "\r", is_last=False)
            self._width = 0


def _targets(files: tuple[str, ...], output: Path | None, form: Format) -> list[Path | None]:
    """Return where each transcript goes."""
    if output is None and len(files) > 1 and form in ("srt", "vtt"):
        raise click.UsageError("subtitles of several recordings need a file each: name a folder with --output")
    ending = next(ending for ending, known in _ENDINGS.items() if known == form)
    return targets(files, output, "--output", ending, unnamed="recording")


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text, encoding="utf-8", newline="\n")


def _clock(seconds: float, digits: int = 0) -> str:
    """Return minutes and seconds, with hours where there are any."""
    whole, part = divmod(round(seconds * 10**digits), 10**digits)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    fraction = f".{part:0{digits}}" if digits else ""
    return f"{hours}:{minute:02}:{second:02}{fraction}" if hours else f"{minute}:{second:02}{fraction}"
