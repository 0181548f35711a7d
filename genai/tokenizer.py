"""Text to token ids and back (genai §2): the public class.

Not here: vocabularies (`vocabulary.py`), streaming (`decoder.py`), how a conversation is formatted (`conversation.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from winml_lite import NotSupportedError

from .checks import instance_of
from .closing import Closing
from .codes import E_NOINTERFACE
from .decoder import PieceTable, TokenizerDecoder, token_id_value
from .vocabulary import DEFAULT_TEMPLATE, TokenizerCore, open_vocabulary, well_formed

if TYPE_CHECKING:
    from .constraint import TokenConstraint
    from .conversation_result import ConstraintVocabularyIdentity, ConversationFormatResult
    from .messages import ChatCompletionRequest


class Tokenizer(Closing):
    """A tokenizer with its special tokens and chat templates. Safe to use from several threads.

    After `close` every member raises RuntimeError; decoders and results made from it go on working.
    """

    __slots__ = ("__weakref__", "_open")

    def __init__(self, core: TokenizerCore) -> None:
        if isinstance(core, (str, os.PathLike)):
            raise TypeError("a tokenizer is opened with Tokenizer.from_file(path)")
        self._open: TokenizerCore | None = core

    def __repr__(self) -> str:
        if self._open is None:
            return "<Tokenizer (closed)>"
        return f"<Tokenizer of {self.token_count} tokens, {'with' if self.has_chat_template else 'no'} chat template>"

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, chat_template: str | None = None) -> Self:
        """Open a `tokenizer.json`, its folder, or a `.gguf` file; `chat_template` replaces the model's own templates.

        ValueError for what is not a path; WinMLError 0x80070002 for a missing file, 0x8007000D for wrong content or a
        `chat_template` that does not compile,
        NotSupportedError 0x80070032 for a kind of tokenizer that is not known.
        """
        name = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(name, str) or not name:
            raise ValueError("path must be a non-empty str or path")
        if chat_template is not None and not isinstance(chat_template, str):
            raise TypeError(f"chat_template must be a str, not {type(chat_template).__name__}")
        return cls(TokenizerCore(open_vocabulary(name), chat_template))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`, with what the model puts around a text (BOS, EOS, ...) unless told not to.

        Spellings of special tokens in `text` become those tokens either way. Half surrogates become U+FFFD.
        """
        vocabulary = self._core.vocabulary
        if not isinstance(text, str):
            raise ValueError(f"text must be a str, not {type(text).__name__}")
        if not isinstance(add_special_tokens, bool):
            raise ValueError(f"add_special_tokens must be a bool, not {type(add_special_tokens).__name__}")
        return vocabulary.encode(well_formed(text), add_special_tokens)

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of `tokens`; special tokens appear as they are spelled, unless skipped.

        Bytes that are no UTF-8 become U+FFFD. ValueError for what is not a uint32, WinMLError 0x80070057 for an id
        outside the vocabulary.
        """
        table = self._table(skip_special_tokens)
        if not hasattr(tokens, "__iter__"):
            raise ValueError(f"tokens must be token ids, not {type(tokens).__name__}")
        return table.decode(tokens)

    def create_decoder(self, *, skip_special_tokens: bool = False, continuation: bool = False) -> TokenizerDecoder:
        """Return a decoder for one stream of tokens.

        With `continuation` the stream goes on from an earlier text, so a space at its start is kept.
        """
        return TokenizerDecoder(self._table(skip_special_tokens), bool(continuation))

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text; None when the model has none."""
        return self._core.vocabulary.bos_token_id

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end a generation, without duplicates; may be empty."""
        return list(self._core.vocabulary.eos_token_ids)

    @property
    def special_token_ids(self) -> frozenset[int]:
        """The tokens that no ordinary text makes: `skip_special_tokens` leaves them out."""
        return self._core.vocabulary.special_token_ids

    @property
    def token_count(self) -> int:
        """Size of the vocabulary: one more than the largest id."""
        return self._core.vocabulary.token_count

    def find_token_id(self, token: str) -> int | None:
        """Return the id of a token by its spelling in the vocabulary, None when there is none."""
        if not isinstance(token, str):
            raise ValueError(f"token must be a str, not {type(token).__name__}")
        return self._core.vocabulary.find(token)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; special tokens stand for their spelling."""
        return self._core.pieces.piece(token_id_value(token_id))

    @property
    def vocabulary_identity(self) -> ConstraintVocabularyIdentity:
        """Token count and SHA-256 of the vocabulary; worked out on first use."""
        return self._core.identity

    @property
    def path(self) -> str:
        """The file that was read."""
        return self._core.vocabulary.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with this vocabulary although it could be read."""
        return self._core.vocabulary.warnings

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be formatted."""
        return bool(self._core.template_sources)

    @property
    def chat_template(self) -> str | None:
        """Source of the default chat template; None when there is none."""
        return self._core.template_sources.get(DEFAULT_TEMPLATE)

    @property
    def chat_template_names(self) -> tuple[str, ...]:
        """The names of the chat templates, "default" among them as a rule."""
        return tuple(self._core.template_sources)

    def get_chat_template(self, name: str = DEFAULT_TEMPLATE) -> str:
        """Return the source of a template by name; NotSupportedError 0x80070490 lists the names there are."""
        return self._core.template_source(name)

    def encode_conversation(self, messages: Sequence[tuple[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """Return the ids of a conversation of (role, content) pairs, ready for the model to answer.

        ValueError for no messages or a wrong pair; otherwise like `format_conversation`.
        """
        from .messages import ChatCompletionMessage, ChatCompletionRequest  # plain text needs no messages

        pairs = [tuple(message) for message in messages]
        if not pairs:
            raise ValueError("a conversation needs at least one message")
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("messages must be (role, content) pairs")
        turns = tuple(ChatCompletionMessage(role, content) for role, content in pairs)
        request = ChatCompletionRequest(messages=turns, add_generation_prompt=add_generation_prompt)
        return list(self.format_conversation(request).token_ids)

    def format_conversation(self, request: ChatCompletionRequest) -> ConversationFormatResult:
        """Format a conversation with the model's own template and tokenize it.

        NotSupportedError 0x80004002 without a chat template, 0x80070032 when the template or this version cannot honour
        a field of the request; WinMLError 0x80070057 for contradictory requests, 0x8007000D with the template's text
        when the template fails. What messages say never becomes a control token (user-defined tokens such as `<think>`
        and assistant messages excepted).
        """
        from .messages import ChatCompletionRequest

        core = self._core
        instance_of(request, ChatCompletionRequest, "request")
        if not core.template_sources:
            mend = "give one to Tokenizer.from_file(chat_template=...), or generate from plain text"
            raise NotSupportedError(E_NOINTERFACE, core.vocabulary.path, f"the model has no chat template; {mend}")
        from .conversation import format_conversation  # loads the template engine

        return format_conversation(core, request, self)

    def create_constraint(self, format_result: ConversationFormatResult) -> TokenConstraint:
        """Return the constraint that a formatted conversation asks for; it belongs to the calling thread.

        WinMLError 0x80070057 for a result of another tokenizer or a schema that allows nothing; NotSupportedError
        0x80070032 for a result without a constraint, or a schema that cannot be enforced, 0x8007007E without the
        package llguidance.
        """
        from .constraint import create_conversation_constraint
        from .conversation_result import ConversationFormatResult

        core = self._core
        return create_conversation_constraint(
            core, instance_of(format_result, ConversationFormatResult, "format_result")
        )

    def create_constraint_from_json_schema(self, schema: Mapping[str, Any] | bool | str) -> TokenConstraint:
        """Return a constraint to JSON of a schema (a mapping, a bool, or JSON text); errors as in `create_constraint`.

        A keyword that cannot be enforced is refused by name. Properties come in the order of the schema.
        """
        from .answer_form import schema_value
        from .grammar import json_schema_grammar

        return self._constraint(json_schema_grammar(schema_value(schema)))

    def create_constraint_from_regex(self, pattern: str) -> TokenConstraint:
        """Return a constraint to texts that match `pattern` from end to end; no look-around, no back references."""
        from .grammar import regex_grammar

        return self._constraint(regex_grammar(instance_of(pattern, str, "pattern")))

    def create_constraint_from_choices(self, choices: Iterable[str]) -> TokenConstraint:
        """Return a constraint to one of these texts; ValueError for none, or an empty one."""
        from .answer_form import choice_values
        from .grammar import choices_grammar

        return self._constraint(choices_grammar(choice_values(choices)))

    def create_constraint_from_grammar(self, grammar: str) -> TokenConstraint:
        """Return a constraint to a grammar in Lark notation (rule `start`) or llama.cpp's GBNF (rule `root`).

        Mistakes are WinMLError 0x80070057 with line and column.
        """
        from .grammar import text_grammar

        return self._constraint(text_grammar(instance_of(grammar, str, "grammar")))

    def _constraint(self, grammar: str) -> TokenConstraint:
        from .constraint import create_constraint

        return create_constraint(self._core, grammar)

    @property
    def underlying_object(self) -> Any:
        """The object behind this wrapper; opaque, only good for comparing."""
        return self._core

    def close(self) -> None:
        """Give up the vocabulary. Closing twice is fine."""
        self._open = None

    def _check_open(self) -> TokenizerCore:
        return self._core

    @property
    def _core(self) -> TokenizerCore:
        if self._open is None:
            raise RuntimeError("Tokenizer is closed")
        return self._open

    def _table(self, skip_special_tokens: bool) -> PieceTable:
        return self._core.visible_pieces if skip_special_tokens else self._core.pieces
