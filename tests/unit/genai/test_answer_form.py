"""What the arguments json_schema, regex, choices and grammar become on the short road."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.constraints import SIZE, byte_vocabulary
from fakes.rig import failing
from fakes.scripted import Row, ScriptedDecoder
from genai.answer_form import answer_form, schema_value
from genai.language_model import LanguageModel
from genai.results import TextGenerationFinishReason, TextGenerationResult
from genai.sequence import SequenceCore
from genai.tokenizer import Tokenizer

pytest.importorskip("llguidance")
pydantic: Any = pytest.importorskip("pydantic")

Reason = TextGenerationFinishReason
THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"


class Person(pydantic.BaseModel):  # type: ignore[misc]
    """What a test asks for."""

    name: str = pydantic.Field(max_length=3)
    age: int = pydantic.Field(ge=0, le=9)

    @pydantic.field_validator("name")  # type: ignore[untyped-decorator]
    @classmethod
    def _not_nobody(cls, name: str) -> str:
        if name == "xxx":
            raise ValueError("nobody")
        return name


def preferring(text: str) -> Any:
    """Score the bytes of `text` highest, from the first on."""
    row: Row = -np.arange(SIZE).astype(np.float32)
    for place, byte in enumerate(dict.fromkeys(text.encode())):
        row[byte] = 1000.0 - place
    return lambda history: row


def writing(prompt_length: int, text: str) -> Any:
    """Score the next byte of `text` highest, then EOS."""
    ids = [*text.encode(), 264]

    def logits(history: Sequence[int]) -> Row:
        row = np.zeros(SIZE, np.float32)
        row[ids[min(len(history) - prompt_length, len(ids) - 1)]] = 9.0
        return row

    return logits


@pytest.fixture
def decoder() -> ScriptedDecoder:
    return ScriptedDecoder(capacity=512, vocabulary_size=SIZE)


@pytest.fixture
def model(tmp_path: Path, decoder: ScriptedDecoder) -> Iterator[LanguageModel]:
    with Tokenizer.from_file(byte_vocabulary(tmp_path)) as tokenizer:
        stage: Any = decoder
        core = SequenceCore(stage, tokenizer, (264, 262))
        with LanguageModel("bytes", "fake", "nowhere", core, ()) as model:
            yield model


def test_json_of_a_schema_is_parsed(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = preferring("17]")
    schema = {"type": "array", "items": {"type": "integer", "maximum": 9}, "minItems": 1, "maxItems": 2}
    for given in (schema, json.dumps(schema)):
        result = model.generate("x", json_schema=given, max_new_tokens=20)
        assert (result.text, result.parsed, result.constraint_complete) == ("[1]", [1], True)


def test_a_model_class_gives_an_instance(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = writing(1, '{"name": "Bob", "age": 4}')
    result = model.generate("x", json_schema=Person, max_new_tokens=60)
    assert result.parsed == Person(name="Bob", age=4)
    assert isinstance(result.parsed, Person)


def test_a_model_class_allows_no_other_properties(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = writing(1, '{"name": "Bob", "age": 4, "more": 1}')
    assert model.generate("x", json_schema=Person, max_new_tokens=60).parsed == Person(name="Bob", age=4)


def test_what_the_class_refuses_raises_its_own_error(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = writing(1, '{"name": "xxx", "age": 4}')
    result = model.generate("x", json_schema=Person, max_new_tokens=60)
    with pytest.raises(pydantic.ValidationError, match="nobody"):
        _ = result.parsed


def test_a_cut_answer_has_no_value(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = writing(1, '{"name": "Bob", "age": 4}')
    result = model.generate("x", json_schema=Person, max_new_tokens=5)
    assert (result.finish_reason, result.constraint_complete, result.parsed) == (Reason.MAX_TOKENS, False, None)


def test_texts_are_their_own_value(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = preferring("yn")
    assert model.generate("x", regex="[xyz]{2}", max_new_tokens=9).parsed == "yy"
    assert model.generate("x", choices=["no", "yes"], max_new_tokens=9).parsed == "yes"
    assert model.generate("x", grammar='root ::= "(" root ")" | "y"', max_new_tokens=9).parsed == "y"
    assert model.generate("x", max_new_tokens=2).parsed is None


def test_streams_and_chats_take_forms(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.logits = preferring("n")
    with model.stream("x", choices=["no", "yes"]) as stream:
        assert list(stream) == ["n", "o"]
        assert stream.result.parsed == "no"
    chat = model.chat()
    assert chat.send("x", choices=["no", "yes"]).parsed == "no"
    assert chat.messages == (("user", "x"), ("assistant", "no"))


def test_open_reasoning_comes_before_the_answer(tmp_path: Path, decoder: ScriptedDecoder) -> None:
    with Tokenizer.from_file(byte_vocabulary(tmp_path), chat_template=THINKING) as tokenizer:
        stage: Any = decoder
        core = SequenceCore(stage, tokenizer, (264, 262))
        with LanguageModel("bytes", "fake", "nowhere", core, ()) as model:
            prompt = len(tokenizer.encode_conversation([("user", "x")]))
            decoder.logits = writing(prompt, "Well, yes.</think>\nyes")
            result = model.chat().send("x", choices=["no", "yes"])
    assert (result.text, result.reasoning, result.parsed) == ("yes", "Well, yes.", "yes")
    assert result.raw_text == "Well, yes.</think>\nyes"


def test_a_form_goes_with_an_options_record(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    from genai import TextGenerationOptions

    decoder.logits = preferring("y")
    assert model.generate("x", options=TextGenerationOptions(max_new_tokens=1), regex="y+").text == "y"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"regex": "a", "choices": ["b"]}, TypeError),
        ({"regex": 5}, TypeError),
        ({"grammar": b"start: A"}, TypeError),
        ({"choices": "yes"}, TypeError),
        ({"choices": [1]}, TypeError),
        ({"choices": 5}, TypeError),
        ({"choices": []}, ValueError),
        ({"choices": ["a", ""]}, ValueError),
        ({"json_schema": 5}, TypeError),
        ({"json_schema": int}, TypeError),
        ({"json_schema": [1]}, TypeError),
    ],
)
def test_wrong_forms(model: LanguageModel, decoder: ScriptedDecoder, fields: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        model.generate("x", **fields)
    assert decoder.runs == []


@pytest.mark.parametrize("schema", ["{", "[1]", "5"])
def test_text_that_is_no_schema(schema: str) -> None:
    with failing(0x80070057):
        schema_value(schema)


def test_no_form() -> None:
    assert answer_form({"regex": None, "choices": None, "max_new_tokens": 3}) is None


def test_a_result_compares_without_its_parser() -> None:
    one = TextGenerationResult("1", (1,), Reason.EOS_TOKEN, 0, 1, constraint_complete=True, parse=int)
    other = TextGenerationResult("1", (1,), Reason.EOS_TOKEN, 0, 1, constraint_complete=True, parse=str)
    assert one == other
    assert (one.parsed, other.parsed) == (1, "1")
    assert "parse" not in repr(one).replace("parsed", "")


async def _first_piece(model: LanguageModel, **fields: Any) -> str:
    async with model.astream("x", **fields) as stream:
        return await anext(stream)


def test_an_async_stream_takes_forms(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    import asyncio

    decoder.logits = preferring("n")
    assert asyncio.run(_first_piece(model, choices=["no"])) == "n"
    with pytest.raises(ValueError, match="choices"):
        model.astream("x", choices=[])
