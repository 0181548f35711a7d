"""The request to stop that a run looks at itself (runtime §12.2).

`abort` reaches a run that goes on in the engine. One that is about to begin would miss it; so whoever asks first notes
whom he asks in the request and aborts afterwards, and a run first makes itself reachable for `abort` and looks at the
request afterwards.
"""

from __future__ import annotations

from typing import Protocol


class StopRequest(Protocol):
    """Whose work shall stop."""

    @property
    def cancelled(self) -> object:
        """Who was asked last, by now perhaps long over; None as long as nobody was."""

    def check_cancelled(self) -> None:
        """Raise 0x800704C7 when it is the work that goes on."""
