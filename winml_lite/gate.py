"""The busy rule (runtime 12.2): one claim at a time on a pipeline and its stages, and nobody ever waits."""

from __future__ import annotations

from .errors import BUSY, WinMLError

_HOLDER = "holder"


class Gate:
    """The lock that a built pipeline shares with its stages, and the outcome of its runs.

    A claim is a fresh object, entered and left in one `try`/`finally`:

        claim = object()
        try:
            gate.enter(claim, "IWinMLPipeline.Run")
            ...
        finally:
            gate.leave(claim)

    `leave` gives back only what this claim took. So a KeyboardInterrupt between any two steps leaves the gate free,
    which a lock cannot promise: it would be lost between `acquire` and the `try` that releases it.
    """

    __slots__ = ("_holders", "has_outputs", "run_count")

    def __init__(self) -> None:
        self._holders: dict[str, object] = {}
        self.run_count = 0
        """Successful runs so far."""
        self.has_outputs = False
        """Whether the last run succeeded."""

    def enter(self, claim: object, context: str) -> None:
        """Take the pipeline, or raise 0x800700AA at once."""
        if self._holders.setdefault(_HOLDER, claim) is not claim:
            raise WinMLError(BUSY, context, "the pipeline is in use by another call; wait until it has ended")

    def leave(self, claim: object) -> None:
        """Give the pipeline back if `claim` holds it."""
        if self._holders.get(_HOLDER) is claim:
            del self._holders[_HOLDER]

    @property
    def is_held(self) -> bool:
        return _HOLDER in self._holders
