"""What tests of constraints share: a vocabulary with a token for each byte, and ways to look at a constraint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from fakes.vocabularies import BYTE_LEVEL_CHAT, byte_level
from genai.conversation_result import (
    ConversationConstraint,
    ConversationConstraintTrigger,
    ConversationConstraintTriggerType,
    ConversationFormatResult,
)
from genai.messages import ChatCompletionMessage, ChatCompletionRequest
from genai.runtime import TokenConstraint, TokenConstraintCandidate
from genai.tokenizer import Tokenizer

SIZE = 267
"""Tokens of the vocabulary: a token below 256 is a byte."""
HE, LL, HELL, HELLO, SPACE_W, NI_BYTES = range(256 + 0, 262)
IM_START, IM_END, ENDOFTEXT = 263, 264, 262
"""The last two are the EOS tokens."""
HI = ChatCompletionRequest((ChatCompletionMessage("user", "hi"),))


def byte_vocabulary(folder: Path) -> Path:
    """Write the vocabulary."""
    return byte_level(folder, BYTE_LEVEL_CHAT)


def candidates(ids: Iterable[int] = range(SIZE), logits: Sequence[float] = ()) -> list[TokenConstraintCandidate]:
    """Candidates with the given logits, or all equal."""
    ids = list(ids)
    return [TokenConstraintCandidate(i, z) for i, z in zip(ids, logits or [0.0] * len(ids), strict=True)]


def legal(constraint: TokenConstraint) -> set[int]:
    """The legal tokens of the whole vocabulary."""
    return {candidate.token_id for candidate in constraint.filter_candidates(candidates())}


def accept(constraint: TokenConstraint, text: str) -> TokenConstraint:
    """Accept a text byte by byte."""
    for byte in text.encode():
        constraint.accept_token(byte)
    return constraint


def lazy_result(
    tokenizer: Tokenizer, grammar: str, *triggers: ConversationConstraintTrigger
) -> ConversationFormatResult:
    """A formatted conversation with a lazy constraint."""
    constraint = ConversationConstraint("llguidance", 1, True, grammar)
    return dataclasses.replace(tokenizer.format_conversation(HI), constraint=constraint, constraint_triggers=triggers)


def trigger(kind: str, value: str = "", token_id: int | None = None) -> ConversationConstraintTrigger:
    """A trigger by the name of its type."""
    return ConversationConstraintTrigger(ConversationConstraintTriggerType[kind], token_id, value)
