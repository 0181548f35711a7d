"""The engine behind constraints: llguidance, the only file that imports it (genai §4).

`TokenTable` is a vocabulary as the engine sees it, made once per vocabulary: that costs tenths of a second. It keeps
the grammars that were used last, since a compiled grammar also remembers the masks of its lexemes. `GrammarMatcher` is
one reading of a grammar. What a constraint means beyond that is `constraint_state.py`.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from .codes import E_INVALIDARG, E_OUTOFMEMORY, MODULE_NOT_FOUND, NOT_SUPPORTED

if TYPE_CHECKING:
    from .conversation_result import ConstraintVocabularyIdentity
    from .vocabulary import TextVocabulary

T = TypeVar("T")
Mask: TypeAlias = npt.NDArray[np.uint8]
"""One bit for each token, the lowest bit of the first byte for token 0; 1 is legal."""

KEPT_GRAMMARS = 8
COMPILER_STACK = 64 << 20
"""Bytes; the compiler descends 8 KiB for each link in a chain of references."""
MAX_REFERENCES = 4000
"""Most references inside the schemas of one grammar, which that stack can hold with room."""
_OPTIONS = '%llguidance {"no_forcing": true}'  # every legal token counts, not only one way to spell a forced text
_CANNOT = re.compile(r"not (yet )?supported|unimplemented|unknown format|too deeply|limit|too (large|complex)", re.I)
_PARTS = (("JSON schema", "failed to compile JSON schema: "), ("regular expression", " (in regex): "))
"""Parts of a grammar that have a language of their own, and what the engine says before a problem in them."""
_LISTING = re.compile(r"\n\s*\d+ \| .*", re.DOTALL)
_SPECIAL = re.compile(r"<[^<>\s]+>")
"""A special token by its name or id, in a grammar."""
_EMPTY_LINE = re.compile(r"\s*\d+ \|\s*")
_NOTHING_FOLLOWS = "NoExtensionBias"

_tables: weakref.WeakValueDictionary[Any, TokenTable] = weakref.WeakValueDictionary()
_tables_lock = threading.Lock()


def token_table(
    identity: ConstraintVocabularyIdentity, tokens: Sequence[bytes], vocabulary: TextVocabulary
) -> TokenTable:
    """Return the table of a vocabulary; tokenizers of equal vocabularies share it.

    NotSupportedError 0x8007007E without llguidance, 0x80070032 for a vocabulary without a token that ends a text.
    """
    engine = _engine()
    ends = vocabulary.eos_token_ids
    if not ends:
        raise NotSupportedError(
            NOT_SUPPORTED, "constraint", f"{vocabulary.path} names no EOS token to end a constrained text with"
        )
    with _tables_lock:
        table = _tables.get((identity, ends))
        if table is None:
            table = TokenTable(engine, tokens, vocabulary.special_token_ids | set(ends), ends)
            _tables[identity, ends] = table
    return table


class _Vocabulary:
    """What the engine asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], eos_token_id: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = eos_token_id

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokenize, for texts that are forced: none is, see `_OPTIONS`."""
        return []


class TokenTable:
    """The tokens of one vocabulary, ready for the engine. Safe to use from several threads."""

    def __init__(
        self, engine: Any, tokens: Sequence[bytes], special: frozenset[int], eos_token_ids: Sequence[int]
    ) -> None:
        self._engine = engine
        self.token_count = len(tokens)
        self.eos_token_ids = frozenset(eos_token_ids)
        self.special_token_ids = special
        """Tokens that no ordinary text makes, those of EOS among them."""
        ordinary = np.ones(len(tokens), np.bool_)
        ordinary[list(special - self.eos_token_ids)] = False
        self._ordinary: Mask = _packed(ordinary)
        vocabulary = _Vocabulary(tokens, sorted(special), eos_token_ids[0])
        self._tokenizer = engine.LLTokenizer(vocabulary, n_vocab=len(tokens), eos_token=list(eos_token_ids))
        vocabulary.tokens = ()  # the engine has its own copy
        self._matchers: OrderedDict[str, GrammarMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, grammar: str) -> GrammarMatcher:
        """Return a matcher at the start of a grammar.

        WinMLError 0x80070057 for a mistake in the grammar, or one that no text fulfils; NotSupportedError 0x80070032
        naming what the engine cannot do.
        """
        with self._lock:
            matcher = self._matchers.get(grammar)
            if matcher is not None:
                self._matchers.move_to_end(grammar)
                return matcher.copy()
        matcher = self._compile(grammar)
        with self._lock:
            self._matchers[grammar] = matcher
            if len(self._matchers) > KEPT_GRAMMARS:
                self._matchers.popitem(last=False)
        return matcher.copy()

    def _compile(self, grammar: str) -> GrammarMatcher:
        if grammar.count('"$ref"') > MAX_REFERENCES:
            raise NotSupportedError(NOT_SUPPORTED, "grammar", f"more than {MAX_REFERENCES} references")
        text = f"{grammar}\n{_OPTIONS}\n" if grammar.strip() else grammar
        native = _with_deep_stack(lambda: self._engine.LLMatcher(self._tokenizer, text, log_level=0))
        if native.is_error():
            _refuse(native.get_error())
        # A negation also matches the byte that begins special tokens inside the engine.
        is_loose = "~" in grammar and not _SPECIAL.search(grammar)
        matcher = GrammarMatcher(native, self.token_count, self._ordinary if is_loose else None)
        if not matcher.is_accepting and not matcher.mask().any():
            raise WinMLError(E_INVALIDARG, "grammar", "no text fulfils the grammar")
        return matcher

    def spell(self, data: bytes, token_bytes: Callable[[int], bytes]) -> list[int]:
        """Return tokens that together have these bytes; [] when there are none."""
        token_ids: list[int] = list(self._tokenizer.greedy_tokenize(data.decode("utf-8", "ignore")))
        return token_ids if b"".join(map(token_bytes, token_ids)) == data else []


class GrammarMatcher:
    """How far one text has come in a grammar. Of the legal tokens only those in `within` count, if it is given."""

    __slots__ = ("_address", "_mask", "_native", "_token_count", "_within")

    def __init__(self, native: Any, token_count: int, within: Mask | None) -> None:
        self._native = native
        self._token_count = token_count
        self._within = within
        words = np.zeros((token_count + 31) // 32, np.uint32)
        self._address: int = words.__array_interface__["data"][0]
        self._mask: Mask = words.view(np.uint8)

    def copy(self) -> GrammarMatcher:
        """Return a matcher that goes on from here on its own."""
        return GrammarMatcher(self._native.deep_copy(), self._token_count, self._within)

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        return bool(self._native.is_accepting())

    def mask(self) -> Mask:
        """Return the legal next tokens, in a buffer that the next call reuses; EOS tokens are legal where the text may
        end, none is where nothing can follow.

        0x8007000E when the grammar is too complex to go on.
        """
        self._native.unsafe_compute_mask_ptr(self._address, self._mask.nbytes)
        if self._native.is_error():
            reason = self._native.get_error().partition("\n")[0]
            if reason != _NOTHING_FOLLOWS:
                raise WinMLError(E_OUTOFMEMORY, "constraint", reason)
            self._mask.fill(0)  # the engine offers EOS in its place
        if self._within is not None:
            np.bitwise_and(self._mask, self._within, self._mask)
        return self._mask

    def allows(self, token_id: int) -> bool:
        """Whether this token, which is no special one, is legal next; quicker than the mask of all."""
        return token_id < self._token_count and self._native.validate_tokens([token_id]) == 1

    def allows_special(self, token_id: int) -> bool:
        """Whether this special token is legal next: the grammar names it, or it ends a text that may end."""
        return bool(self.mask()[token_id >> 3] >> (token_id & 7) & 1)

    def advance(self, token_ids: Sequence[int]) -> bool:
        """Consume tokens; False when one is illegal, after which the matcher is of no use."""
        return bool(self._native.consume_tokens(token_ids))


def _packed(flags: npt.NDArray[np.bool_]) -> Mask:
    """Pack flags as a mask, in whole words of 32 bits."""
    mask = np.zeros((flags.size + 31) // 32 * 4, np.uint8)
    mask[: (flags.size + 7) // 8] = np.packbits(flags, bitorder="little")
    return mask


def _engine() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise NotSupportedError(
            MODULE_NOT_FOUND, "constraint", "constraints need llguidance: pip install 'winml-lite[guidance]'"
        ) from error
    return llguidance


def _with_deep_stack(call: Callable[[], T]) -> T:
    """Call on a thread with a stack of its own: the compiler recurses, and an overflow would end the process."""
    outcome: list[T] = []
    problem: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            problem.append(error)

    with _tables_lock:
        before = threading.stack_size(COMPILER_STACK)
        try:
            thread = threading.Thread(target=run, name="constraint compiler", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if problem:
        raise problem[0]
    return outcome[0]


def _refuse(reason: str) -> NoReturn:
    """Raise for a grammar that the engine does not take; `reason` ends with a listing of the grammar around a place."""
    what = "grammar"
    for kind, mark in _PARTS:
        _, found, problem = reason.partition(mark)
        if found:
            what, reason = kind, _LISTING.sub("", problem)
    lines = [line for line in reason.splitlines() if _OPTIONS not in line and not _EMPTY_LINE.fullmatch(line)]
    reason = "\n".join(lines).strip()
    if _CANNOT.search(reason):
        raise NotSupportedError(NOT_SUPPORTED, what, reason)
    raise WinMLError(E_INVALIDARG, what, reason)
