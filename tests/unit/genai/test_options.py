"""TextGenerationOptions: defaults, accepted values, classes of refusal."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

from genai.call_fields import OptionFields
from genai.options import TextGenerationOptions


def test_g2_defaults_are_greedy_and_256_tokens_in_positional_order() -> None:
    assert TextGenerationOptions() == TextGenerationOptions(256, (), 0.0, 0, 1.0, 0.0, 1.0, 0, 0.0, 0.0, 0)


def test_official_fields_come_first_and_the_extensions_are_keyword_only() -> None:
    names = [field.name for field in dataclasses.fields(TextGenerationOptions)]
    assert names[:11] == [
        "max_new_tokens",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "repetition_penalty_window",
        "presence_penalty",
        "frequency_penalty",
        "seed",
    ]
    assert [field.name for field in dataclasses.fields(TextGenerationOptions) if field.kw_only] == names[11:]


def test_every_extension_is_off_by_default() -> None:
    extensions = [field for field in dataclasses.fields(TextGenerationOptions) if field.kw_only]
    assert {field.name: field.default for field in extensions} == {
        "stop": (),
        "min_new_tokens": 0,
        "logit_bias": None,
        "ignore_eos": False,
        "no_repeat_ngram_size": 0,
        "typical_p": 1.0,
        "top_n_sigma": 0.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "logits_processors": (),
        "top_logprobs": None,
        "include_stop": False,
        "stopping": None,
    }


def test_the_short_road_knows_every_option() -> None:
    names = [field.name for field in dataclasses.fields(TextGenerationOptions)]
    assert list(OptionFields.__annotations__) == names


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("max_new_tokens", 0, ValueError),
        ("max_new_tokens", True, TypeError),
        ("max_new_tokens", 2**32, ValueError),
        ("max_new_tokens", 1.0, TypeError),
        ("max_new_tokens", None, TypeError),
        ("max_new_tokens", "5", TypeError),
    ],
)
def test_g3_max_new_tokens(name: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        TextGenerationOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1.01, -0.5])
def test_g4_top_p_out_of_range(value: float) -> None:
    with pytest.raises(ValueError, match="top_p"):
        TextGenerationOptions(top_p=value)


def test_g4_top_p_takes_the_integer_one() -> None:
    options = TextGenerationOptions(top_p=1)
    assert (options.top_p, type(options.top_p)) == (1.0, float)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 10**400),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.5),
        ("presence_penalty", -math.inf),
        ("frequency_penalty", math.nan),
        ("top_k", -1),
        ("top_k", 2**32),
        ("repetition_penalty_window", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("min_new_tokens", -1),
        ("min_new_tokens", 257),
        ("no_repeat_ngram_size", -1),
        ("typical_p", 0),
        ("typical_p", 1.5),
        ("top_n_sigma", -1),
        ("top_n_sigma", math.inf),
        ("xtc_probability", 1.1),
        ("xtc_probability", -0.1),
        ("xtc_threshold", 2),
        ("dry_multiplier", -0.5),
        ("dry_base", 0.9),
        ("dry_allowed_length", 0),
        ("dry_sequence_breakers", ["a", ""]),
        ("dry_sequence_breakers", -1),
        ("top_logprobs", -1),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {2**32: 1.0}),
        ("logit_bias", {"x": 1.0}),
        ("logit_bias", {"1.0": 1.0}),
        ("logit_bias", {"-1": 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: math.inf}),
        ("logit_bias", {1: 10**400}),
        ("logit_bias", {1: 1.0, "1": 2.0}),
    ],
)
def test_g5_values_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        TextGenerationOptions(**{name: value})  # type: ignore[arg-type]


def test_g5_negative_presence_penalty_is_accepted() -> None:
    assert TextGenerationOptions(presence_penalty=-2).presence_penalty == -2.0


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"])
@pytest.mark.parametrize("value", [True, "0.5", None, 1j, np.True_])
def test_floats_refuse_other_types(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        TextGenerationOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["top_k", "seed", "repetition_penalty_window"])
@pytest.mark.parametrize("value", [False, 1.5, "1", None, np.float32(1), np.True_])
def test_integers_refuse_other_types(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        TextGenerationOptions(**{name: value})  # type: ignore[arg-type]


def test_g6_stop_token_ids_become_a_tuple() -> None:
    assert TextGenerationOptions(stop_token_ids=[1, 2]).stop_token_ids == (1, 2)


def test_g6_stop_token_ids_take_an_array() -> None:
    assert TextGenerationOptions(stop_token_ids=np.array([7, 9], np.uint32)).stop_token_ids == (7, 9)


def test_g6_negative_stop_token_id() -> None:
    with pytest.raises(ValueError, match="stop_token_ids"):
        TextGenerationOptions(stop_token_ids=[-1])


def test_g6_bool_stop_token_id() -> None:
    with pytest.raises(TypeError, match="stop_token_ids"):
        TextGenerationOptions(stop_token_ids=[True])


def test_g7_options_are_frozen() -> None:
    options = TextGenerationOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.top_k = 4  # type: ignore[misc]


def test_numpy_scalars_are_numbers() -> None:
    numbers: dict[str, Any] = {"temperature": np.float32(0.5), "top_k": np.uint8(3), "seed": np.uint64(2**63)}
    options = TextGenerationOptions(8, **numbers)
    assert (options.max_new_tokens, options.temperature, options.top_k, options.seed) == (8, 0.5, 3, 2**63)
    assert [type(value) for value in (options.max_new_tokens, options.temperature, options.seed)] == [int, float, int]


def test_options_can_be_replaced_and_hashed() -> None:
    options = dataclasses.replace(TextGenerationOptions(stop_token_ids=[3], stop="x"), top_k=5)
    assert hash(options) == hash(TextGenerationOptions(stop_token_ids=(3,), top_k=5, stop=["x"]))


def test_s_stp_04_one_string_is_one_stop() -> None:
    assert TextGenerationOptions(stop="ab").stop == ("ab",)
    assert TextGenerationOptions(stop=["ab", "c"]).stop == ("ab", "c")


@pytest.mark.parametrize("stop", ["", [""], ["a", ""]])
def test_s_stp_04_an_empty_stop_is_refused(stop: object) -> None:
    with pytest.raises(ValueError, match="stop"):
        TextGenerationOptions(stop=stop)  # type: ignore[arg-type]


@pytest.mark.parametrize("stop", [[1], [b"a"], None, 5])
def test_a_stop_of_another_type_is_refused(stop: object) -> None:
    with pytest.raises(TypeError, match="stop must"):
        TextGenerationOptions(stop=stop)  # type: ignore[arg-type]


def test_s_smp_01_negative_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature must not be negative, not -1"):
        TextGenerationOptions(temperature=-1)


def test_s_smp_02_negative_top_k_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k"):
        TextGenerationOptions(top_k=-1)


def test_s_smp_06_a_penalty_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="repetition_penalty must be above 0, not 0"):
        TextGenerationOptions(repetition_penalty=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ignore_eos", 1),
        ("include_stop", None),
        ("min_new_tokens", 1.0),
        ("top_logprobs", True),
        ("top_logprobs", 1.5),
        ("typical_p", "0.5"),
        ("dry_sequence_breakers", None),
        ("dry_sequence_breakers", [1.5]),
        ("logit_bias", [(1, 2.0)]),
        ("logit_bias", {1.0: 2.0}),
        ("logit_bias", {True: 2.0}),
        ("logit_bias", {1: "2"}),
        ("logit_bias", {1: True}),
        ("logit_bias", {1: None}),
        ("logits_processors", [1]),
        ("logits_processors", 5),
        ("logits_processors", None),
        ("stopping", "yes"),
    ],
)
def test_extensions_refuse_other_types(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        TextGenerationOptions(**{name: value})  # type: ignore[arg-type]


def test_a_minimum_may_equal_the_maximum() -> None:
    assert TextGenerationOptions(3, min_new_tokens=3).min_new_tokens == 3


def test_s_smp_04_a_bias_takes_ids_and_their_digits() -> None:
    bias: dict[Any, Any] = {"7": 1, 3: -math.inf, np.int64(5): np.float32(0.5)}
    options = TextGenerationOptions(logit_bias=bias)
    assert options.logit_bias == {3: -math.inf, 5: 0.5, 7: 1.0}
    assert list(options.logit_bias) == [3, 5, 7]


def test_no_bias_is_none() -> None:
    assert TextGenerationOptions(logit_bias={}) == TextGenerationOptions()


def test_options_with_extensions_can_be_compared_replaced_hashed_and_pickled() -> None:
    options = TextGenerationOptions(logit_bias={3: 1, 1: -2}, logits_processors=[abs], stopping=max)  # type: ignore[list-item]
    same = TextGenerationOptions(logit_bias={"1": -2, "3": 1}, logits_processors=abs, stopping=max)  # type: ignore[arg-type]
    assert options == same
    assert hash(options) == hash(same)
    assert dataclasses.replace(options) == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert options != dataclasses.replace(options, logit_bias={3: 1})


def test_a_bias_is_not_the_mapping_that_was_given() -> None:
    given = {3: 1.0}
    options = TextGenerationOptions(logit_bias=given)
    given[4] = 2.0
    assert options.logit_bias == {3: 1.0}


def test_one_breaker_and_one_processor_need_no_list() -> None:
    options = TextGenerationOptions(dry_sequence_breakers="ab", logits_processors=print)
    assert (options.dry_sequence_breakers, options.logits_processors) == (("ab",), (print,))
    assert TextGenerationOptions(dry_sequence_breakers=13).dry_sequence_breakers == (13,)
    assert TextGenerationOptions(dry_sequence_breakers=[13, "\n"]).dry_sequence_breakers == (13, "\n")


def test_s_smp_06_no_window_is_negative() -> None:
    with pytest.raises(ValueError, match="repetition_penalty_window"):
        TextGenerationOptions(repetition_penalty_window=-1)
