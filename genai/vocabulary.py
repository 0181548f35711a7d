"""What the public tokenizer is built on: the interface of a vocabulary, and what is worked out from one only once.

Implementations: `vocab_json.py` and `vocab_gguf.py`, imported when a file of their kind is opened.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from winml_lite import NotSupportedError

from .codes import NOT_FOUND
from .decoder import PieceTable
from .spellings import ControlSpellings

if TYPE_CHECKING:
    from .constraint_engine import TokenTable
    from .conversation_result import ConstraintVocabularyIdentity
    from .template import ChatTemplate

DEFAULT_TEMPLATE = "default"
_TOOL_TEMPLATE = "tool_use"


class TextVocabulary(Protocol):
    """What a tokenizer needs of its vocabulary. Implementations are safe to use from several threads."""

    path: str
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    strips_space: bool
    chat_templates: Mapping[str, str]
    named_tokens: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def token_count(self) -> int: ...
    @property
    def adds_bos(self) -> bool: ...
    @property
    def special_token_ids(self) -> frozenset[int]: ...
    @property
    def control_spellings(self) -> frozenset[str]: ...
    def encode(self, text: str, add_special_tokens: bool) -> list[int]: ...
    def encode_exact(self, text: str) -> list[int]: ...
    def encode_marked(self, text: str, marker: str) -> list[int]: ...
    def piece(self, token_id: int) -> bytes | None: ...
    def find(self, token: str) -> int | None: ...


class TokenizerCore:
    """What the wrappers of one tokenizer share: the vocabulary and what is worked out from it once."""

    def __init__(self, vocabulary: TextVocabulary, chat_template: str | None) -> None:
        self.vocabulary = vocabulary
        self._template_origin = "of" if chat_template is None else "given for"
        self.template_sources: Mapping[str, str] = (
            vocabulary.chat_templates if chat_template is None else {DEFAULT_TEMPLATE: chat_template}
        )
        self.pieces = PieceTable(vocabulary.piece, vocabulary.strips_space)
        self.stops: dict[str, tuple[str, ...]] = {}
        """Additional stop texts by template name, as far as they are known."""
        self._templates: dict[str, ChatTemplate] = {}
        if chat_template is not None:
            self.template(DEFAULT_TEMPLATE)  # what a caller got wrong is told at once, what a file has only when used

    @functools.cached_property
    def visible_pieces(self) -> PieceTable:
        """The pieces with special tokens left out."""
        vocabulary = self.vocabulary
        return PieceTable(vocabulary.piece, vocabulary.strips_space, vocabulary.special_token_ids)

    @functools.cached_property
    def control_spellings(self) -> ControlSpellings:
        """What text must not spell to stay text."""
        return ControlSpellings(self.vocabulary.control_spellings)

    @functools.cached_property
    def identity(self) -> ConstraintVocabularyIdentity:
        """Size and digest of the vocabulary."""
        return self._identity_of(self.token_bytes())

    @functools.cached_property
    def token_table(self) -> TokenTable:
        """The vocabulary as constraints need it; for errors see `constraint_engine.token_table`."""
        from .constraint_engine import token_table

        tokens = self.token_bytes()
        if "identity" not in self.__dict__:
            self.__dict__["identity"] = self._identity_of(tokens)  # saves a second pass over the vocabulary
        return token_table(self.identity, tokens, self.vocabulary)

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of every token in order of ids; made anew at each call."""
        return list(map(self.token_text_bytes, range(self.vocabulary.token_count)))

    def token_text_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token; b"" for an id without one."""
        return self.vocabulary.piece(token_id) or b""

    def _identity_of(self, tokens: list[bytes]) -> ConstraintVocabularyIdentity:
        import hashlib  # loads OpenSSL

        from .conversation_result import ConstraintVocabularyIdentity

        special = self.vocabulary.special_token_ids
        digest = hashlib.sha256()
        for token_id, piece in enumerate(tokens):
            digest.update(len(piece).to_bytes(4, "little") + piece + bytes([token_id in special]))
        return ConstraintVocabularyIdentity(len(tokens), digest.digest())

    def template_name(self, *, has_tools: bool) -> str:
        """Return the name of the template for a conversation: some models have another one for tools."""
        return _TOOL_TEMPLATE if has_tools and _TOOL_TEMPLATE in self.template_sources else DEFAULT_TEMPLATE

    def template_source(self, name: str) -> str:
        """Return a template by name; NotSupportedError 0x80070490 lists the names there are."""
        sources = self.template_sources
        if name not in sources:
            known = ", ".join(map(repr, sources)) or "none"
            reason = f"there is no template {name!r}; the templates are: {known}"
            raise NotSupportedError(NOT_FOUND, "chat template", reason)
        return sources[name]

    def template(self, name: str) -> ChatTemplate:
        """Return a compiled template by name."""
        from .template import ChatTemplate

        template = self._templates.get(name)
        if template is None:
            label = f"chat template {name!r} {self._template_origin} {self.vocabulary.path}"
            template = self._templates.setdefault(name, ChatTemplate(self.template_source(name), label))
        return template


def well_formed(text: str) -> str:
    """Return `text` with half surrogates as U+FFFD and whole pairs as their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def open_vocabulary(path: str) -> TextVocabulary:
    """Open a file by its extension: `.gguf`, or else a `tokenizer.json` or its folder."""
    if path.lower().endswith(".gguf"):
        from .vocab_gguf import GgufVocabulary

        return GgufVocabulary(path)
    from .vocab_json import JsonVocabulary

    return JsonVocabulary(path)
