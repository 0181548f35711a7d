"""Statements about errors as text programs see them."""

from __future__ import annotations

from genai.runtime import NotSupportedError, WinMLError
from genai.tasks import ChatCompletionFinishReason


def test_g8_finish_reasons_of_a_chat_turn() -> None:
    assert ChatCompletionFinishReason.ADDITIONAL_STOP == 6
    assert ChatCompletionFinishReason.ERROR == 5


def test_g9_an_error_carries_its_code_and_is_an_os_error() -> None:
    error = WinMLError(0x80070032)
    assert error.hresult == 0x80070032
    assert isinstance(error, OSError)
    assert "0x80070032" in str(error)


def test_g10_not_supported_is_an_error_like_the_others() -> None:
    assert issubclass(NotSupportedError, WinMLError)
