"""Scores and perplexity on real engines, against logits that the engines give without us."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.model_files import ModelFiles
from fakes.ort_decoder import OrtDecoder
from fakes.raw_llama import RawLlama, log_softmax
from fakes.rig import failing
from models.recipes import hybrid_gguf, random_onnx, random_pipeline, scripted_gguf
from winml_lite.native.llama.sequence import LlamaSequence

PROMPT = "Once upon a time"
ENDS = (" there was", " the", "x y z")
TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 12


@pytest.fixture
def model(files: ModelFiles, llama: None) -> Iterator[genai.LanguageModel]:
    with genai.load(files.gguf, threads=1) as model:
        yield model


@pytest.fixture
def raw(files: ModelFiles, llama: None) -> Iterator[RawLlama]:
    raw = RawLlama(files.gguf)
    yield raw
    raw.close()


def pairs(tokenizer: genai.Tokenizer) -> list[tuple[list[int], int]]:
    """Tokens of prompt and ending, and where the ending begins; in this vocabulary no token spans both."""
    first = len(tokenizer.encode(PROMPT))
    return [(tokenizer.encode(PROMPT + end), first) for end in ENDS]


def test_scores_equal_the_logits_of_llama_cpp(model: genai.LanguageModel, raw: RawLlama) -> None:
    scores = model.score(PROMPT, ENDS)
    for score, (tokens, first) in zip(scores, pairs(model.tokenizer), strict=True):
        assert score.token_ids == tuple(tokens[first:])
        wanted = raw.log_probabilities(tokens, first)
        np.testing.assert_allclose(score.token_log_probabilities, wanted, rtol=0, atol=1e-3)
        assert score.log_probability == pytest.approx(sum(score.token_log_probabilities))


def test_they_equal_them_exactly_batch_for_batch(model: genai.LanguageModel, raw: RawLlama) -> None:
    tokens, first = pairs(model.tokenizer)[0]
    (score,) = model.score(tokens[:first], [tokens[first:]])
    wanted = raw.log_probabilities(tokens, first)
    np.testing.assert_allclose(score.token_log_probabilities, wanted, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize("all_logits", [True, False])
def test_scores_equal_the_logits_of_onnx_runtime(files: ModelFiles, all_logits: bool) -> None:
    folder = random_onnx(files.folder, "gqa", all_logits=all_logits)
    peer = OrtDecoder(random_onnx(files.folder, "gqa", all_logits=True))
    with genai.load(folder, threads=1) as model:
        scores = model.score(PROMPT, ENDS)
        for score, (tokens, first) in zip(scores, pairs(model.tokenizer), strict=True):
            peer.reset()
            rows = log_softmax(peer.feed(tokens))
            wanted = rows[np.arange(first - 1, len(tokens) - 1), tokens[first:]]
            np.testing.assert_allclose(score.token_log_probabilities, wanted, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("ort")
def test_a_decoder_in_three_graphs_is_run_token_by_token(files: ModelFiles) -> None:
    with (
        genai.load(random_pipeline(files.folder), threads=1) as model,
        genai.load(random_onnx(files.folder, "gqa"), threads=1) as whole,
    ):
        for one, other in zip(model.score(PROMPT, ENDS), whole.score(PROMPT, ENDS), strict=True):
            np.testing.assert_allclose(one.token_log_probabilities, other.token_log_probabilities, rtol=0, atol=1e-3)


def test_tasks_score_and_measure_what_threads_do(model: genai.LanguageModel) -> None:
    wanted = model.score(PROMPT, ENDS)
    measured = model.perplexity(TEXT, window=64)

    async def run() -> None:
        scores, result = await asyncio.gather(
            model.ascore(PROMPT, ENDS), model.aperplexity(TEXT, window=64, progress=lambda *done: told.append(done))
        )
        assert scores == wanted
        assert result == measured
        assert told[-1][0] == told[-1][1]

    told: list[tuple[int, int]] = []
    asyncio.run(run())


@pytest.mark.usefixtures("ort")
def test_tasks_score_on_onnx_runtime(files: ModelFiles) -> None:
    async def run() -> None:
        async with genai.load(random_onnx(files.folder, "gqa"), threads=1) as model:
            one, other = await asyncio.gather(model.ascore(PROMPT, ENDS), model.aperplexity(TEXT[:200], window=32))
            assert one == await asyncio.to_thread(model.score, PROMPT, ENDS)
            assert other == await asyncio.to_thread(model.perplexity, TEXT[:200], window=32)

    asyncio.run(run())


def test_a_task_that_is_cancelled_leaves_the_model_usable(model: genai.LanguageModel) -> None:
    wanted = model.score(PROMPT, ENDS)

    async def run() -> None:
        windows: list[int] = []
        may_go = threading.Event()

        def hold(done: int, _: int) -> None:
            windows.append(done)
            assert may_go.wait(100)

        task = asyncio.create_task(model.aperplexity(TEXT * 20, window=64, progress=hold))
        while not windows:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0)  # the task is told
        may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await model.ascore(PROMPT, ENDS) == wanted
        assert len(windows) == 1

    asyncio.run(run())


def test_a_task_takes_a_source_and_a_timeout(model: genai.LanguageModel) -> None:
    source = genai.CancellationSource()
    source.cancel()
    with failing(0x800704C7):
        asyncio.run(model.ascore(PROMPT, ENDS, cancellation=source))
    with failing(0x800704C7):
        asyncio.run(model.aperplexity(TEXT, cancellation=source))

    async def run() -> None:
        async with model.astream(PROMPT, max_new_tokens=5) as stream:
            await anext(stream)
            for call in (model.ascore(PROMPT, ENDS, timeout=0.01), model.aperplexity(TEXT, timeout=0.01)):
                with pytest.raises(TimeoutError, match="busy"):
                    await asyncio.create_task(call)

    asyncio.run(run())


def test_tasks_check_their_arguments_first(model: genai.LanguageModel) -> None:
    with pytest.raises(TypeError, match="continuations must be a list of texts"):
        asyncio.run(model.ascore(PROMPT, "there"))
    with pytest.raises(TypeError, match="text must be str or token ids"):
        asyncio.run(model.aperplexity(b"there"))
    with pytest.raises(ValueError, match="definition"):
        asyncio.run(model.aperplexity(TEXT, definition="other"))  # type: ignore[arg-type]
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(model.ascore(PROMPT, ENDS))


@pytest.mark.usefixtures("llama")
def test_what_greedy_decoding_writes_is_greedy(files: ModelFiles) -> None:
    with genai.load(scripted_gguf(files.folder), threads=1) as model:
        sentence = model.generate("What\n", max_new_tokens=5).text
        greedy, other = model.score("What\n", [sentence, "museums"])
        assert greedy.is_greedy
        assert not other.is_greedy
        assert greedy.log_probability / greedy.token_count > other.log_probability / other.token_count


@pytest.mark.usefixtures("llama")
def test_recurrent_state_is_evaluated_anew(files: ModelFiles) -> None:
    with genai.load(hybrid_gguf(files.folder), threads=1) as model:
        together = model.score(PROMPT, ENDS)
        alone = [model.score(PROMPT, [end])[0] for end in ENDS]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one.token_log_probabilities, other.token_log_probabilities, rtol=0, atol=1e-3)


def test_generating_goes_on_as_before(model: genai.LanguageModel) -> None:
    before = model.generate(PROMPT, max_new_tokens=8).token_ids
    model.score(PROMPT, ENDS)
    assert model.generate(PROMPT, max_new_tokens=8).token_ids == before


def test_a_canceled_source_cancels(model: genai.LanguageModel) -> None:
    source = genai.CancellationSource()
    source.cancel()
    with failing(0x800704C7):
        model.score(PROMPT, ENDS, cancellation=source)
    with failing(0x800704C7):
        model.perplexity(TEXT, cancellation=source)
    assert len(model.score(PROMPT, ENDS)) == 3


@pytest.mark.parametrize("ends", ["there", b"there", [b"there"], [5]])
def test_what_are_no_continuations(model: genai.LanguageModel, ends: object) -> None:
    with pytest.raises(TypeError):
        model.score(PROMPT, ends)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        model.score(PROMPT, [""])


def test_while_a_stream_is_open_its_thread_is_refused(model: genai.LanguageModel) -> None:
    with model.stream(PROMPT, max_new_tokens=5) as stream:
        next(stream)
        with failing(0x8007139F):
            model.score(PROMPT, ENDS)


# Perplexity


def test_perplexity_equals_numpy(model: genai.LanguageModel, raw: RawLlama) -> None:
    tokens = model.tokenizer.encode(TEXT)[:150]
    windows = [(tokens[0:64], 1), (tokens[32:96], 32), (tokens[64:128], 32), (tokens[96:150], 32)]
    wanted = np.concatenate([raw.log_probabilities(window, first) for window, first in windows])
    result = model.perplexity(tokens, window=64, stride=32)
    assert result.scored_token_count == len(wanted) == 149
    assert result.mean_negative_log_likelihood == pytest.approx(-wanted.mean(), abs=1e-3)
    assert result.perplexity == pytest.approx(np.exp(-wanted.mean()), rel=1e-3)


def test_the_definition_of_llama_cpp(model: genai.LanguageModel, raw: RawLlama) -> None:
    tokens = model.tokenizer.encode(TEXT)[:150]
    windows = [tokens[start : start + 64] for start in (0, 64)]
    wanted = np.concatenate([raw.log_probabilities(window, 33) for window in windows])
    result = model.perplexity(tokens, window=64, definition="llama.cpp")
    assert result.scored_token_count == len(wanted) == 2 * 31
    assert result.perplexity == pytest.approx(np.exp(-wanted.mean()), rel=1e-3)
    error = np.exp(-wanted.mean()) * wanted.std() / np.sqrt(len(wanted) - 1)
    assert result.standard_error == pytest.approx(error, rel=1e-2)


def test_progress_counts_windows(model: genai.LanguageModel) -> None:
    told: list[tuple[int, int]] = []
    model.perplexity(model.tokenizer.encode(TEXT)[:100], window=64, stride=32, progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]


# The command


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["perplexity", *map(str, arguments)], prog_name="winml-lite")


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_command_says_what_the_model_says(model: genai.LanguageModel, files: ModelFiles, text_file: Path) -> None:
    wanted = model.perplexity(TEXT, window=64)
    done = run(files.gguf, text_file, "--window", "64", "--threads", "1", "-q", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["perplexity"] == pytest.approx(wanted.perplexity, rel=1e-6)
    assert (told["window"], told["stride"], told["scored_token_count"]) == (64, 32, wanted.scored_token_count)


def test_the_command_prints_a_line(files: ModelFiles, text_file: Path, llama: None) -> None:
    done = run(files.gguf, text_file, "--window", "64", "--threads", "1", "--llama-cpp")
    assert done.exit_code == 0, done.output
    number, rest = done.stdout.split(" ", 1)
    assert float(number) > 1
    assert rest.startswith("± ")
    assert "on llama.cpp" in done.stderr


@pytest.mark.parametrize("arguments", [("--window", "1"), ("--stride", "99"), ("--llama-cpp", "--stride", "3")])
def test_wrong_usage(files: ModelFiles, text_file: Path, arguments: tuple[str, ...], llama: None) -> None:
    done = run(files.gguf, text_file, "--window", "64", "-q", *arguments)
    assert done.exit_code == 2


def test_a_text_that_is_too_short(files: ModelFiles, tmp_path: Path, llama: None) -> None:
    (tmp_path / "text.txt").write_text("x")
    done = run(files.gguf, tmp_path / "text.txt", "-q", "--llama-cpp")
    assert done.exit_code == 2
    assert "tokens" in done.stderr


@pytest.mark.usefixtures("llama")
def test_a_recurrent_model_scores_after_an_interrupt_in_a_step(
    files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = LlamaSequence.commit
    commits = iter((commit, _interrupt))  # the prompt, and the step over the first continuation

    with genai.load(hybrid_gguf(files.folder), threads=1) as model:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(LlamaSequence, "commit", lambda sequence: next(commits)(sequence))
            model.score(PROMPT, ["abc"])
        (score,) = model.score(PROMPT, ["xyz"])
    with genai.load(hybrid_gguf(files.folder), threads=1) as undisturbed:
        (wanted,) = undisturbed.score(PROMPT, ["xyz"])
    assert score.log_probability == pytest.approx(wanted.log_probability, abs=0.05)


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt
