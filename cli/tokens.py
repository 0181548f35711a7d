"""`winml-lite tokens`: text to token ids and back."""

from __future__ import annotations

import click

import genai

from . import terminal
from .model_files import find_model
from .options import json_option, read_prompt, source_options


@click.command("tokens")
@click.argument("text", required=False)
@source_options
@click.option("--decode", is_flag=True, help="TEXT is token ids; show their text.")
@click.option("--special/--no-special", default=True, show_default=True, help="Add what the model puts around a text.")
@json_option
def command(text: str | None, source: str, offline: bool, decode: bool, special: bool, as_json: bool) -> None:
    """Show the tokens of a text, or the text of tokens.

    TEXT is an argument or comes from standard input.
    """
    given = read_prompt(text)  # an empty text has no tokens, which is an answer too
    ids = _ids(given) if decode else []
    _, path = find_model(source, offline, kinds=("text", "speech", "text-encoder"))
    with genai.Tokenizer.from_file(path) as tokenizer:
        if decode:
            try:
                plain = tokenizer.decode(ids)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            return terminal.answer_json({"ids": ids, "text": plain}) if as_json else terminal.answer(plain + "\n")
        ids = tokenizer.encode(given, special)
        pieces = [tokenizer.token_bytes(token_id) for token_id in ids]
    if as_json:
        texts = [piece.decode("utf-8", "backslashreplace") for piece in pieces]
        return terminal.answer_json({"text": given, "ids": ids, "pieces": texts, "count": len(ids)})
    terminal.answer("".join(f"{token_id:>8}  {_shown(piece)}\n" for token_id, piece in zip(ids, pieces, strict=True)))
    terminal.note(terminal.counted(len(ids), "token"))


def _shown(piece: bytes) -> str:
    """Return a piece as Python writes it: text, or bytes that are no characters by themselves."""
    try:
        return repr(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(piece)


def _ids(text: str) -> list[int]:
    return [_id(word) for word in text.replace(",", " ").strip(" []\n").split()]


def _id(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise click.UsageError(f"{word!r} is no token id: ids are whole numbers, as in '72 101 108'") from None
