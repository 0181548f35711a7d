"""The command on the tiny models, in its own process, as a user and as a script would run it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from models.onnx_models import add, save
from models.recipes import SENTENCE, random_gguf, scripted_gguf, scripted_onnx, vocabulary_gguf

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "from cli.main import main; main(prog_name='winml-lite')"]
QUESTION = "What is the capital of France?"
LONG = ["--raw", "-n", "19000", "--context-length", "20000", "Once"]

pytestmark = pytest.mark.real
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="a GGUF model: llama-cpp-python is not installed"
)
needs_posix = pytest.mark.skipif(os.name == "nt", reason="signals and terminals of POSIX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, built once."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTHONUTF8", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def run(*arguments: str | Path, given: str | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=given.encode() if given is not None else None,
        stdin=None if given is not None else subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=500,
    )


def start(*arguments: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, **streams)


@needs_llama
def test_s_cli_03_generate_from_gguf(folder: Path) -> None:
    file = scripted_gguf(folder)
    done = run("generate", "-m", file, QUESTION)
    assert (done.returncode, done.stdout.decode()) == (0, SENTENCE + "\n")
    assert done.stderr.decode() == f"scripted on llama.cpp (CPU): {file}\n"


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
def test_generate_from_onnx(folder: Path, operators: str) -> None:
    done = run("generate", "-m", scripted_onnx(folder, operators), QUESTION)
    assert (done.returncode, done.stdout.decode()) == (0, SENTENCE + "\n")
    assert b"on ONNX Runtime (CPU): " in done.stderr


def test_s_cli_04_quiet_means_an_empty_standard_error(folder: Path) -> None:
    assert run("generate", "-q", "-m", scripted_onnx(folder), QUESTION).stderr == b""


def test_generate_reads_a_pipe(folder: Path) -> None:
    assert run("generate", "-m", scripted_onnx(folder), given=QUESTION + "\n").stdout.decode() == SENTENCE + "\n"


def test_generate_as_json(folder: Path) -> None:
    record = json.loads(run("generate", "-m", scripted_onnx(folder), "--json", QUESTION).stdout)
    assert (record["text"], record["finish_reason"], record["engine"]) == (SENTENCE, "eos_token", "ONNX Runtime")


def test_a_stop_text(folder: Path) -> None:
    done = run("generate", "-q", "-m", scripted_onnx(folder), "--stop", " city with", QUESTION)
    assert done.stdout.decode() == "Paris is the capital of France, a\n"


def test_s_cli_01_the_locale_c_changes_nothing(folder: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = run("generate", "-m", scripted_onnx(folder), QUESTION, **environment)
    assert (done.returncode, done.stdout.decode()) == (0, SENTENCE + "\n")


def test_s_cli_01_an_encoding_without_the_character(folder: Path) -> None:
    done = run("generate", "-m", scripted_onnx(folder), QUESTION, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.decode()) == (0, SENTENCE.replace("é", "?") + "\n")


@needs_llama
def test_chat_in_a_pipe(folder: Path) -> None:
    done = run("chat", "-q", "-m", scripted_gguf(folder), given=f"{QUESTION}\n\nAnd again?\n")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{SENTENCE}\n{SENTENCE}\n", b"")


def test_a_missing_file(tmp_path: Path) -> None:
    done = run("generate", "-m", tmp_path / "absent.gguf", QUESTION)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode().count("\n") == 1
    assert b"absent.gguf" in done.stderr


def test_an_unknown_name() -> None:
    done = run("generate", "-m", "smolm2", QUESTION)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"did you mean 'smollm2'?" in done.stderr


def test_a_name_that_is_not_there_and_offline() -> None:
    done = run("generate", "-m", "gemma3-270m", "--offline", QUESTION)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"winml-lite models pull gemma3-270m" in done.stderr


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "wrong.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    done = run("generate", "-m", tmp_path / "wrong.gguf", QUESTION)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"wrong.gguf" in done.stderr
    assert b"Traceback" not in done.stderr


def run_in_shell(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of sh in which "$@" is the program with these arguments."""
    words = ["sh", "-c", command, "sh", *PROGRAM, *map(str, arguments)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=500)


CLOSED = "Error: the answer cannot be written to standard output: it is closed\n"
WRITERS = {
    "help": ("--help",),
    "help of a command": ("generate", "--help"),
    "version": ("--version",),
    "models": ("models", "list"),
    "show": ("show",),
}


@needs_posix
@pytest.mark.parametrize("name", WRITERS)
def test_a_closed_output_ends_with_1(name: str) -> None:
    done = run_in_shell('"$@" >&-', *WRITERS[name])
    assert (done.returncode, done.stdout, done.stderr) == (1, "", CLOSED)


@needs_posix
def test_an_answer_for_a_closed_output_ends_with_1(folder: Path) -> None:
    done = run_in_shell('"$@" >&-', "generate", "-q", "-m", scripted_onnx(folder), QUESTION)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", CLOSED)


@needs_posix
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("arguments", [("models", "list"), ("--help",), ("generate", "--help")])
def test_a_full_disk_ends_with_1(arguments: tuple[str, ...]) -> None:
    done = run_in_shell('"$@" >/dev/full', *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: the answer cannot be written to standard output: No space left on device\n"


@needs_posix
@pytest.mark.parametrize("name", WRITERS)
def test_a_reader_that_has_gone_before_anything_was_written(name: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with start(*WRITERS[name], stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(100)) == (b"", 141)


@needs_posix
def test_a_closed_error_stream_changes_nothing_else(folder: Path) -> None:
    done = run_in_shell('"$@" 2>&-', "generate", "-m", scripted_onnx(folder), QUESTION)
    assert (done.returncode, done.stdout, done.stderr) == (0, SENTENCE + "\n", "")


@needs_posix
@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [(("generate", "-m", "absent.gguf", "x"), 3), (("nope",), 2)])
def test_an_error_that_nobody_can_read_keeps_its_code(stream: str, arguments: tuple[str, ...], code: int) -> None:
    if "full" in stream and not os.path.exists("/dev/full"):
        pytest.skip("this system has no full device")
    done = run_in_shell(f'"$@" {stream}', *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@needs_posix
def test_a_closed_input_is_an_empty_one(folder: Path) -> None:
    file = scripted_onnx(folder)
    done = run_in_shell('"$@" <&-', "generate", "-q", "-m", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: the prompt is empty" in done.stderr
    assert run_in_shell('"$@" <&-', "generate", "-q", "-m", file, QUESTION).stdout == SENTENCE + "\n"
    done = run_in_shell('"$@" <&-', "chat", "-q", "-m", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_posix
@needs_llama
def test_an_interruption_ends_with_130(folder: Path) -> None:
    with start("generate", "-m", random_gguf(folder), *LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(100) == 130
        assert process.stderr.read().endswith(b"\ninterrupted\n")


@needs_posix
@needs_llama
def test_a_reader_that_leaves_ends_it_quietly(folder: Path) -> None:
    command = start("generate", "-q", "-m", random_gguf(folder), *LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with command as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(100) == 141
        assert process.stderr.read() == b""


@needs_posix
@needs_llama
def test_s_cli_02_an_interruption_at_a_terminal_keeps_the_chat(folder: Path) -> None:
    terminal = Terminal("chat", "-m", random_gguf(folder), "-n", "19000", "--context-length", "20000")
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("hello")
    terminal.wait_for_more(100)
    terminal.type("\x03")
    terminal.wait_for("(stopped)")
    terminal.wait_for("> ")
    terminal.type("/help\n")
    terminal.wait_for("/reset")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


@needs_posix
@needs_llama
def test_s_cli_02_pasted_lines_are_one_message(folder: Path, tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    if getattr(readline, "_READLINE_LIBRARY_VERSION", "0") < "8.1":
        pytest.skip("this readline does not tell a paste from typing")
    terminal = Terminal("chat", "-m", scripted_gguf(folder), kind="xterm")
    terminal.wait_for("> ")
    terminal.type("\x1b[200~one\ntwo\x1b[201~\r")
    terminal.wait_for(SENTENCE)
    terminal.wait_for("> ")
    terminal.type(f"/save {tmp_path / 'chat'}\r")
    terminal.wait_for("saved 2 messages")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert json.loads((tmp_path / "chat").read_bytes())["messages"][0]["content"] == "one\ntwo"


@needs_posix
@needs_llama
def test_s_cli_02_a_paste_is_one_message_where_the_terminal_marks_it(folder: Path, tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    if "libedit" in (readline.__doc__ or "") or getattr(readline, "_READLINE_LIBRARY_VERSION", "0") < "8.1":
        pytest.skip("this readline does not tell a paste from typing")
    terminal = Terminal("chat", "-m", scripted_gguf(folder), kind="xterm")
    terminal.wait_for("\x1b[?2004h")  # else the terminal would not mark it
    terminal.wait_for("> ")
    terminal.type("\x1b[200~one\rtwo\rthree\r\x1b[201~")
    terminal.type("\r")
    terminal.wait_for(SENTENCE)
    assert saved_messages(terminal, tmp_path / "chat")[0]["content"] == "one\ntwo\nthree"


@needs_posix
@needs_llama
@pytest.mark.parametrize("text", ["one\rtwo\r\rthree\r", "one\ntwo\n\nthree\n"])
def test_s_cli_02_a_paste_is_one_message_where_nothing_marks_it(folder: Path, tmp_path: Path, text: str) -> None:
    terminal = Terminal("chat", "-m", scripted_gguf(folder), kind="dumb")
    terminal.wait_for("> ")
    terminal.type(text)
    terminal.wait_for(SENTENCE)
    messages = saved_messages(terminal, tmp_path / "chat")
    assert [message["content"] for message in messages] == ["one\ntwo\n\nthree", SENTENCE]


@needs_posix
@needs_llama
def test_lines_typed_one_after_the_other_are_messages_of_their_own(folder: Path, tmp_path: Path) -> None:
    terminal = Terminal("chat", "-m", scripted_gguf(folder))
    terminal.wait_for("> ")
    terminal.type("one\r")
    terminal.wait_for(SENTENCE)
    terminal.wait_for("> ")
    terminal.type("two\r")
    terminal.wait_for(SENTENCE)
    messages = saved_messages(terminal, tmp_path / "chat")
    assert [message["content"] for message in messages] == ["one", SENTENCE, "two", SENTENCE]


@needs_posix
@needs_llama
def test_lines_of_an_earlier_chat_come_back(folder: Path, home: Path) -> None:
    pytest.importorskip("readline")
    terminal = Terminal("chat", "-m", scripted_gguf(folder))
    terminal.wait_for("> ")
    terminal.type("first question\r")
    terminal.wait_for(SENTENCE)
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert (home / "chat_history").stat().st_mode & 0o777 == 0o600
    again = Terminal("chat", "-m", scripted_gguf(folder))
    again.wait_for("> ")
    again.type("\x10")  # Ctrl-P, the line before
    again.wait_for("first question")
    again.type("\r")
    again.wait_for(SENTENCE)
    again.wait_for("> ")
    again.type("\x04")
    assert again.exit_code() == 0


def saved_messages(terminal: Terminal, file: Path) -> list[dict[str, str]]:
    """Save the chat, leave it and return its messages."""
    terminal.wait_for("> ")
    terminal.type(f"/save {file}\r")
    terminal.wait_for("(saved ")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    messages: list[dict[str, str]] = json.loads(file.read_bytes())["messages"]
    return messages


class Terminal:
    """A chat at a pseudo terminal."""

    def __init__(self, *arguments: str | Path, kind: str = "dumb") -> None:
        import pty

        own, other = pty.openpty()
        environment = {**os.environ, "TERM": kind}
        command = [*PROGRAM, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True, preexec_fn=_own
        )
        os.close(other)
        self._own = own
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` appears; what comes before it is forgotten."""
        end = time.monotonic() + 500
        while text not in self._seen:
            assert time.monotonic() < end, self._seen
            self._seen += os.read(self._own, 65536).decode(errors="replace")
        self._seen = self._seen.partition(text)[2]

    def wait_for_more(self, count: int) -> None:
        """Read until `count` characters have come behind what was waited for."""
        while len(self._seen) < count:
            self._seen += os.read(self._own, 65536).decode(errors="replace")

    def exit_code(self) -> int:
        code = self._process.wait(100)
        os.close(self._own)
        return code


def _own() -> None:
    """Make the terminal the controlling one, so that Ctrl-C becomes a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@needs_llama
def test_tokens_there_and_back(folder: Path) -> None:
    file = scripted_gguf(folder)
    record = json.loads(run("tokens", "-m", file, "--json", "--no-special", SENTENCE).stdout)
    assert "".join(record["pieces"]) == SENTENCE.replace("é", "\\xc3\\xa9")
    ids = " ".join(map(str, record["ids"]))
    assert run("tokens", "-m", file, "--decode", ids).stdout.decode() == SENTENCE + "\n"


def test_tokens_of_a_folder(folder: Path) -> None:
    done = run("tokens", "-m", scripted_onnx(folder), "Paris")
    assert done.stdout.decode().split()[1:] == ["'Paris'"]
    assert done.stderr == b"1 token\n"


def test_tokens_of_an_empty_text(folder: Path) -> None:
    done = run("tokens", "-m", scripted_onnx(folder), "--no-special", "--json", "")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"text": "", "ids": [], "pieces": [], "count": 0})


@pytest.mark.parametrize("ids", ["1 x", "-5", "9999999", "99999999999999"])
def test_tokens_that_are_none(folder: Path, ids: str) -> None:
    done = run("tokens", "-m", scripted_onnx(folder), "--decode", "--", ids)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_prompt_that_is_too_long(folder: Path) -> None:
    done = run("generate", "-q", "-m", scripted_onnx(folder), "--context-length", "4", QUESTION)
    assert done.returncode == 2
    assert b"give a larger --context-length (0x8007007A)" in done.stderr


def test_an_engine_that_does_not_read_the_file(folder: Path) -> None:
    done = run("generate", "-m", scripted_gguf(folder), "--engine", "ort", QUESTION)
    assert done.returncode == 2
    assert b"`winml-lite convert " in done.stderr and b" FOLDER`" in done.stderr


@pytest.mark.parametrize("command", [["show"], ["generate", "-q", QUESTION, "-m"]])
@pytest.mark.parametrize("name", ["a.txt", "a.onnx", "a.gguf"])
def test_a_file_that_is_no_model_of_its_kind(tmp_path: Path, name: str, command: list[str]) -> None:
    (tmp_path / name).write_text("hello")
    done = run(*command, tmp_path / name)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"Error: ")
    assert b"IWinML" not in done.stderr


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    assert run("show", tmp_path).returncode == 3
    assert run("generate", "-m", tmp_path, QUESTION).returncode == 3


def test_show_describes_a_gguf(folder: Path) -> None:
    record = json.loads(run("show", scripted_gguf(folder), "--json").stdout)
    assert (record["name"], record["architecture"], record["format"]) == ("scripted", "llama", "GGUF 3")
    assert record["metadata"]["llama.context_length"] == 512
    assert [engine["name"] for engine in record["engines"]] == ["ONNX Runtime", "llama.cpp"]


def test_show_describes_a_folder(folder: Path) -> None:
    record = json.loads(run("show", scripted_onnx(folder), "--json").stdout)
    names = [port["name"] for port in record["files"][0]["inputs"]]
    assert {"input_ids", "past_key_values.0.key", "past_key_values.1.value"} <= set(names)
    assert (record["decoder"]["layers"], record["decoder"]["context_length"]) == (2, 512)
    assert record["tokenizer"]["chat_template"]


def test_show_prints_for_people(folder: Path) -> None:
    lines = run("show", scripted_onnx(folder)).stdout.decode().splitlines()
    assert lines[0].split() == ["name", scripted_onnx(folder).name]
    assert any(line.startswith("input          input_ids INT64 [") for line in lines)
    assert "input          past_key_values.N.key FLOAT32 [batch_size, 2, past_sequence_length, 16], 2 layers" in lines
    assert "output         present.N.value FLOAT32 [batch_size, 2, total_sequence_length, 16], 2 layers" in lines
    assert {"context        512", "architecture   llama", "layers         2", "vocabulary     331"} <= set(lines)
    assert any(line.startswith("engine         ONNX Runtime (.onnx .ort): 1.") for line in lines)


def test_show_describes_a_graph_without_a_tokenizer(tmp_path: Path) -> None:
    file = save(add(), tmp_path / "add.onnx")
    record = json.loads(run("show", file, "--json").stdout)
    assert record["format"] == "ONNX"
    assert "tokenizer" not in record and "tokenizer_problem" not in record


def test_show_keeps_the_names_of_a_graph_in_their_lines(tmp_path: Path) -> None:
    model = add()
    model.graph.node[0].op_type = "Add\x1b[31m\nwarning"
    shown = run("show", save(model, tmp_path / "odd.onnx")).stdout.decode()
    assert "operators      1 Add\\x1b[31m\\nwarning\n" in shown


def test_no_name_at_all() -> None:
    done = run("show", "")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"the name of the model is empty" in done.stderr


def test_show_gives_a_graph_nothing_of_a_gguf_beside_it(tmp_path: Path) -> None:
    scripted_gguf(tmp_path)
    record = json.loads(run("show", save(add(), tmp_path / "add.onnx"), "--json").stdout)
    assert record["chat_template"] is None


def test_show_prints_the_template(folder: Path) -> None:
    assert b"message" in run("show", scripted_onnx(folder), "--template").stdout


@needs_llama
def test_show_prints_the_template_of_a_gguf(folder: Path) -> None:
    assert b"message" in run("show", scripted_gguf(folder), "--template").stdout


@needs_llama
def test_show_says_which_vocabularies_are_unverified(tmp_path: Path) -> None:
    file = vocabulary_gguf(tmp_path, "rwkv")
    (warning,) = json.loads(run("show", file, "--json").stdout)["tokenizer"]["warnings"]
    assert "'rwkv'" in warning
    assert f"warning        {warning}" in run("show", file).stdout.decode().splitlines()


WITHOUT_LLAMA = [sys.executable, "-c", "import sys; sys.modules['llama_cpp'] = None\n" + PROGRAM[2]]


def test_show_prints_the_template_of_a_gguf_without_llama(folder: Path) -> None:
    file = scripted_gguf(folder)
    done = subprocess.run([*WITHOUT_LLAMA, "show", str(file), "--template"], capture_output=True, timeout=500)
    assert (done.returncode, b"message" in done.stdout) == (0, True), done.stderr


def test_convert_makes_a_folder_that_answers(folder: Path, tmp_path: Path) -> None:
    made = run("convert", scripted_gguf(folder), tmp_path / "made", "--operators", "plain", "--weights", "f32")
    assert (made.returncode, made.stdout.decode()) == (0, f"{tmp_path / 'made'}\n")
    assert run("generate", "-q", "-m", tmp_path / "made", QUESTION).stdout.decode() == SENTENCE + "\n"
    again = run("convert", scripted_gguf(folder), tmp_path / "made")
    assert (again.returncode, again.stdout) == (2, b"")


def test_bench_as_json(folder: Path) -> None:
    done = run(
        "bench", "-m", scripted_onnx(folder), "--prompt-tokens", "16", "--new-tokens", "4", "--runs", "1", "--json"
    )
    record = json.loads(done.stdout)
    assert record["prompt_token_count"] == 16
    assert record["prompt_tokens_per_second"] > 0


@pytest.mark.parametrize("engine", ["ort", pytest.param("llama", marks=needs_llama)])
def test_a_name_of_the_catalog_runs_on_either_engine_and_offline(folder: Path, home: Path, engine: str) -> None:
    content = scripted_gguf(folder).read_bytes()
    home.mkdir()
    (home / "catalog.toml").write_text(
        f'[[model]]\nname = "tiny"\nfile = "tiny.gguf"\nsize = {len(content)}\nlicence = "MIT"\nchat = true\n'
        f'sha256 = "{hashlib.sha256(content).hexdigest()}"\n'
        f"[[model.source]]\npath = '{scripted_gguf(folder)}'\n",
        encoding="utf-8",
    )
    first = run("generate", "-m", "tiny", "--engine", engine, QUESTION)
    assert (first.returncode, first.stdout.decode()) == (0, SENTENCE + "\n"), first.stderr
    again = run("generate", "-q", "-m", "tiny", "--engine", engine, "--offline", QUESTION)
    assert (again.returncode, again.stdout.decode(), again.stderr) == (0, SENTENCE + "\n", b"")
