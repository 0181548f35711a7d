"""The two import roots of the named surface share their objects."""

from __future__ import annotations

import genai
import genai.runtime
import genai.tasks
import winml_lite


def test_g1_the_roots_share_their_value_types() -> None:
    shared = set(genai.tasks.__all__) & set(genai.runtime.__all__)
    assert "ChatCompletionMessage" in shared
    assert [name for name in shared if getattr(genai.tasks, name) is not getattr(genai.runtime, name)] == []


def test_the_object_model_is_the_same_under_both_names() -> None:
    shared = set(winml_lite.__all__) & set(genai.runtime.__all__)
    assert {"Runtime", "Stage", "Tensor"} <= shared
    assert [name for name in shared if getattr(winml_lite, name) is not getattr(genai.runtime, name)] == []


def test_the_short_names_are_those_of_the_roots() -> None:
    shared = set(genai.__all__) & (set(genai.runtime.__all__) | set(genai.tasks.__all__))
    homes = {name: getattr(genai.tasks, name, None) or getattr(genai.runtime, name) for name in shared}
    assert [name for name in shared if getattr(genai, name) is not homes[name]] == []


def test_dir_lists_the_public_names_and_roots() -> None:
    assert dir(genai) == sorted([*genai.__all__, "__version__", "convert", "runtime", "tasks"])
