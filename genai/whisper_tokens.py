"""The special tokens of a Whisper model, found by its tokenizer (genai §10).

Spellings are the same in all Whisper vocabularies; ids are not. Beside `tokenizer.json` there may be `whisper.json`,
which says everything (`whisper_folder.py`), or `generation_config.json`, which says which tokens are never said;
without either they are found as Whisper's own rule has it. Not here: what a decoder may say next (`whisper_rules.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from winml_lite import WinMLError

from .codes import INVALID_DATA
from .reading import read_json_if_there
from .tokenizer import Tokenizer
from .whisper_folder import WhisperFolder, WhisperTokens, is_whisper_folder

_CONTEXT = "speech recognition"
_LANGUAGE = re.compile(rb"<\|([a-z]{2,3})\|>")
_ENGLISH_ONLY_END = 50256
"""`<|endoftext|>` of the English-only models, which also have the language tokens but were not trained on them."""
_MARKS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *"<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(),
)
"""What is written in subtitles and never spoken. Dashes and apostrophes only count after a space: words have them."""
_NOTES = "♩♪♫♬♭♮♯"
_AFTER_SPACE = (" -", " '")


def find_tokens(tokenizer: Tokenizer) -> WhisperTokens:
    """Return the special tokens of a Whisper vocabulary.

    WinMLError 0x8007000D for a tokenizer of another kind of model, and for settings beside it that cannot be read.
    """
    folder = Path(tokenizer.path).parent
    if is_whisper_folder(folder):
        return WhisperFolder.open(folder).tokens
    settings = read_json_if_there(folder / "generation_config.json", _CONTEXT)
    ids = {
        "end": _required(tokenizer, "<|endoftext|>"),
        "start": _required(tokenizer, "<|startoftranscript|>"),
        "translate": _required(tokenizer, "<|translate|>"),
        "transcribe": _required(tokenizer, "<|transcribe|>"),
        "start_of_lm": _required(tokenizer, "<|startoflm|>"),
        "start_of_previous": _required(tokenizer, "<|startofprev|>"),
        "no_speech": _required(tokenizer, "<|nospeech|>", "<|nocaptions|>"),
        "no_timestamps": _required(tokenizer, "<|notimestamps|>"),
    }
    languages = _languages(tokenizer)
    is_multilingual = settings.get("is_multilingual")
    if not isinstance(is_multilingual, bool):
        is_multilingual = bool(languages) and ids["end"] != _ENGLISH_ONLY_END
    suppress, at_begin = _ids(settings, "suppress_tokens"), _ids(settings, "begin_suppress_tokens")
    return WhisperTokens(
        **ids,
        timestamp_begin=ids["no_timestamps"] + 1,
        languages=languages,
        suppress=_never_said(tokenizer, ids) if suppress is None else suppress,
        suppress_at_begin=(*_single(tokenizer, " "), ids["end"]) if at_begin is None else at_begin,
        is_multilingual=is_multilingual,
    )


def _required(tokenizer: Tokenizer, *spellings: str) -> int:
    for spelling in spellings:
        token_id = tokenizer.find_token_id(spelling)
        if token_id is not None:
            return token_id
    raise WinMLError(INVALID_DATA, _CONTEXT, f"{tokenizer.path} is no Whisper vocabulary: it has no {spellings[0]}")


def _languages(tokenizer: Tokenizer) -> dict[str, int]:
    found: dict[str, int] = {}
    for token_id in sorted(tokenizer.special_token_ids):
        match = _LANGUAGE.fullmatch(tokenizer.token_bytes(token_id))
        if match is not None:
            found[match.group(1).decode()] = token_id
    return found


def _never_said(tokenizer: Tokenizer, ids: Mapping[str, int]) -> tuple[int, ...]:
    """The marks and notes, with and without a space before them, as far as they are one token; and control tokens."""
    marked = ("start", "translate", "transcribe", "start_of_lm", "start_of_previous", "no_speech")
    never = {ids[name] for name in marked}
    for text in (*_MARKS, *(f" {mark}" for mark in _MARKS), *_AFTER_SPACE):
        never.update(_single(tokenizer, text))
    for note in _NOTES:
        for text in (note, f" {note}"):
            first = tokenizer.encode(text, add_special_tokens=False)[0]
            if len(tokenizer.token_bytes(first).strip()) > 1:  # a single byte begins other characters too
                never.add(first)
    return tuple(sorted(never))


def _single(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    return tuple(token_ids) if len(token_ids) == 1 else ()


def _ids(settings: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    """The ids of a list in the settings; None where there is none."""
    values = settings.get(name)
    if not isinstance(values, list):
        return None
    return tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0)
