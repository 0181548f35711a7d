"""The busy rule: calls exclude each other, never wait, and always give the pipeline back."""

from __future__ import annotations

import pytest

from fakes.rig import failing
from winml_lite.errors import NotSupportedError, WinMLError
from winml_lite.gate import Gate


def fail(error: BaseException) -> None:
    raise error


def test_the_work_is_done_and_its_result_returned() -> None:
    gate = Gate()
    assert gate.hold("Call", lambda a, b: (a, b, gate.holder is not None), 1, 2) == (1, 2, True)
    assert gate.holder is None


def test_a_second_call_is_refused_at_once_even_on_the_same_thread() -> None:
    gate = Gate()

    def call_again() -> None:
        with failing(0x800700AA) as caught:
            gate.hold("IWinMLStage.BindInput", pytest.fail, "it must not be called")
        assert "IWinMLStage.BindInput" in str(caught.value)
        assert gate.holder is not None

    gate.hold("IWinMLPipeline.Run", call_again)
    assert gate.holder is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), WinMLError(0x80004005)])
def test_a_failure_gives_the_pipeline_back(error: BaseException) -> None:
    gate = Gate()
    with pytest.raises(type(error)):
        gate.hold("Call", fail, error)
    assert gate.holder is None


def test_a_failure_gets_the_context_of_the_call() -> None:
    with failing(0x80070032) as caught:
        Gate().hold("IWinMLPipeline.Run", fail, NotSupportedError(0x80070032, "engine", "text"))
    assert (caught.value.context, caught.value.native_message) == ("IWinMLPipeline.Run", "engine: text")


def test_a_claim_holds_the_pipeline_until_it_leaves() -> None:
    gate, claim = Gate(), object()
    gate.enter(claim, "IWinMLPipelineExecution.Submit")
    with failing(0x800700AA) as caught:
        gate.enter(object(), "IWinMLPipelineExecution.Submit")
    assert caught.value.context == "IWinMLPipelineExecution.Submit"
    with failing(0x800700AA):
        gate.hold("IWinMLPipeline.Run", pytest.fail, "it must not be called")
    gate.leave(object())
    assert gate.holder is claim
    gate.leave(claim)
    gate.leave(claim)
    assert gate.holder is None


def test_an_interrupt_while_giving_back_is_not_lost() -> None:
    class Interrupted(dict[str, object]):
        """Ctrl-C strikes in the first look."""

        strikes = 1

        def get(self, key: str, default: object = None) -> object:
            if self.strikes:
                self.strikes -= 1
                raise KeyboardInterrupt
            return super().get(key, default)

    gate = Gate()
    gate._holders = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        gate.hold("Call", int)
    assert gate.holder is None


def test_it_tells_why_an_output_has_no_value() -> None:
    gate = Gate()
    assert "no run has succeeded since output 2 was published" in gate.missing_output(2)
    gate.run_count = 3
    assert "the last run failed or was cancelled" in gate.missing_output(2)
    gate.enter(object(), "IWinMLPipelineExecution.Submit")
    assert "when the run in progress has ended" in gate.missing_output(2)
