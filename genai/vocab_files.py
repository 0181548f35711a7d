"""The files beside a `tokenizer.json`: special tokens, end-of-generation ids and chat templates (genai §2.1, 2.5, 3.3).

Which file wins: for the EOS ids `generation_config.json`, `genai_config.json`, `config.json`, `whisper.json`, then the
named `eos_token`; for named tokens `tokenizer_config.json`, then `special_tokens_map.json`; for templates
`chat_template.jinja` (others by name in `additional_chat_templates`), `chat_template.json`, then
`tokenizer_config.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from winml_lite import WinMLError

from .codes import INVALID_DATA
from .reading import read_bytes
from .vocabulary import DEFAULT_TEMPLATE


class VocabularyFiles:
    """What the files in one folder say. Missing files say nothing; malformed ones are 0x8007000D."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._tokenizer_config = self._read_json("tokenizer_config.json")
        self._tokens_map = self._read_json("special_tokens_map.json")
        self._generation = self._read_json("generation_config.json")
        self._model = self._read_json("config.json")
        genai_model = self._read_json("genai_config.json").get("model")
        self._genai: Mapping[str, Any] = genai_model if isinstance(genai_model, Mapping) else {}

    def named_tokens(self) -> dict[str, str]:
        """The spellings of `bos_token`, `eos_token` and whatever else has a name ending in `_token`."""
        named: dict[str, str] = {}
        for source in (self._tokens_map, self._tokenizer_config):
            for name, value in source.items():
                if not name.endswith("_token"):
                    continue
                spelling = value.get("content") if isinstance(value, Mapping) else value
                if isinstance(spelling, str):
                    named[name] = spelling
                elif spelling is None:
                    named.pop(name, None)
        return named

    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that the configuration files list, in their order; empty when none does."""
        text_model = self._model.get("text_config")
        for source in (self._generation, self._genai, self._model, text_model):
            value = source.get("eos_token_id") if isinstance(source, Mapping) else None
            ids = value if isinstance(value, list) else [value]
            known = [number for number in ids if isinstance(number, int) and not isinstance(number, bool)]
            if known:
                return tuple(dict.fromkeys(known))
        tokens = self._read_json("whisper.json").get("tokens")  # of a converted speech model
        end = tokens.get("end") if isinstance(tokens, Mapping) else None
        return (end,) if isinstance(end, int) and not isinstance(end, bool) else ()

    def bos_token_id(self) -> int | None:
        """The id in the configuration files; only for folders that do not name the token."""
        for source in (self._generation, self._genai, self._model):
            value = source.get("bos_token_id")
            if isinstance(value, int):
                return value
        return None

    @property
    def names_tokens(self) -> bool:
        """Whether a file says which special tokens there are."""
        return bool(self._tokenizer_config or self._tokens_map)

    def chat_templates(self) -> dict[str, str]:
        """Templates by name; the unnamed one is `"default"`."""
        own = self._read_text("chat_template.jinja")
        if own is not None:
            return {**self._additional_templates(), DEFAULT_TEMPLATE: own}
        for name, content in (
            ("chat_template.json", self._read_json("chat_template.json")),
            ("tokenizer_config.json", self._tokenizer_config),
        ):
            value = content.get("chat_template")
            if isinstance(value, str):
                return {DEFAULT_TEMPLATE: value}
            if value is not None:
                return self._named_templates(value, name)
        return {}

    def _named_templates(self, value: Any, file: str) -> dict[str, str]:
        try:
            return {str(entry["name"]): str(entry["template"]) for entry in value}
        except (TypeError, KeyError) as error:
            path = os.path.join(self._folder, file)
            raise WinMLError(INVALID_DATA, path, "chat_template is neither a text nor a list of named texts") from error

    def _additional_templates(self) -> dict[str, str]:
        folder = os.path.join(self._folder, "additional_chat_templates")
        names = [name for name in os.listdir(folder) if name.endswith(".jinja")] if os.path.isdir(folder) else []
        templates = {name.removesuffix(".jinja"): self._read_text("additional_chat_templates", name) for name in names}
        return {name: text for name, text in templates.items() if text is not None}

    def _read_text(self, *names: str) -> str | None:
        path = os.path.join(self._folder, *names)
        if not os.path.isfile(path):
            return None
        try:
            return read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise WinMLError(INVALID_DATA, path, f"not UTF-8: {error}") from error

    def _read_json(self, name: str) -> dict[str, Any]:
        text = self._read_text(name)
        if text is None:
            return {}
        path = os.path.join(self._folder, name)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WinMLError(INVALID_DATA, path, f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise WinMLError(INVALID_DATA, path, "the file must hold a JSON object")
        return value
