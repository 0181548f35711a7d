"""`winml-lite generate`: one prompt, one answer."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click

import genai

from . import terminal
from .generation_options import check_bias, generation_options
from .media import MediaFiles, media_options
from .options import ModelChoice, form_options, json_option, model_options, prompt_options
from .turn_notes import TurnNotes


@click.command("generate")
@prompt_options
@model_options
@generation_options(max_new_tokens=256)
@form_options
@media_options
@click.option("--system", help="System message of a model that can chat.")
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the chat template.")
@click.option("--top-logprobs", type=int, help="With --json: how likely each token was, and the N likeliest.")
@json_option
def command(
    text: str,
    choice: ModelChoice,
    fields: dict[str, Any],
    media: MediaFiles,
    system: str | None,
    raw: bool,
    top_logprobs: int | None,
    as_json: bool,
) -> None:
    """Continue a prompt, or answer it.

    PROMPT is an argument; "-" or none reads standard input. Beside a PROMPT standard input is read with --stdin only:

    \b
    winml-lite generate --stdin "Summarize this text:" < text.txt

    --image and --audio come in front of the prompt; the model needs its --projector:

    \b
    winml-lite generate -m model.gguf --projector mmproj.gguf --image cat.jpg What?

    --json-schema, --regex, --choice and --grammar make the answer keep to a form (they need the extra "guidance").

    A model with a chat template answers the prompt as a message; other models, and all with --raw, continue its text.
    """
    if not text:
        raise click.UsageError("the prompt is empty")
    if raw and system is not None:
        raise click.UsageError("--system needs the chat template that --raw leaves out")
    if raw and media:
        raise click.UsageError("--image and --audio need the chat template that --raw leaves out")
    if top_logprobs is not None:
        fields["options"] = _with_logprobs(fields["options"], top_logprobs, as_json)
    with choice.load() as model:
        check_bias(model, fields["options"])
        stream: genai.TextStream | genai.ChatStream
        notes = TurnNotes()
        if model.can_chat and not raw:
            hooks: dict[str, Any] = {} if choice.quiet or as_json else {"on_reasoning": notes.reasoning}
            fields |= media.read(model)
            stream = model.chat(system, **hooks).stream(text, **fields)
        elif system is not None or media:
            what = "--system" if system is not None else "--image and no --audio"
            raise click.UsageError(f"{model.name} has no chat template, so it takes no {what}")
        else:
            stream = model.stream(text, **fields)
        if as_json:
            return terminal.answer_json(as_record(model, stream.read()))
        with stream:
            terminal.answer_stream(notes.watched(stream))
        if not choice.quiet:
            note_cut(stream.result)
            note_drafts(stream.result)


def _with_logprobs(options: genai.TextGenerationOptions, count: int, as_json: bool) -> genai.TextGenerationOptions:
    if not as_json:
        raise click.UsageError("--top-logprobs needs --json, which has a place for them")
    try:
        return replace(options, top_logprobs=count)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def note_cut(result: genai.TextGenerationResult, mend: str = "") -> None:
    """Say when an answer ended because of a limit; `mend` is what more can be done about a full context."""
    reason = genai.TextGenerationFinishReason
    if result.finish_reason is reason.MAX_TOKENS:
        terminal.note(f"(cut after {terminal.counted(result.generated_token_count, 'token')}, see --max-new-tokens)")
    elif result.finish_reason is reason.SEQUENCE_CAPACITY:
        terminal.note(f"(cut: the context is full, see --context-length{mend})")


def note_drafts(result: genai.TextGenerationResult) -> None:
    """Say what drafting came to, where anything was to be drafted."""
    found = result.speculative_statistics
    if found is None:
        return
    if found.failure is not None:
        terminal.note(f"(drafting ended: {found.failure})")
    drafted, right = terminal.counted(found.draft_token_count, "token"), found.accepted_draft_token_count
    terminal.note(f"({drafted} drafted, {right} of them right, in {found.verification_step_count} steps)")


def as_record(model: genai.LanguageModel, result: genai.TextGenerationResult) -> dict[str, Any]:
    """Return an answer with everything a script may want to know of it."""
    timings = result.timings
    return {
        "model": model.name,
        "engine": model.engine,
        "device": model.target.name,
        "file": model.file,
        "text": result.text,
        "reasoning": result.reasoning if isinstance(result, genai.ChatReply) else "",
        "finish_reason": result.finish_reason.name.lower(),
        "stop_match": result.stop_match,
        "stop_offset": result.stop_offset,
        "constraint_complete": result.constraint_complete,
        "token_ids": list(result.token_ids),
        "prompt_token_count": result.prompt_token_count,
        "generated_token_count": result.generated_token_count,
        "seed": result.seed,
        "logprobs": result.logprobs and [asdict(record) for record in result.logprobs],
        "speculative_statistics": _drafts_record(result),
        "timings": {
            "first_token_seconds": timings.first_token_seconds,
            "prompt_seconds": timings.prompt_seconds,
            "prompt_tokens_per_second": timings.prompt_tokens_per_second,
            "decode_seconds": timings.decode_seconds,
            "decode_tokens_per_second": timings.decode_tokens_per_second,
        },
    }


def _drafts_record(result: genai.TextGenerationResult) -> dict[str, Any] | None:
    found = result.speculative_statistics
    if found is None:
        return None
    return {
        "method": found.method.name.lower(),
        "verification_step_count": found.verification_step_count,
        "draft_token_count": found.draft_token_count,
        "accepted_draft_token_count": found.accepted_draft_token_count,
        "acceptance_rate": found.acceptance_rate,
        "failure": found.failure,
    }
