"""Parts of a prompt (genai §6.6): the public value types. Feeding them is `segmented_prompt.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from winml_lite import SequenceSegmentLayout, Tensor

from .checks import enum_value, index_value, instance_of


class TextGenerationSegmentKind(IntEnum):
    """What a part of a prompt holds."""

    TOKENS = 0
    EMBEDDINGS = 1


@dataclass(frozen=True)
class TextGenerationSegment:
    """A part of a prompt: token ids, or the embedding rows of one `MediaEncoder.encode` with their layout.

    TypeError for an embedding segment without tensor or layout, ValueError for one with token ids, for a token segment
    without ids, and for one with tensor or layout.
    """

    kind: TextGenerationSegmentKind
    token_ids: Iterable[int] = ()
    """Stored as a tuple."""
    embedding_tensor: Tensor | None = None
    """FLOAT32 (rows, embedding length)."""
    layout: SequenceSegmentLayout | None = None

    def __post_init__(self) -> None:
        kind = enum_value(self.kind, TextGenerationSegmentKind, "kind")
        if isinstance(self.token_ids, str | bytes | bytearray | memoryview):
            raise TypeError(f"token_ids must be token ids, not {type(self.token_ids).__name__}")
        ids = tuple(index_value(token_id, "token id") for token_id in self.token_ids)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "token_ids", ids)
        if kind is TextGenerationSegmentKind.TOKENS:
            if not ids:
                raise ValueError("a segment of tokens must not be empty")
            if self.embedding_tensor is not None or self.layout is not None:
                raise ValueError("a segment of tokens has neither a tensor nor a layout")
            return
        instance_of(self.embedding_tensor, Tensor, "embedding_tensor")
        instance_of(self.layout, SequenceSegmentLayout, "layout")
        if ids:
            raise ValueError("a segment of embeddings has no token ids")

    @classmethod
    def from_tokens(cls, token_ids: Iterable[int]) -> TextGenerationSegment:
        """Make a segment of token ids."""
        return cls(TextGenerationSegmentKind.TOKENS, token_ids)

    @classmethod
    def from_embeddings(cls, tensor: Tensor, layout: SequenceSegmentLayout) -> TextGenerationSegment:
        """Make a segment of what one `encode` has returned."""
        return cls(TextGenerationSegmentKind.EMBEDDINGS, (), tensor, layout)
