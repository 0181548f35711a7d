"""CancellationSource: latching, callbacks, closing."""

from __future__ import annotations

import threading

import pytest

from genai.cancellation import CancellationSource


def test_a_new_source_is_not_canceled() -> None:
    assert CancellationSource().is_canceled is False


def test_cancel_latches() -> None:
    source = CancellationSource()
    source.cancel()
    source.cancel()
    assert source.is_canceled is True


def test_cancel_from_another_thread() -> None:
    source = CancellationSource()
    thread = threading.Thread(target=source.cancel)
    thread.start()
    thread.join()
    assert source.is_canceled is True


def test_callbacks_are_called_once_by_the_first_cancel() -> None:
    source = CancellationSource()
    calls: list[str] = []
    source.on_cancel(lambda: calls.append("a"))
    source.on_cancel(lambda: calls.append("b"))
    source.cancel()
    source.cancel()
    assert calls == ["a", "b"]


def test_a_callback_that_was_taken_back_is_not_called() -> None:
    source = CancellationSource()
    calls: list[int] = []
    source.on_cancel(calls.clear)
    calls.append(1)
    source.off_cancel(calls.clear)  # a new bound method, equal to the first
    source.cancel()
    assert calls == [1]


def test_taking_back_an_unknown_callback_does_nothing() -> None:
    CancellationSource().off_cancel(print)


def test_a_callback_may_cancel_and_add_callbacks() -> None:
    source = CancellationSource()
    source.on_cancel(source.cancel)
    source.on_cancel(lambda: source.on_cancel(print))
    source.cancel()
    assert source.is_canceled


@pytest.mark.parametrize("use", [lambda s: s.is_canceled, lambda s: s.cancel(), lambda s: s.__enter__()])
def test_g14_a_closed_source_raises_and_names_its_class(use: object) -> None:
    source = CancellationSource()
    source.close()
    source.close()
    with pytest.raises(RuntimeError, match="CancellationSource is closed"):
        use(source)  # type: ignore[operator]


def test_an_operation_keeps_the_latch_of_a_closed_source() -> None:
    with CancellationSource() as source:
        latch = source.latch
        source.cancel()
    assert latch.is_canceled is True
