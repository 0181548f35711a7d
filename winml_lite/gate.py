"""The busy rule (runtime §12.2): one call at a time on a pipeline and its stages, and nobody ever waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from .errors import BUSY, CANCELLED, NOT_SUPPORTED, NotSupportedError, WinMLError, recast

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

_HOLDER = "holder"
_RUN = "IWinMLPipeline.Run"


class Gate:
    """What a built pipeline shares with its stages: the right to use them, and the outcome of its runs.

    A lock would not do: Ctrl-C can strike after it was acquired and before the `try` that releases it. Here each call
    makes a claim of its own before the `try`, and gives back only what that claim has taken.
    """

    __slots__ = ("_holders", "cancelled", "has_outputs", "has_unchecked_outputs", "run_count")

    def __init__(self) -> None:
        self._holders: dict[str, object] = {}
        self.run_count = 0
        """Successful runs so far."""
        self.has_outputs = False
        """Whether the last run succeeded."""
        self.has_unchecked_outputs = True
        """Whether the next run has to make sure that no two outputs share memory."""
        self.cancelled: object = None
        """The claim whose work shall stop; one that does not hold the pipeline any more means nothing."""

    def hold(self, context: str, work: Callable[[*Ts], R], *arguments: *Ts) -> R:
        """Return `work(...)`, done while no other call holds the pipeline; if one does, raise 0x800700AA at once.

        A failure of `work` becomes the failure of the public call `context`.
        """
        claim = object()
        holders = self._holders
        try:
            if holders.setdefault(_HOLDER, claim) is not claim:
                raise _busy(context)
            return work(*arguments)
        except WinMLError as error:
            if error.is_final:
                raise
            raise recast(error, context) from error.__cause__
        finally:
            try:
                if holders.get(_HOLDER) is claim:
                    del holders[_HOLDER]
            except KeyboardInterrupt:
                self.leave(claim)
                raise

    def hold_optional(self, context: str, work: Callable[[*Ts], R], *arguments: *Ts) -> R:
        """As `hold`, for an optional capability: a refusal with 0x80070032 becomes NotSupportedError."""
        try:
            return self.hold(context, work, *arguments)
        except WinMLError as error:
            if error.hresult != NOT_SUPPORTED:
                raise
            raise recast(error, context, NotSupportedError) from error.__cause__

    def enter(self, claim: object, context: str) -> None:
        """Hold the pipeline for `claim` until `leave`, from whichever thread; if it is held, raise 0x800700AA at once.

        Call it inside a `try` whose failures lead to `leave`.
        """
        if self._holders.setdefault(_HOLDER, claim) is not claim:
            raise _busy(context)

    def leave(self, claim: object) -> None:
        """Give back what `claim` holds; nothing if it holds nothing."""
        if self._holders.get(_HOLDER) is claim:
            del self._holders[_HOLDER]

    def check_cancelled(self) -> None:
        """Raise 0x800704C7 when the call that holds the pipeline was cancelled."""
        if self.cancelled is not None and self.cancelled is self.holder:
            raise WinMLError(CANCELLED, _RUN, "the run was cancelled")

    def missing_output(self, index: int) -> str:
        """Say why a published output has no value at the moment."""
        if self.holder is not None:
            return f"output {index} is there when the run in progress has ended; wait for it"
        if self.run_count and not self.has_outputs:
            return f"the last run failed or was cancelled: output {index} has no value until one succeeds"
        return f"no run has succeeded since output {index} was published: run the pipeline first"

    @property
    def holder(self) -> object:
        """The claim that holds the pipeline; None when it is free."""
        return self._holders.get(_HOLDER)


def _busy(context: str) -> WinMLError:
    return WinMLError(BUSY, context, "the pipeline is in use by another call; wait until it has ended")
