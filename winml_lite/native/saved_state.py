"""The border between the object model and an engine for states as files (`sequence_state.py`)."""

from __future__ import annotations

from typing import Protocol


class SavedState(Protocol):
    """The state of a stage as a file: the part of it that the engine writes and reads."""

    @property
    def layout(self) -> dict[str, object]:
        """What a state must have in common with the stage that takes it over, as JSON values."""

    def write(self, path: str) -> object:
        """Write the present state into the file `path`, and nothing else; return what `read` is to be told, as JSON.

        0x80070032 for a state that cannot be saved.
        """

    def read(self, path: str, position: int, told: object) -> None:
        """Take over a state of `position` positions from the start of a file that is known to be whole.

        A failure leaves position 0.
        """
