"""Speculative decoding of real decoders: the same tokens as without, from every source, on both engines and across
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai
from fakes.model_files import require_engine
from genai import catalog, named_models
from models import recipes
from winml_lite import NotSupportedError, WinMLError

REPEATING = np.random.default_rng(0).integers(0, 290, 12).tolist() * 3
SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "seed": 5},
    {"temperature": 0.3, "seed": 7, "repetition_penalty": 1.1},
    {"temperature": 1.0, "seed": 3, "top_k": 4, "min_p": 0.05},
]


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without times each further position counts as a quarter of a step, so that there is drafting at all."""
    monkeypatch.setattr("genai.speculative_evaluation.perf_counter", lambda: 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=["llama", "ort-gqa", "ort-plain", "ort-std"])
def decoder(request: pytest.FixtureRequest, folder: Path) -> Path:
    """The random F32 decoder."""
    engine, _, operators = request.param.partition("-")
    require_engine(engine)
    return recipes.random_onnx(folder, operators, "f32") if operators else recipes.random_gguf(folder)


@pytest.fixture
def gguf(folder: Path) -> Path:
    require_engine("llama")
    return recipes.random_gguf(folder)


@pytest.fixture
def onnx(folder: Path) -> Path:
    require_engine("ort")
    return recipes.random_onnx(folder, "gqa", "f32")


@pytest.fixture
def hybrid(folder: Path) -> Path:
    """A decoder with recurrent state, and a predictor."""
    require_engine("llama")
    return recipes.hybrid_gguf(folder)


def load(path: Path, **fields: Any) -> genai.LanguageModel:
    """Load a model for one thread: threads that wait for each other are slow beside other work."""
    return genai.load(path, threads=1, **fields)


def generated(model: genai.LanguageModel, count: int = 60, **fields: Any) -> genai.TextGenerationResult:
    return model.generate(REPEATING, max_new_tokens=count, ignore_eos=True, **fields)


def statistics(result: genai.TextGenerationResult) -> genai.TextGenerationSpeculativeStatistics:
    assert result.speculative_statistics is not None
    return result.speculative_statistics


def always(model: genai.LanguageModel, chance: float = 0.9) -> None:
    """Have a model draft whenever it can, however poor its drafts are."""
    core = model._core
    assert core is not None and core.speculation is not None
    source = core.speculation.source
    outlook = source.outlook
    core.speculation.source = _Hopeful(source, outlook, chance)


class _Hopeful:
    """A source that thinks well of its drafts."""

    def __init__(self, source: Any, outlook: Any, chance: float) -> None:
        self._source = source
        self._outlook = outlook
        self._chance = chance

    def outlook(self, sequence: Any, most: int) -> list[float]:
        return [self._chance for _ in self._outlook(sequence, most)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_g112_lookup_gives_the_same_tokens(decoder: Path, sampling: dict[str, Any]) -> None:
    with load(decoder) as model:
        plain = generated(model, **sampling)
    with load(decoder, speculation="lookup") as model:
        always(model)
        drafted = generated(model, **sampling)
    assert drafted.token_ids == plain.token_ids
    assert statistics(drafted).draft_token_count > 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("first", "second"), [("gguf", "onnx"), ("onnx", "gguf"), ("gguf", "gguf"), ("onnx", "onnx")])
def test_g112_a_draft_model_gives_the_same_tokens(
    request: pytest.FixtureRequest, first: str, second: str, sampling: dict[str, Any]
) -> None:
    target, draft = request.getfixturevalue(first), request.getfixturevalue(second)
    with load(target) as model:
        plain = generated(model, **sampling)
    with load(target, draft=draft) as model:
        always(model)
        drafted = generated(model, **sampling)
    assert drafted.token_ids == plain.token_ids
    assert statistics(drafted).accepted_draft_token_count > 0
    assert statistics(drafted).failure is None


def test_what_is_told_while_a_draft_model_is_fetched_names_it(onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(entry: catalog.CatalogEntry, engine: Any, offline: bool, progress: Any) -> Path:
        progress("download", 1, 2)
        return onnx

    monkeypatch.setattr(named_models, "prepare", prepare)
    told: list[str] = []
    with load(onnx, draft="smollm2", progress=lambda stage, done, total: told.append(stage)):
        assert told == ["download smollm2"]


def test_a_draft_model_with_the_same_weights_is_nearly_always_right(gguf: Path, onnx: Path) -> None:
    with load(gguf, draft=onnx, draft_tokens=4) as model:
        found = statistics(generated(model, 60))
    assert found.acceptance_rate > 0.9  # keys and values are halves on one side
    assert found.verification_step_count < 16  # four tokens and one more at a time: 12 for 60


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafting", [{"speculation": "predictor"}, {"speculation": "lookup"}])
def test_recurrent_state_is_taken_back(hybrid: Path, drafting: dict[str, Any], sampling: dict[str, Any]) -> None:
    with load(hybrid) as model:
        plain = generated(model, **sampling)
    with load(hybrid, **drafting) as model:
        always(model)
        drafted = generated(model, **sampling)
    assert drafted.token_ids == plain.token_ids
    found = statistics(drafted)
    assert found.draft_token_count <= 4 * found.verification_step_count
    assert found.failure is None


def test_the_predictor_is_often_right(hybrid: Path) -> None:
    with load(hybrid, speculation="predictor", draft_tokens=2) as model:
        always(model)
        found = statistics(generated(model))
    assert found.acceptance_rate > 0.2


@pytest.fixture(params=["gguf-lookup", "onnx-lookup", "hybrid-predictor", "gguf-draft"])
def drafting(request: pytest.FixtureRequest) -> Iterator[tuple[genai.LanguageModel, genai.LanguageModel]]:
    """A model that drafts whenever it can, and the same one without."""
    name, _, how = request.param.partition("-")
    path = request.getfixturevalue(name)
    given = {"draft": path} if how == "draft" else {"speculation": how}
    with load(path, **given) as model, load(path) as plain:
        always(model)
        yield model, plain


def test_a_stream_that_is_left_at_any_token_leaves_a_good_sequence(
    drafting: tuple[genai.LanguageModel, genai.LanguageModel],
) -> None:
    model, plain = drafting
    expected = generated(plain, 30).token_ids
    for count in range(1, 12):
        with model.stream(REPEATING, max_new_tokens=30, ignore_eos=True) as stream:
            for _ in range(count):
                next(stream)
        core = model._core
        assert core is not None
        assert core.retained[len(REPEATING) :] == list(expected[: len(core.retained) - len(REPEATING)])
        assert core.composition.position == core.evaluated == len(core.retained) - 1
        prompt = [*REPEATING, *expected[: count + 2]]
        result = model.generate(prompt, max_new_tokens=5, ignore_eos=True)
        assert result.token_ids == expected[count + 2 : count + 7]


def test_a_form_is_kept(folder: Path, gguf: Path) -> None:
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    with load(gguf) as model:
        plain = model.generate(REPEATING, regex="[ab]{40}", temperature=1, seed=3, max_new_tokens=60)
    with load(gguf, speculation="lookup") as model:
        always(model)
        drafted = model.generate(REPEATING, regex="[ab]{40}", temperature=1, seed=3, max_new_tokens=60)
    assert drafted.text == plain.text
    assert drafted.constraint_complete is plain.constraint_complete
    assert statistics(drafted).draft_token_count > 0


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_model_without_a_predictor(gguf: Path, onnx: Path) -> None:
    for path in (gguf, onnx):
        with pytest.raises(NotSupportedError, match="predictor"):
            load(path, speculation="predictor")


def test_a_draft_of_another_vocabulary(folder: Path, gguf: Path) -> None:
    with pytest.raises(WinMLError, match="vocabularies differ"):
        load(gguf, draft=recipes.gemma3_gguf(folder))


def test_a_model_that_is_loaded_may_draft_and_be_closed(gguf: Path, onnx: Path) -> None:
    with load(onnx) as draft:
        model = load(gguf, draft=draft)
    with model:
        assert statistics(generated(model)).accepted_draft_token_count > 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"speculation": "magic"}, ValueError),
        ({"speculation": "lookup", "draft": "x"}, ValueError),
        ({"draft_tokens": 3}, ValueError),
        ({"speculation": "lookup", "draft_tokens": 0}, ValueError),
        ({"speculation": "lookup", "draft_tokens": True}, TypeError),
        ({"draft": 5}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(gguf: Path, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        load(gguf, **given)


# --- SmolLM2 ----------------------------------------------------------------------------------------------------------

COPYING = """Repeat the following text exactly, word for word:

The quick brown fox jumps over the lazy dog while the old farmer watches from his wooden porch. He has lived there for \
sixty years, and every morning he drinks black coffee and reads the newspaper from the town."""


@pytest.mark.parametrize("fixture", ["smollm2_gguf", "smollm2_q8"])
@pytest.mark.parametrize("question", [COPYING, "Why is the sky blue?"])
def test_g112_smollm2_gives_the_same_tokens_up_to_a_near_tie(
    request: pytest.FixtureRequest, fixture: str, question: str
) -> None:
    """A row that is computed beside others is rounded otherwise: where two tokens are nearly equal, that decides."""
    path = request.getfixturevalue(fixture)
    results = []
    for given in ({}, {"speculation": "lookup"}):
        with load(path, **given) as model:
            prompt = model.tokenizer.encode_conversation([("user", question)])
            results.append(model.generate(prompt, max_new_tokens=48, top_logprobs=2, ignore_eos=True))
    plain, drafted = results
    assert plain.logprobs is not None
    pairs = enumerate(zip(plain.token_ids, drafted.token_ids, strict=True))
    different = next((place for place, (one, other) in pairs if one != other), None)
    if different is not None:
        (_, best), (_, second) = plain.logprobs[different].top
        assert best - second <= 1.0
    if question is COPYING:
        assert statistics(drafted).accepted_draft_token_count > 20
