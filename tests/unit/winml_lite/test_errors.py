"""Exceptions: statements 149 and 150 of the object model, and the tables of codes."""

from __future__ import annotations

import copy
import pickle

import pytest

from winml_lite.errors import (
    DESCRIPTIONS,
    LLAMA_DECODE_STATUS,
    ORT_STATUS,
    NotSupportedError,
    WinMLError,
    recast,
)


def test_r150_a_signed_code_is_stored_unsigned() -> None:
    assert WinMLError(-2147024809).hresult == 0x80070057


def test_r150_the_classes() -> None:
    assert issubclass(NotSupportedError, WinMLError)
    assert issubclass(WinMLError, OSError)


def test_r150_there_is_no_errno() -> None:
    error = WinMLError(0x80070002, "Call", "text")
    assert (error.errno, error.strerror) == (None, None)


def test_r149_the_text_has_code_description_context_and_message() -> None:
    text = str(WinMLError(0x8007139F, "IWinMLStage.GetOutput", "nothing was produced"))
    assert text == (
        "0x8007139F: the object is not in a state that allows this call [IWinMLStage.GetOutput]: nothing was produced"
    )


def test_r149_context_and_message_are_optional() -> None:
    error = WinMLError(0x80070057)
    assert str(error) == "0x80070057: invalid argument"
    assert error.native_message is None


def test_an_unknown_code_has_a_placeholder() -> None:
    assert str(WinMLError(0x8ABCDEF0)) == "0x8ABCDEF0: unknown error code"


@pytest.mark.parametrize("kind", [WinMLError, NotSupportedError])
@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied_and_pickled(kind: type[WinMLError], duplicate: object) -> None:
    error = kind(0x80070032, "Call", "text")
    twin = duplicate(error)  # type: ignore[operator]
    assert type(twin) is kind
    assert (twin.hresult, twin.native_message, str(twin)) == (0x80070032, "text", str(error))


def test_recast_moves_the_inner_context_into_the_message() -> None:
    error = WinMLError(0x80004005, "OrtApi.Run", "node 3 failed")
    outer = recast(error, "IWinMLPipeline.Run")
    assert outer is error
    assert str(outer) == "0x80004005: unspecified failure [IWinMLPipeline.Run]: OrtApi.Run: node 3 failed"
    assert outer.native_message == "OrtApi.Run: node 3 failed"


def test_recast_to_the_same_context_changes_nothing() -> None:
    error = WinMLError(0x80070057, "IWinMLPipeline.Run", "input 0 is not bound")
    assert str(recast(error, "IWinMLPipeline.Run")) == str(WinMLError(0x80070057, error.context, error.native_message))


def test_recast_without_texts_has_no_message() -> None:
    assert recast(WinMLError(0x80004005), "Call").native_message is None


def test_recast_changes_the_class() -> None:
    assert type(recast(NotSupportedError(0x80070032), "Build")) is WinMLError
    assert type(recast(WinMLError(0x80070032), "RewindTo", NotSupportedError)) is NotSupportedError


def test_every_code_of_the_engines_has_a_description() -> None:
    assert {*ORT_STATUS.values(), *LLAMA_DECODE_STATUS.values()} <= DESCRIPTIONS.keys()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (1, 0x80004005), (2, 0x80070057), (3, 0x80070002), (4, 0x80070002), (5, 0x80004005), (6, 0x80004005),
        (7, 0x80070570), (8, 0x8007054F), (9, 0x80004001), (10, 0x80070570), (11, 0x8007054F),
    ],
)  # fmt: skip
def test_codes_of_onnx_runtime(status: int, code: int) -> None:
    assert ORT_STATUS[status] == code


def test_recast_says_the_name_of_a_call_once() -> None:
    inside = WinMLError(0x80070057, "IWinMLStage.BindInput, input 0", "wrong type")
    assert recast(inside, "IWinMLStage.BindInput").native_message == "input 0: wrong type"
    outside = recast(WinMLError(0x80070032, "IWinMLPipelineBuilder.Build", "no GPU"), "IWinMLPipelineBuilder.Build, a")
    assert recast(outside, "IWinMLPipelineBuilder.Build").native_message == "a: no GPU"
