"""The tokenizer beside a CTranslate2 Whisper model, completed, and the ids of its special tokens.

The files of CTranslate2 models often end before the timestamp tokens, which follow `<|notimestamps|>`. Not here: how
special tokens are found in a tokenizer (`genai/whisper_tokens.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from winml_lite import WinMLError

from ..codes import FILE_NOT_FOUND
from ..reading import read_json, read_json_if_there
from ..tokenizer import Tokenizer
from ..whisper_folder import TIMESTAMP_COUNT, TIMESTAMP_SECONDS, TOKENIZER_FILE, WhisperTokens
from ..whisper_tokens import find_tokens
from .whisper_architecture import invalid

_NO_TIMESTAMPS = "<|notimestamps|>"
_CONFIG_FILE = "config.json"


def write_tokenizer(source: Path, folder: Path, row_count: int) -> WhisperTokens:
    """Write `tokenizer.json` to `folder`, and return the ids of the tokens in it.

    row_count: rows of the embedding, at least one for each token.
    WinMLError 0x80070002 without a tokenizer, 0x8007000D for files that cannot be read or contradict the model.
    """
    path = source / TOKENIZER_FILE
    if not path.is_file():
        mend = "copy the one of the same kind of Whisper, English-only or multilingual, into the folder"
        raise WinMLError(FILE_NOT_FOUND, "convert_whisper", f"{source} holds no {TOKENIZER_FILE}: {mend}")
    content = read_json(path, "convert_whisper")
    begin = _add_timestamps(path, content)
    count = begin + TIMESTAMP_COUNT
    if count > row_count:
        raise invalid(str(path), f"the tokenizer has {count} tokens with timestamps, the model {row_count} rows")
    _check_ids(path, content, row_count)
    written = folder / TOKENIZER_FILE
    written.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    try:
        with Tokenizer.from_file(written) as tokenizer:
            tokens = find_tokens(tokenizer)
    except WinMLError as error:  # the user knows nothing of the folder that it names
        text = (error.native_message or "").replace(str(written), str(path))
        raise type(error)(error.hresult, "convert_whisper", text if str(path) in text else f"{path}: {text}") from None
    if max(tokens.suppress, default=0) >= count or tokens.timestamp_begin != begin:
        raise invalid(str(path), "the special tokens are not in the order of a Whisper vocabulary")
    return _with_config(source / _CONFIG_FILE, tokens, count)


def _add_timestamps(path: Path, content: dict[str, Any]) -> int:
    """Add the timestamp tokens that a tokenizer lacks; return the id of the first."""
    added = content.get("added_tokens")
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise invalid(str(path), "there is no list of added tokens")
    ids = {token.get("content"): token.get("id") for token in added if isinstance(token.get("content"), str)}
    last = ids.get(_NO_TIMESTAMPS)
    if not isinstance(last, int) or isinstance(last, bool) or last < 0:
        raise invalid(str(path), f"this is no Whisper vocabulary: it has no {_NO_TIMESTAMPS}")
    begin = last + 1
    for index in range(TIMESTAMP_COUNT):
        text = f"<|{index * TIMESTAMP_SECONDS:.2f}|>"
        if ids.get(text, begin + index) != begin + index:
            raise invalid(str(path), f"{text} has the id {ids[text]}, not {begin + index}")
        if text not in ids:
            plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
            added.append({"id": begin + index, "content": text, **plain})
    return begin


def _check_ids(path: Path, content: Mapping[str, Any], row_count: int) -> None:
    """Refuse ids that no row of the model is for."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    for number in (*ids, *(token.get("id") for token in content["added_tokens"])):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < row_count:
            raise invalid(str(path), f"a token has the id {number!r}; the model has {row_count} rows")


def _with_config(path: Path, tokens: WhisperTokens, count: int) -> WhisperTokens:
    """Take over what the configuration of the model says about its tokens."""
    config = read_json_if_there(path, "convert_whisper")
    changes: dict[str, Any] = {}
    for key, name in (("suppress_ids", "suppress"), ("suppress_ids_begin", "suppress_at_begin")):
        if isinstance(config.get(key), list):
            changes[name] = _ids(path, config, key, count)
    if isinstance(config.get("is_multilingual"), bool):
        changes["is_multilingual"] = config["is_multilingual"]
    return replace(tokens, **changes)


def _ids(path: Path, config: Mapping[str, Any], key: str, count: int) -> tuple[int, ...]:
    ids = [value for value in config[key] if value != -1]  # stands for a list that the reader of the file has
    if not all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count for value in ids):
        raise invalid(str(path), f"{key} names tokens that the model does not have")
    return tuple(ids)
