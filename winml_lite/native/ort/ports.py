"""Checks of bound tensors against ports, one by one and together (runtime §7.1, 19)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...errors import E_INVALIDARG, NOT_SUPPORTED, WinMLError
from ...files.artifact import Port
from ...storage import Storage, check_descriptor
from ...values import FLOATING_TYPES, TensorDataType

_BOUND, _MADE = (rf"\{{(?P<{side}>[\d,]*)\}}" for side in ("bound", "made"))
_MISFITS = (
    re.compile(rf"output '(?P<name>.*)' of node .* has shape {_BOUND} but the computed .* is {_MADE}"),
    re.compile(rf"shape verification failed\. Current shape:{_BOUND} Requested shape:{_MADE}"),
)
"""What newer and older engines say of given memory that does not fit what they make."""


def check_port(storage: Storage, port: Port, what: str) -> None:
    """Raise 0x80070057 unless the storage fits the port; of a port of unknown rank only the type is checked."""
    if port.data_type is TensorDataType.UNDEFINED:
        raise WinMLError(E_INVALIDARG, what, foreign_text(port))
    if port.rank_known or storage.data_type is not port.data_type:
        check_descriptor(storage, port.descriptor, what)


def foreign_text(port: Port) -> str:
    """Say why no tensor can be bound to a port that holds something else."""
    return f"the model declares {port.foreign or 'something else than a tensor'} there, which no Tensor can hold"


def refuse_foreign_inputs(inputs: Sequence[Port]) -> None:
    """Raise 0x80070032 for an input that no tensor can be bound to: the model could never run.

    An output of that kind is no obstacle while nobody asks for it.
    """
    for index, port in enumerate(inputs):
        if port.data_type is TensorDataType.UNDEFINED:
            raise WinMLError(NOT_SUPPORTED, "", f"input {index} {port.name!r}: {foreign_text(port)}")


def misfit_text(name: str, made: tuple[int, ...], bound: tuple[int, ...]) -> str:
    """Say that an output does not fit the tensor that is bound to it."""
    mend = "bind a tensor of that shape, or request the output and get a new one"
    return f"output {name!r} was produced with shape {made}, the bound tensor has {bound}; {mend}"


def misfit_reason(message: str, outputs: Sequence[Port], bound: Sequence[Storage | None]) -> str | None:
    """Return `misfit_text` for a failure of the engine; None for any other, and where the output cannot be told."""
    found = next((match for pattern in _MISFITS if (match := pattern.search(message)) is not None), None)
    if found is None:
        return None
    given, made = (tuple(int(extent) for extent in found[side].split(",") if extent) for side in ("bound", "made"))
    pairs = zip(outputs, bound, strict=True)
    names = [port.name for port, storage in pairs if storage is not None and storage.shape == given]
    name = found.groupdict().get("name", names[0] if len(names) == 1 else None)
    return misfit_text(name, made, given) if name in names else None


def sequence_length(inputs: Sequence[Storage | None]) -> int:
    """Positions of a run: last axis of the first bound input, last but one where that is floating."""
    storage = next((each for each in inputs if each is not None), None)
    if storage is None or not storage.shape:
        return 1
    if storage.data_type in FLOATING_TYPES and len(storage.shape) > 1:
        return storage.shape[-2]
    return storage.shape[-1]


class Exposure:
    """Bound outputs that an operator cannot write to directly, or not always; state is a matter of its own."""

    __slots__ = ("alias_inputs", "copied", "misjudged", "outputs")

    def __init__(self, outputs: Sequence[Port]) -> None:
        self.misjudged = frozenset(index for index, port in enumerate(outputs) if port.is_misjudged)
        """Outputs for which the engine wants memory of another shape than they have."""
        self.outputs: dict[int, Storage] = {}
        """Outputs with their storages, which may lie in the memory of a bound input."""
        self.alias_inputs: set[int] = set()
        """Inputs that are bound to memory of a caller's, where other storages may lie too."""
        self.copied: set[int] = set()
        """Outputs that are made elsewhere and copied: operators write while they still read."""


class Symbols:
    """The named free extents of the inputs that a caller binds."""

    def __init__(self, inputs: Sequence[Port], managed: Collection[int]) -> None:
        self._names = [port.name for port in inputs]
        self._places = [
            (index, axis, symbol)
            for index, port in enumerate(inputs)
            if index not in managed
            for axis, symbol in enumerate(port.dimensions)
            if isinstance(symbol, str)
        ]
        self.of_step = next((port.dimensions for i, port in enumerate(inputs) if i not in managed), ())
        """Dimensions of the first of them, of which one is the step."""

    def agreed(self, inputs: Sequence[Storage | None]) -> dict[str, int]:
        """Extents of the bound inputs by symbol; two inputs that disagree are 0x80070057.

        The engine only warns about that.
        """
        found: dict[str, int] = {}
        for index, axis, symbol in self._places:
            storage = inputs[index]
            if storage is not None:
                extent = storage.shape[axis]
                if found.setdefault(symbol, extent) != extent:
                    raise WinMLError(
                        E_INVALIDARG,
                        "IWinMLPipeline.Run",
                        f"{symbol} is {extent} in {self._names[index]!r} and {found[symbol]} in another input",
                    )
        return found
