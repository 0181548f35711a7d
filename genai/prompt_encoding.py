"""From the text of a prompt to token ids: broken spellings become text, and BOS is there at most once (genai §3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from .control_tokens import control_token_ids
from .vocabulary import TextVocabulary, well_formed


def encode_prompt(vocabulary: TextVocabulary, texts: Sequence[str], marker: str) -> list[list[int]]:
    """Tokenize the texts of a prompt, which media stand between.

    The character `marker` breaks spellings and leaves no trace. BOS begins the first text if it is there at all.
    """
    first, *others = [_encode(vocabulary, well_formed(text), marker) for text in texts]
    bos = vocabulary.bos_token_id
    if bos is not None:
        if vocabulary.adds_bos and first[:1] != [bos]:
            first = [bos, *first]
        while first[:2] == [bos, bos]:
            first = first[1:]
    return [first, *others]


def _encode(vocabulary: TextVocabulary, text: str, marker: str) -> list[int]:
    if marker not in text:
        return vocabulary.encode_exact(text)
    ids = vocabulary.encode_marked(text, marker)
    control = control_token_ids(vocabulary)
    written = [token_id for token_id in vocabulary.encode_exact(text) if token_id in control]
    if [token_id for token_id in ids if token_id in control] == written:
        return ids
    # This vocabulary also builds control tokens from smaller pieces. Then the halves must not meet, although a
    # vocabulary that puts a space before each text shows it between them.
    return [token_id for part in text.split(marker) for token_id in vocabulary.encode_exact(part)]
