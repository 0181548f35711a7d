"""The second line against control tokens made of message text: a prompt is compared with one of harmless texts.

Breaking spellings (`spellings.py`) works on texts as they are given. A template that edits them can still make a
spelling afterwards. So a prompt with suspicious texts is made once more, with inert texts in their place, and must not
have control tokens that the inert one lacks. Not here: which texts are suspicious.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from winml_lite import WinMLError

from .codes import INVALID_DATA
from .messages import ChatCompletionMessage, ChatRole
from .spellings import ControlSpellings
from .template_data import Break
from .vocabulary import TextVocabulary

_SECONDS = 4.0  # of processor time for trying messages one by one


class ControlTokenCheck:
    """The check of one prompt.

    `encoded` makes the prompt's ids with another treatment of its untrusted texts; `token_ids` are those of the real
    prompt, made with `broken`.
    """

    def __init__(
        self,
        vocabulary: TextVocabulary,
        spellings: ControlSpellings,
        encoded: Callable[[Break], Sequence[int]],
        broken: Break,
        token_ids: Sequence[int],
    ) -> None:
        self._vocabulary = vocabulary
        self._control = control_token_ids(vocabulary)
        self._spellings = spellings
        self._encoded = encoded
        self._broken = broken
        self._real = [token_id for token_id in token_ids if token_id in self._control]

    def run(self, messages: Sequence[ChatCompletionMessage]) -> None:
        """Raise WinMLError 0x8007000D when text became a control token."""
        try:
            added = self._added(self._spellings.inert)
        except WinMLError:
            # The template insists on one of the texts. Then each message text is tried alone, and only those it
            # insists on go unchecked.
            if not self._check_each(messages):
                reason = f"checking each message for control tokens takes longer than {_SECONDS:g} seconds"
                raise WinMLError(INVALID_DATA, "format_conversation", reason) from None
            return
        if added is not None:
            self._check_each(messages)
            self._refuse("the texts together", added)

    def _check_each(self, messages: Sequence[ChatCompletionMessage]) -> bool:
        """Try each message text alone; return whether there was time for all of them."""
        deadline = time.thread_time() + _SECONDS
        for index, text in _untrusted_texts(messages):
            if self._spellings.inert(text) == text:
                continue
            if time.thread_time() > deadline:
                return False
            try:
                added = self._added(self._only(text))
            except WinMLError:
                continue
            if added is not None:
                self._refuse(f"message {index}", added)
        return True

    def _only(self, text: str) -> Break:
        return lambda other: self._spellings.inert(other) if other == text else self._broken(other)

    def _added(self, change: Break) -> int | None:
        """The first control token of the real prompt that has no counterpart, in order, among the inert texts.

        Fewer tokens are fine: a template may leave something out because of what a text says.
        """
        inert = (token_id for token_id in self._encoded(change) if token_id in self._control)
        return next((token_id for token_id in self._real if token_id not in inert), None)

    def _refuse(self, what: str, token_id: int) -> None:
        spelling = (self._vocabulary.piece(token_id) or b"").decode("utf-8", "replace")
        reason = (
            f"{what} would turn into the control token {spelling!r} or change where the template "
            "writes it: the template makes it from plain text, so take it out of the text"
        )
        raise WinMLError(INVALID_DATA, "format_conversation", reason)


def control_token_ids(vocabulary: TextVocabulary) -> frozenset[int]:
    """The special tokens without that for unknown text, which any text may make."""
    unknown = (vocabulary.named_tokens.get("unk_token", "<unk>"), "<unk>", "[UNK]")
    return vocabulary.special_token_ids - {vocabulary.find(spelling) for spelling in unknown}


def _untrusted_texts(messages: Sequence[ChatCompletionMessage]) -> Iterator[tuple[int, str]]:
    for index, message in enumerate(messages):
        if message.role == ChatRole.ASSISTANT:
            texts = [message.tool_call_id, message.tool_name]
        else:
            texts = [message.content, message.reasoning_content, message.tool_call_id, message.tool_name]
            texts += [part.text for part in message.content_parts]
        yield from ((index, text) for text in texts if text)
