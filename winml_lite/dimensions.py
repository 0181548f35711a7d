"""`SymbolicDimensionOverrides`: fixed extents for the symbols of an ONNX model (runtime §19, tensors §9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from .checks import engine_text, number_value, text_value

_MAXIMUM = 0x7FFFFFFFFFFFFFFF


class SymbolicDimensionOverrides(MutableMapping[str, int]):
    """A live mapping from symbol to extent (1..2**63-1), in the order of first setting.

    `before_change` is called before every change and may refuse it.
    """

    __slots__ = ("_before_change", "_extents")

    def __init__(self, extents: dict[str, int], before_change: Callable[[], None]) -> None:
        self._extents = extents
        self._before_change = before_change

    def __getitem__(self, name: str) -> int:
        return self._extents[text_value(name, "name")]

    def __setitem__(self, name: str, extent: int) -> None:
        if not engine_text(name, "name"):
            raise ValueError("the name of a dimension must not be empty")
        value = number_value(extent, "extent", _MAXIMUM, 1)
        self._before_change()
        self._extents[name] = value

    def __delitem__(self, name: str) -> None:
        text_value(name, "name")
        self._before_change()
        del self._extents[name]

    def __contains__(self, name: object) -> bool:
        return text_value(name, "name") in self._extents

    def __iter__(self) -> Iterator[str]:
        return iter(self._extents)

    def __len__(self) -> int:
        return len(self._extents)

    def __repr__(self) -> str:
        return f"SymbolicDimensionOverrides({self._extents!r})"
