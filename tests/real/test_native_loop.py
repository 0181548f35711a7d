"""A split decoder in one pipeline: embedding, decoder, choice and feedback, without Python between the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from examples import token_loop
from examples.native_token_loop import TokenLoop, build_loop, embedding_table, read_prompt, shared
from fakes.rig import failing
from genai import Tokenizer
from models.recipes import SENTENCE, random_onnx, scripted_split
from models.split_decoder import split_decoder
from winml_lite import Runtime, Stage, Tensor, TensorDataType

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]
QUESTION = [("user", "What is the capital of France?")]
WORDS = [10, 259, 50, 77, 120, 33, 200, 8, 64, 91]
STEPS = 18
"""Tokens of the sentence and the end of the turn."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return scripted_split(tmp_path)


@pytest.fixture
def tokenizer(folder: Path) -> Iterator[Tokenizer]:
    with Tokenizer.from_file(folder) as tokenizer:
        yield tokenizer


@pytest.fixture
def prompt(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode_conversation(QUESTION)


@pytest.fixture
def loop(runtime: Runtime, folder: Path, prompt: list[int]) -> TokenLoop:
    """A loop that has read the prompt."""
    loop = build_loop(runtime, folder)
    read_prompt(loop, prompt)
    return loop


def test_one_submission_says_the_whole_sentence(loop: TokenLoop, tokenizer: Tokenizer, prompt: list[int]) -> None:
    loop.pipeline.iteration_execution().submit_iterations(STEPS).wait()
    answer = loop.ring[len(prompt) : len(prompt) + STEPS].tolist()
    assert tokenizer.decode(answer, skip_special_tokens=True) == SENTENCE
    assert answer[-1] in tokenizer.eos_token_ids


def test_single_runs_say_the_same(loop: TokenLoop, tokenizer: Tokenizer, prompt: list[int]) -> None:
    for _ in range(STEPS):
        loop.pipeline.run()
    answer = loop.ring[len(prompt) : len(prompt) + STEPS].tolist()
    assert tokenizer.decode(answer, skip_special_tokens=True) == SENTENCE


def test_the_prompt_stands_in_the_ring(loop: TokenLoop, prompt: list[int]) -> None:
    loop.pipeline.run()
    assert loop.ring[: len(prompt)].tolist() == prompt


def test_a_full_ring_ends_the_submission_and_keeps_the_tokens_before(
    monkeypatch: pytest.MonkeyPatch, runtime: Runtime, folder: Path, prompt: list[int]
) -> None:
    monkeypatch.setattr("examples.native_token_loop.CONTEXT_LENGTH", len(prompt) + 3)
    loop = build_loop(runtime, folder)
    read_prompt(loop, prompt)
    with failing(0x8000000B):
        loop.pipeline.iteration_execution().submit_iterations(10).wait()
    full = loop.ring.copy()
    assert np.count_nonzero(full) == len(prompt) + 3
    with failing(0x8000000B):
        loop.pipeline.run()
    assert loop.ring.tolist() == full.tolist()


@pytest.mark.parametrize("weights", ["f32", "f16", "q8"])
def test_every_kind_of_weights_can_be_split(
    runtime: Runtime, tmp_path: Path, weights: str, tokenizer: Tokenizer, prompt: list[int]
) -> None:
    loop = build_loop(runtime, scripted_split(tmp_path / weights, weights))
    read_prompt(loop, prompt)
    loop.pipeline.iteration_execution().submit_iterations(STEPS).wait()
    answer = loop.ring[len(prompt) : len(prompt) + STEPS].tolist()
    assert tokenizer.decode(answer, skip_special_tokens=True) == SENTENCE


@pytest.fixture
def random_folder(tmp_path: Path) -> Path:
    """A split decoder whose answer depends on every token before."""
    return split_decoder(random_onnx(tmp_path, "gqa", "f32"))


def test_the_split_model_says_what_the_whole_model_says(runtime: Runtime, random_folder: Path) -> None:
    loop = build_loop(runtime, random_folder)
    read_prompt(loop, WORDS)
    loop.pipeline.iteration_execution().submit_iterations(40).wait()
    with runtime.load_model(random_folder / "model.onnx") as model:
        by_hand = list(islice(token_loop.generate(runtime, model, WORDS, frozenset()), 40))
    assert loop.ring[len(WORDS) : len(WORDS) + 40].tolist() == by_hand
    assert len(set(by_hand)) > 5


def with_state(stage: Stage, states: dict[tuple[int, int], Tensor]) -> Stage:
    """Bind the state of a decoder to tensors of the caller."""
    stage.caller_owns_state_tensors = True
    for pair, tensor in states.items():
        stage.add_state_tensor_pair(*pair)
        stage.bind_input(pair[0], tensor)
    return stage


def test_another_pipeline_may_read_the_prompt_in_one_run(runtime: Runtime, random_folder: Path) -> None:
    """Both decoders keep their state in the same tensors of the caller."""
    loop = build_loop(runtime, random_folder)
    read_prompt(loop, WORDS)
    loop.pipeline.iteration_execution().submit_iterations(10).wait()

    model, ids = runtime.load_model(random_folder / "decoder.onnx"), np.zeros(64, np.int32)
    ids[: len(WORDS)] = WORDS
    names, schema = model.ort_schema(), model.schema()
    states = {}
    for index in range(2, schema.input_count):
        _, (_, heads, _, size) = schema.input_desc(index)
        present = names.find_output(names.input_name(index).replace("past_key_values", "present"))
        states[index, present] = runtime.create_tensor(TensorDataType.FLOAT32, (1, heads, 64, size))
    width, vocabulary_size = schema.input_desc(0)[1][-1], schema.output_desc(0)[1][-1]
    table = embedding_table(runtime, random_folder / "embedding.onnx", vocabulary_size)

    builder = runtime.create_pipeline_builder()
    reader = with_state(builder.add_model_stage(model), states)
    reader.bind_input(0, runtime.tensor_from_numpy(table.to_numpy()[:, WORDS[:-1]]))
    reader.bind_input(1, int32(runtime, len(WORDS) - 1))
    builder.build().run()

    ring, position, length = shared(runtime, ids), int32(runtime, len(WORDS) - 1), int32(runtime, len(WORDS))
    hidden, observed = runtime.create_tensor(TensorDataType.FLOAT32, (1, 1, width)), int32(runtime, 0)
    embed = runtime.create_decode_embed_processor(vocabulary_size, width, 64, hidden)
    choose = runtime.create_decode_sample_processor(vocabulary_size, True, ring, position, length, observed)
    builder = runtime.create_pipeline_builder()
    first, last = builder.add_processor_stage(embed), builder.add_processor_stage(choose)
    decoder = with_state(builder.add_model_stage(model), states)
    decoder.bind_input(1, length)
    for index, tensor in enumerate((ring, position, table)):
        first.bind_input(index, tensor)
    builder.connect(first, 0, decoder, 0)
    builder.connect(decoder, 0, last, 0)
    pipeline = builder.build()
    for _ in range(10):
        pipeline.run()
    assert ids[: len(WORDS) + 10].tolist() == loop.ring[: len(WORDS) + 10].tolist()


def int32(runtime: Runtime, value: int) -> Tensor:
    return runtime.tensor_from_numpy(np.array([value], np.int32))


def test_another_dialect_is_not_split(tmp_path: Path) -> None:
    folder = random_onnx(tmp_path, "plain", "f32")
    with pytest.raises(ValueError, match="operators='gqa'"):
        split_decoder(folder)
    assert list(folder.glob("embedding*")) == []


def test_stable_bindings_are_not_bound_again(loop: TokenLoop, count_prepared: Callable[[], int]) -> None:
    """The decoder takes the same rows, length and state in every iteration."""
    loop.pipeline.run()
    before = count_prepared()
    loop.pipeline.iteration_execution().submit_iterations(5).wait()
    assert count_prepared() == before


@pytest.fixture
def count_prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often an executor of ONNX Runtime has prepared a run anew."""
    from winml_lite.native.ort.executor import OrtExecutor

    prepare = OrtExecutor._prepare
    calls: list[OrtExecutor] = []

    def counted(self: OrtExecutor) -> None:
        calls.append(self)
        prepare(self)

    monkeypatch.setattr(OrtExecutor, "_prepare", counted)
    return lambda: len(calls)
