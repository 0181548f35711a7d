"""The state of the fake token model as a file: its ids as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from winml_lite.errors import E_FAIL, WinMLError

if TYPE_CHECKING:
    from fakes.backend import FakeSequence, Script


class FakeSavedState:
    """Implements `SavedState`. `script.fail_state` makes both sides fail."""

    def __init__(self, sequence: FakeSequence, script: Script) -> None:
        self._sequence = sequence
        self._script = script

    @property
    def layout(self) -> dict[str, object]:
        return {"engine": "fake 1.0", "key_type": "f16"}

    def write(self, path: str) -> object:
        self._follow_script()
        Path(path).write_text(json.dumps(self._sequence.ids))
        return {"count": len(self._sequence.ids)}

    def read(self, path: str, position: int, told: object) -> None:
        assert told == {"count": position}
        self._sequence.reset()
        self._follow_script()
        with open(path, "rb") as file:
            ids, _ = json.JSONDecoder().raw_decode(file.read().decode("latin-1"))
        self._sequence.ids = ids

    def _follow_script(self) -> None:
        if self._script.fail_state:
            raise WinMLError(E_FAIL, "", "the fake engine fails")
