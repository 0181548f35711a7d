"""State pairs whose past and present may live in one buffer (runtime §20.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def cache_pairs(
    domain: bytes, operator: bytes, inputs: list[bytes], outputs: list[bytes]
) -> Iterable[tuple[bytes, bytes]]:
    """(past, present) names of a node that can keep both in one buffer.

    Such is GroupQueryAttention, with inputs 3 and 4 and outputs 1 and 2.
    """
    if domain == b"com.microsoft" and operator == b"GroupQueryAttention":
        return list(zip(inputs[3:5], outputs[1:3], strict=False))
    return ()


def shareable(
    caches: Iterable[tuple[bytes, bytes]], uses: Mapping[bytes, int], inputs: list[str], outputs: list[str]
) -> frozenset[tuple[int, int]]:
    """Positions of the pairs that may share a buffer.

    Only pairs that nobody else reads: another reader of the past could see it overwritten, one of the present
    would see the capacity instead of the length.
    """
    past_index = {name.encode(): index for index, name in enumerate(inputs)}
    present_index = {name.encode(): index for index, name in enumerate(outputs)}
    return frozenset(
        (past_index[past], present_index[present])
        for past, present in caches
        if past in past_index and present in present_index and uses.get(past, 0) == 1 and not uses.get(present, 0)
    )
