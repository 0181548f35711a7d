"""How a command ends when it cannot do its work: exit codes, and one line on standard error."""

from __future__ import annotations

import os
import re

import click

import genai
from genai import codes

from . import terminal

EXIT_INTERRUPTED = 130
EXIT_NO_READER = 141
_MODEL_ERRORS = frozenset(
    {
        0x80070002,  # file not found
        0x80070003,  # path not found
        0x80070005,  # access denied
        0x8007000D,  # invalid data
        0x80070070,  # disk full
        0x800700CE,  # file name too long
        0x80070490,  # not found
        0x80070570,  # file corrupt
    }
)
_USAGE_ERRORS = frozenset({0x8000000B, codes.E_INVALIDARG, codes.INSUFFICIENT_BUFFER})
"""What the user asked for is at fault, unless an engine says so of what it was given."""
_ENGINE_CALL = re.compile(r"IWinML(?!Runtime\.LoadModel)|llama_|loading ")
"""Reading a model file is no engine's work yet."""
_CALL = re.compile(r"IWinML\S*|genai\.\S+|[A-Z]\w+\.\w+|[A-Z][a-z]+[A-Z]\w+|[a-z_]+( [a-z]+)*")
"""Contexts that name a call or a part of the program; all others name a file, an address or a model."""
_CPU_CALL, _CPU_OPTION = "use create_cpu_target()", "take --device cpu"
"""How a program, and a command, mends that a device is missing."""
_INNER_CALL = re.compile(r"\bIWinML\w+(\.\w+)?: ")


class ModelFailure(click.ClickException):
    """The model is missing, unknown, unreadable or of a kind that cannot be used."""

    exit_code = 3


class EngineFailure(click.ClickException):
    """The engine failed or is not installed."""

    exit_code = 4


class OutputFailure(click.ClickException):
    """Standard output is closed, or its disk is full."""

    exit_code = 1


class UsageFailure(click.ClickException):
    """What was asked for does not fit the model: a prompt that is too long, another engine's file."""

    exit_code = 2


def as_failure(error: genai.WinMLError) -> click.ClickException:
    """Return the failure that an error of the SDK ends a command with."""
    return _kind(error)(describe(error))


def describe(error: genai.WinMLError) -> str:
    """Say what went wrong in plain words, the code at the end."""
    message = _INNER_CALL.sub("", error.native_message or "").replace(_CPU_CALL, _CPU_OPTION)
    if error.hresult == codes.INSUFFICIENT_BUFFER and message:
        message = f"{message.partition('; ')[0]}; shorten the prompt or give a larger --context-length"
    if not message:  # the text of the error is "0x...: description [context]"
        message = str(error).partition(": ")[2].removesuffix(f" [{error.context}]")
    if error.context and not _CALL.fullmatch(error.context) and os.path.basename(error.context) not in message:
        message = f"{error.context}: {message}"
    return f"{terminal.without_orders(message)} (0x{error.hresult:08X})"


def _kind(error: genai.WinMLError) -> type[click.ClickException]:
    if error.hresult in _MODEL_ERRORS:
        return ModelFailure
    if _ENGINE_CALL.match(error.context):
        return EngineFailure
    if error.hresult == codes.NOT_SUPPORTED:
        return ModelFailure
    if error.hresult in _USAGE_ERRORS:
        return ModelFailure if error.context.startswith("IWinML") else UsageFailure
    return EngineFailure
