"""`winml-lite generate` and what all commands share: options, streams, exit codes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.language_model import Answer, FakeModel, saying
from genai.results import TextGenerationFinishReason


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments], input=text, prog_name="winml-lite")


def test_the_answer_goes_to_standard_output_and_the_rest_to_standard_error(model: FakeModel) -> None:
    model.answers = [saying("Blue", " sky")]
    result = run("Why?")
    assert (result.exit_code, result.stdout) == (0, "Blue sky\n")
    assert result.stderr == "fake on llama.cpp (CPU): /models/fake.gguf\n"
    assert model.is_closed


def test_quiet_says_nothing_else(model: FakeModel) -> None:
    model.answers = [Answer(("Blue",), TextGenerationFinishReason.MAX_TOKENS)]
    result = run("-q", "Why?")
    assert (result.stdout, result.stderr) == ("Blue\n", "")
    assert model.loads[0][1]["progress"] is None


def test_a_line_end_is_not_doubled(model: FakeModel) -> None:
    model.answers = [saying("Blue\n")]
    assert run("Why?").stdout == "Blue\n"


def test_the_default_model_and_the_default_options(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run("Why?")
    source, options = model.loads[0]
    assert source == "smollm2"
    assert {name: options[name] for name in ("engine", "threads", "context_length", "offline")} == {
        "engine": None,
        "threads": None,
        "context_length": None,
        "offline": False,
    }
    assert model.asked == [(None, "Why?", genai.TextGenerationOptions())]


def test_the_options_of_loading(model: FakeModel) -> None:
    model.answers = [saying("a")]
    sizes = ("--context-length", "99", "--batch-size", "64")
    run("-m", "a.gguf", "--engine", "ort", "--threads", "3", *sizes, "--offline", "Why?")
    source, options = model.loads[0]
    assert source == "a.gguf"
    names = ("engine", "threads", "context_length", "batch_size", "offline")
    assert [options[name] for name in names] == ["ort", 3, 99, 64, True]


def test_all_options_of_sampling(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run(
        *("-n", "5", "--stop", "x", "--stop", "y", "--stop-token-id", "9", "--temperature", "0.5", "--top-k", "4"),
        *("--top-p", "0.9", "--min-p", "0.1", "--repetition-penalty", "1.2", "--repetition-penalty-window", "64"),
        *("--presence-penalty", "-0.5", "--frequency-penalty", "0.25", "--seed", "8", "Why?"),
    )
    assert model.asked[0][2] == genai.TextGenerationOptions(
        5, (9,), 0.5, 4, 0.9, 0.1, 1.2, 64, -0.5, 0.25, 8, stop=("x", "y")
    )


def test_all_extensions_of_sampling(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run(
        *("--typical-p", "0.9", "--top-n-sigma", "1.5", "--xtc-probability", "0.5", "--xtc-threshold", "0.2"),
        *("--dry-multiplier", "0.8", "--dry-base", "2", "--dry-allowed-length", "3", "--no-repeat-ngram-size", "4"),
        *("--dry-sequence-breaker", "\n", "--dry-sequence-breaker", ";", "--min-new-tokens", "2", "--ignore-eos"),
        *("--logit-bias", "7=-inf", "--logit-bias", "9=1.5", "--include-stop", "Why?"),
    )
    assert model.asked[0][2] == genai.TextGenerationOptions(
        typical_p=0.9,
        top_n_sigma=1.5,
        xtc_probability=0.5,
        xtc_threshold=0.2,
        dry_multiplier=0.8,
        dry_base=2,
        dry_allowed_length=3,
        dry_sequence_breakers=("\n", ";"),
        no_repeat_ngram_size=4,
        min_new_tokens=2,
        ignore_eos=True,
        logit_bias={7: -math.inf, 9: 1.5},
        include_stop=True,
    )


def test_the_prompt_from_standard_input(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run(text="\ufeffline one\nline two\n")
    assert model.asked[0][1] == "line one\nline two"


def test_a_dash_reads_standard_input(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run("-", text="  from there")
    assert model.asked[0][1] == "  from there"


def test_standard_input_beside_a_prompt_is_left_alone(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run("Sum it up:", text="from there")
    assert model.asked[0][1] == "Sum it up:"


@pytest.mark.parametrize(
    ("arguments", "prompt"),
    [
        (["--stdin", "Sum it up:"], "Sum it up:\n\nline one\nline two"),
        (["--stdin"], "line one\nline two"),
        (["--stdin", "-"], "line one\nline two"),
    ],
)
def test_standard_input_follows_the_prompt_when_asked_for(model: FakeModel, arguments: list[str], prompt: str) -> None:
    model.answers = [saying("a")]
    run(*arguments, text="line one\nline two\n")
    assert model.asked[0][1] == prompt


def test_an_empty_standard_input_adds_nothing(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run("--stdin", "Why?", text="")
    assert model.asked[0][1] == "Why?"


def test_sampling_options_without_effect_are_told(model: FakeModel) -> None:
    model.answers = [saying("a")]
    result = run("--seed", "3", "--top-k", "4", "--top-p", "0.9", "--min-p", "0.1", "Why?")
    assert result.stderr.startswith("(--top-k, --top-p, --min-p, --seed: without effect, because --temperature is 0)\n")


@pytest.mark.parametrize("arguments", [["--temperature", "1", "--seed", "3"], ["-q", "--seed", "3"]])
def test_no_note_on_sampling_options(model: FakeModel, arguments: list[str]) -> None:
    model.answers = [saying("a")]
    assert "without effect" not in run(*arguments, "Why?").stderr


def test_a_file_of_another_kind_is_no_model(model: FakeModel, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    result = run("-m", str(tmp_path / "a.txt"), "Why?")
    assert result.exit_code == 3
    assert "the extension '.txt' is none of .gguf, .onnx, .ort" in result.stderr
    assert model.loads == []


def test_the_system_message(model: FakeModel) -> None:
    model.answers = [saying("a")]
    run("--system", "Be brief.", "Why?")
    assert model.asked[0][0] == "Be brief."


def test_raw_continues_the_text(model: FakeModel) -> None:
    model.answers = [saying(" there was")]
    assert run("--raw", "Once").stdout == " there was\n"
    assert model.asked[0][:2] == ("raw", "Once")


def test_a_base_model_continues_the_text(model: FakeModel) -> None:
    model.answers, model.can_chat = [saying("a")], False
    run("Once")
    assert model.asked[0][0] == "raw"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (TextGenerationFinishReason.MAX_TOKENS, "(cut after 1 token, see --max-new-tokens)\n"),
        (TextGenerationFinishReason.SEQUENCE_CAPACITY, "(cut: the context is full, see --context-length)\n"),
        (TextGenerationFinishReason.EOS_TOKEN, ""),
    ],
)
def test_a_cut_answer_is_told(model: FakeModel, reason: TextGenerationFinishReason, message: str) -> None:
    model.answers = [Answer(("a",), reason)]
    assert run("Why?").stderr.removeprefix("fake on llama.cpp (CPU): /models/fake.gguf\n") == message


def test_json(model: FakeModel) -> None:
    model.answers = [saying("Blue", "é")]
    record = json.loads(run("--json", "Why?").stdout)
    assert (record["text"], record["finish_reason"], record["seed"]) == ("Blueé", "eos_token", 7)
    assert (record["engine"], record["generated_token_count"], record["token_ids"]) == ("llama.cpp", 2, [0, 1])
    assert record["timings"]["decode_tokens_per_second"] == 2.0


def test_json_with_log_probabilities(model: FakeModel) -> None:
    answer = saying("Blue")
    answer.logprobs = (genai.TokenLogprob(3, -0.5, ((3, -0.5), (4, -1.5))),)
    model.answers = [answer]
    record = json.loads(run("--json", "--top-logprobs", "2", "Why?").stdout)
    assert model.asked[0][2].top_logprobs == 2
    assert record["logprobs"] == [{"token_id": 3, "logprob": -0.5, "top": [[3, -0.5], [4, -1.5]]}]


def test_json_without_log_probabilities(model: FakeModel) -> None:
    model.answers = [saying("Blue")]
    assert json.loads(run("--json", "Why?").stdout)["logprobs"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "3", "Why?"], "top_p must be above 0"),
        (["--temperature", "-1", "Why?"], "temperature must not be negative"),
        (["-n", "0", "Why?"], "max_new_tokens"),
        (["--stop", "", "Why?"], "empty string"),
        (["--min-new-tokens", "9", "-n", "3", "Why?"], "min_new_tokens must not be above max_new_tokens (3), not 9"),
        (["--logit-bias", "a=1", "Why?"], "'a=1' is no ID=VALUE"),
        (["--logit-bias", "4", "Why?"], "'4' is no ID=VALUE"),
        (["--logit-bias", "4=nan", "Why?"], "finite or minus infinity"),
        (["--top-logprobs", "2", "Why?"], "--top-logprobs needs --json"),
        (["--json", "--top-logprobs", "-1", "Why?"], "top_logprobs"),
        (["--threads", "0", "Why?"], "--threads"),
        (["--engine", "other", "Why?"], "--engine"),
        (["--raw", "--system", "x", "Why?"], "--system needs the chat template"),
        ([""], "the prompt is empty"),
        (["-"], "the prompt is empty"),
        (["a", "b"], "unexpected extra argument"),
    ],
)
def test_wrong_usage(model: FakeModel, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert model.loads == []


def test_a_bias_on_a_token_that_the_model_lacks_is_wrong_usage(model: FakeModel) -> None:
    result = run("--logit-bias", "5=1", "--logit-bias", "2000000=1", "Why?")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--logit-bias: the vocabulary has no token 2000000" in result.stderr
    assert model.asked == []


def test_a_system_message_for_a_base_model(model: FakeModel) -> None:
    model.can_chat = False
    result = run("--system", "x", "Why?")
    assert result.exit_code == 2
    assert "fake has no chat template, so it takes no --system" in result.stderr


@pytest.mark.parametrize(
    ("hresult", "code"), [(0x80070002, 3), (0x80070570, 3), (0x8007000D, 3), (0x8007007E, 4), (0x80004005, 4)]
)
def test_exit_codes_of_failures_when_loading(monkeypatch: pytest.MonkeyPatch, hresult: int, code: int) -> None:
    def load(source: str, **options: object) -> None:
        raise genai.WinMLError(hresult, "genai.load", "the reason")

    monkeypatch.setattr(genai, "load", load)
    result = run("Why?")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"Error: the reason (0x{hresult:08X})\n"


def test_a_failure_in_the_middle_keeps_what_was_said(model: FakeModel) -> None:
    model.answers = [saying("Blue", genai.WinMLError(0x80004005, "run", "the reason"))]
    result = run("-q", "Why?")
    assert (result.exit_code, result.stdout) == (4, "Blue\n")
    assert "the reason" in result.stderr


def test_an_interruption(model: FakeModel) -> None:
    model.answers = [saying("Blue", KeyboardInterrupt())]
    result = run("-q", "Why?")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "Blue\n", "\ninterrupted\n")
    assert model.is_closed
