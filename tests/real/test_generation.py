"""Text from the tiny models on both engines: the scripted sentence, equal logits, equal samples, memory.

The scripted model says one sentence whatever it is asked; `é` is two tokens of it. The random model has long output
that depends on every token of the prompt.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from fakes.scripted import composed
from genai.composition import SinglePipeline
from genai.endpoints import Endpoints
from genai.model_folder import declare_state, wire_decoder
from genai.sequence import SequenceCore
from models import recipes
from winml_lite import Runtime

pytestmark = pytest.mark.real

PIECES = ["Paris", " is", " the", " capital", " of", " France", ",", " a", " city", " with", " good", " caf", "é"]
PIECES += [" and", " museums", "."]
SENTENCE = "Paris is the capital of France, a city with good café and museums."
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
FORMS = ["gguf", "plain", "std", "gqa"]
Row = npt.NDArray[np.float32]


def path_of(form: str, folder: Path, kind: str = "scripted") -> Path:
    """Build a tiny model in one of its forms; skip where its engine is missing."""
    require_engine("llama" if form == "gguf" else "ort")
    if form == "gguf":
        return recipes.scripted_gguf(folder) if kind == "scripted" else recipes.random_gguf(folder)
    return recipes.scripted_onnx(folder, form) if kind == "scripted" else recipes.random_onnx(folder, form)


@pytest.fixture(params=FORMS)
def scripted(request: pytest.FixtureRequest, files: ModelFiles) -> Iterator[genai.LanguageModel]:
    """The scripted model, loaded."""
    with genai.load(path_of(request.param, files.folder), threads=1) as model:
        yield model


# --- the scripted sentence --------------------------------------------------------------------------------------------


def test_the_sentence_comes_piece_by_piece(scripted: genai.LanguageModel) -> None:
    stream = scripted.stream(ASKED)
    assert list(stream) == PIECES
    assert stream.result.text == SENTENCE
    assert stream.result.finish_reason is genai.TextGenerationFinishReason.EOS_TOKEN
    assert stream.result.generated_token_count == 17
    assert stream.result.token_ids[12:14] == (0xC3, 0xA9)


def test_a_cut_inside_the_two_token_character_leaves_it_out(scripted: genai.LanguageModel) -> None:
    result = scripted.generate(ASKED, max_new_tokens=13)
    assert result.text == "Paris is the capital of France, a city with good caf"
    assert result.generated_token_count == 13


def test_going_on_after_a_cut_gives_the_rest(scripted: genai.LanguageModel) -> None:
    first = scripted.generate(ASKED, max_new_tokens=5)
    prompt = scripted.tokenizer.encode(ASKED)
    stream = scripted.stream([*prompt, *first.token_ids])
    assert stream.reused_token_count == len(prompt) + 4
    assert first.text + stream.read().text == SENTENCE


def test_a_stop_string_ends_the_sentence(scripted: genai.LanguageModel) -> None:
    result = scripted.generate(ASKED, stop="city wi")
    assert (result.text, result.stop_match) == ("Paris is the capital of France, a ", "city wi")


def test_a_second_and_a_changed_prompt_give_the_same_sentence(scripted: genai.LanguageModel) -> None:
    assert [scripted.generate(ASKED).text for _ in range(3)] == [SENTENCE] * 3
    assert scripted.generate(ASKED.replace("What", "Where")).text == SENTENCE


def test_s_ctx_01_a_prompt_longer_than_the_window_is_refused_and_the_next_works(scripted: genai.LanguageModel) -> None:
    with pytest.raises(genai.WinMLError, match="do not fit into the context of 512") as caught:
        scripted.generate("a" * 600)
    assert caught.value.hresult == 0x8007007A
    assert scripted.generate(ASKED).text == SENTENCE


@pytest.mark.parametrize("form", FORMS)
def test_s_ctx_03_a_small_window_ends_the_text_with_its_reason(form: str, files: ModelFiles) -> None:
    with genai.load(path_of(form, files.folder), context_length=24, threads=1) as model:
        assert model.context_length == 24
        prompt = model.tokenizer.encode(ASKED)
        result = model.generate(ASKED)
        assert result.finish_reason is genai.TextGenerationFinishReason.SEQUENCE_CAPACITY
        assert result.generated_token_count == 24 - len(prompt)
        assert SENTENCE.startswith(result.text)


# --- equal logits -----------------------------------------------------------------------------------------------------


class Decoder:
    """A random tiny decoder on one engine with a float32 cache, driven by the feed of text generation."""

    def __init__(self, form: str, folder: Path) -> None:
        self.path = path = path_of(form, folder, "random")
        self.runtime = Runtime()
        model = self.runtime.load_model(path if form == "gguf" else path / "model.onnx")
        builder = self.runtime.create_pipeline_builder()
        self.stage = builder.add_model_stage(model)
        self.stage.set_sequence_capacity_hint(256)
        token_input = logits_output = 0
        if form == "gguf":
            options = self.stage.llama_options()
            options.key_type = options.value_type = "f32"
            options.thread_count = 1
        else:
            wiring = wire_decoder(model, path / "model.onnx")
            token_input, logits_output = wiring.token_input, wiring.logits_output
            declare_state(self.stage, wiring, None)
        self.pipeline = builder.build()
        target = self.runtime.create_cpu_target()
        endpoints = Endpoints(self.pipeline, self.stage, token_input, self.stage, logits_output)
        self.composition = SinglePipeline(self.runtime, endpoints, self.stage, target)
        self.feed = self.composition.feed
        self.feed.prepare()

    def core(self) -> SequenceCore:
        """A sequence over this decoder that no EOS ends."""
        return SequenceCore(self.composition, genai.Tokenizer.from_file(self.path), ())

    def at_once(self, ids: list[int]) -> Row:
        self.pipeline.reset()
        return self.feed.run(ids, 0)

    def in_pieces(self, ids: list[int], size: int) -> Row:
        self.pipeline.reset()
        last = (len(ids) - 1) // size * size
        for start in range(0, last, size):
            self.feed.skip(ids[start : start + size], start)
        return self.feed.run(ids[last:], last)

    def one_by_one(self, ids: list[int]) -> Row:
        self.pipeline.reset()
        row: Row = np.zeros(0, np.float32)
        for position, token_id in enumerate(ids):
            row = self.feed.step(token_id, position)
        return row.copy()

    def after_rewind(self, ids: list[int], position: int) -> Row:
        self.at_once(ids[:position] + ids[::-1][: len(ids) - position])
        self.stage.rewind(position)
        self.feed.begin()
        return self.feed.run(ids[position:], position)


IDS = [int(number) for number in np.random.default_rng(5).integers(0, 300, 200)]


@pytest.fixture(scope="module")
def reference(files: ModelFiles) -> Row:
    """The logits of llama.cpp for the 200 tokens at once."""
    return Decoder("gguf", files.folder).at_once(IDS)


@pytest.mark.parametrize("form", FORMS)
def test_s_ctx_07_both_engines_agree_however_the_prompt_is_fed(form: str, files: ModelFiles, reference: Row) -> None:
    decoder = Decoder(form, files.folder)
    for row in (
        decoder.at_once(IDS),
        decoder.in_pieces(IDS, 128),
        decoder.in_pieces(IDS, 64),
        decoder.in_pieces(IDS, 33),
        decoder.in_pieces(IDS, 199),
        decoder.one_by_one(IDS),
        decoder.after_rewind(IDS, 150),
        decoder.after_rewind(IDS, 1),
    ):
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, reference, rtol=0, atol=1e-4)
    assert float(np.ptp(reference)) > 1


@pytest.mark.parametrize("form", FORMS)
def test_g111_a_reused_prefix_gives_the_text_of_a_fresh_model(form: str, files: ModelFiles) -> None:
    path = path_of(form, files.folder, "random")
    changed = IDS[:60] + IDS[80:100]
    with genai.load(path, threads=1) as model, genai.load(path, threads=1) as fresh:
        model.generate(IDS[:80], max_new_tokens=20)
        stream = model.stream(changed, max_new_tokens=20)
        assert stream.reused_token_count == 60
        assert stream.read().token_ids == fresh.generate(changed, max_new_tokens=20).token_ids


# --- equal samples ----------------------------------------------------------------------------------------------------


def sample(model: genai.LanguageModel, seed: int) -> tuple[int, ...]:
    options = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.02}
    return model.generate(IDS[:50], max_new_tokens=24, seed=seed, **options).token_ids  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_g73_a_seed_gives_the_same_tokens_again(form: str, files: ModelFiles) -> None:
    with genai.load(path_of(form, files.folder, "random"), threads=1) as model:
        assert sample(model, 1) == sample(model, 1)
        assert sample(model, 1) != sample(model, 2)


def test_g73_equal_logits_and_seed_give_equal_tokens_on_both_engines(tmp_path: Path) -> None:
    """The stages are scripted, so those of both engines give the same logits to the last bit."""

    def logits(history: Sequence[int]) -> Row:
        mixed = sum((index + 1) * token for index, token in enumerate(history))
        return np.random.default_rng(mixed).normal(0, 3, 16).astype(np.float32)

    options = genai.TextGenerationOptions(40, temperature=0.9, top_k=8, top_p=0.9, seed=3)
    with composed(tmp_path, logits, engine="llama") as stage:
        on_llama = stage.session(()).generate("abc", options).token_ids
    with composed(tmp_path, logits, engine="ort") as stage:
        on_ort = stage.session(()).generate("abc", options).token_ids
    assert on_llama == on_ort
    assert len(set(on_ort)) > 5


@pytest.mark.parametrize("form", FORMS[1:])
def test_g73_a_seed_gives_the_same_tokens_on_the_real_engines(form: str, files: ModelFiles) -> None:
    """Logits that agree to 1e-5 flip no token of 40: the draws are not that near to an edge."""
    options = genai.TextGenerationOptions(40, temperature=0.9, top_k=40, top_p=0.95, min_p=0.02, seed=3)
    tokens = []
    for decoder in (Decoder("gguf", files.folder), Decoder(form, files.folder)):
        loop = decoder.core().start(IDS[:50], options, genai.CancellationSource())
        tokens.append([update.token_id for update in iter(loop.read_next, None)])
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 40


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_s_lif_05_two_models_at_once_and_again_after_closing(form: str, files: ModelFiles) -> None:
    path = path_of(form, files.folder)
    first = genai.load(path, threads=1)
    second = genai.load(path, threads=1)
    assert first.generate(ASKED, max_new_tokens=2).text == "Paris is"
    first.close()
    assert second.generate(ASKED, max_new_tokens=3).text == "Paris is the"
    second.close()
    with genai.load(path, threads=1) as third:
        assert third.generate(ASKED, max_new_tokens=1).text == "Paris"


@pytest.mark.parametrize("form", FORMS)
def test_s_lif_04_closing_frees_the_engine_at_once(form: str, files: ModelFiles) -> None:
    model = genai.load(path_of(form, files.folder), threads=1)
    stream = model.stream(ASKED)
    assert next(stream) == "Paris"
    pipeline = weakref.ref(model._open().composition.pipelines[0].underlying_object)
    executor = weakref.ref(model._open().composition.pipelines[0].underlying_object.executors[0])
    gc.collect()
    gc.disable()
    try:
        model.close()
        assert (pipeline(), executor()) == (None, None)
    finally:
        gc.enable()
    assert stream.result.text == "Paris"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("size", "room"), [(1, 0), (2, 1), (3, 2)])
def test_s_ctx_06_odd_windows_work(form: str, size: int, room: int, files: ModelFiles) -> None:
    with genai.load(path_of(form, files.folder), context_length=size, threads=1) as model:
        assert model.context_length == size
        result = model.generate("a", max_new_tokens=9)
        assert result.finish_reason is genai.TextGenerationFinishReason.SEQUENCE_CAPACITY
        assert result.generated_token_count == room
        with pytest.raises(genai.WinMLError, match="do not fit into the context"):
            model.generate("a" * (size + 1))
