"""TextGenerationOptions: defaults, accepted values, classes of refusal."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from genai.options import TextGenerationOptions


def test_g2_defaults_are_greedy_and_256_tokens_in_positional_order() -> None:
    assert TextGenerationOptions() == TextGenerationOptions(256, (), 0.0, 0, 1.0, 0.0, 1.0, 0, 0.0, 0.0, 0)


def test_official_fields_come_first_and_the_extension_is_keyword_only() -> None:
    names = [field.name for field in dataclasses.fields(TextGenerationOptions)]
    assert names == [
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
        "stop",
    ]
    assert [field.name for field in dataclasses.fields(TextGenerationOptions) if field.kw_only] == ["stop"]


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
    with pytest.raises(TypeError):
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
