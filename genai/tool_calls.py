"""Answering the model's tool calls: arguments are checked, the program may refuse, the function runs, and what comes of
it becomes a text for the model.

Functions as tools are `tool_functions.py`; the rounds of a turn are `chat_turn.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypedDict

from winml_lite import NotSupportedError

from .chat_reply import ToolCall, ToolCallStatus
from .checks import index_value, instance_of
from .codes import NOT_SUPPORTED
from .messages import ChatCompletionEnableThinking, ChatCompletionTool, ChatCompletionToolChoice

if TYPE_CHECKING:
    from .tool_functions import Tool, ToolFunction

Verdict: TypeAlias = bool | str
Approve: TypeAlias = Callable[[ToolCall], Verdict | Awaitable[Verdict]]
Choice = ChatCompletionToolChoice
Status = ToolCallStatus

MAX_ROUNDS = 10
_CHOICES = {"auto": Choice.AUTO, "required": Choice.REQUIRED, "none": Choice.NONE}


class ChatFields(TypedDict, total=False):
    """Keyword arguments of a chat, for all of its turns, or of one turn."""

    tools: Iterable[ToolFunction]
    """Functions that the model may call: signature and docstring tell it how. A pair of a `ChatCompletionTool` and a
    function gives the declaration as it is.
    """
    tool_choice: str
    """`"auto"`: the model decides; `"required"`: it begins with a call; `"none"`: it only sees the tools; or the name
    of the tool that it begins with.
    """
    approve: Approve | None
    """Asked before each call: True runs it, False or a text (the reason, for the model) refuses it."""
    on_call: Callable[[ToolCall], object] | None
    """Told of each call when it is done, refused or failed."""
    on_reasoning: Callable[[str], object] | None
    """Told of the model's reasoning, piece by piece."""
    max_tool_rounds: int
    """How many times in a turn calls are answered; 10. A model that calls once more ends the turn with WinMLError
    0x80070038.
    """
    raise_tool_errors: bool
    """Whether an exception of a tool ends the turn; otherwise the model is told of it."""
    enable_thinking: bool | None
    """The switch of models that reason; None leaves it as the model has it."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The checked form of `ChatFields`."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    tool_choice: ChatCompletionToolChoice = Choice.AUTO
    named_tool: str | None = None
    approve: Approve | None = None
    on_call: Callable[[ToolCall], object] | None = None
    on_reasoning: Callable[[str], object] | None = None
    max_tool_rounds: int = MAX_ROUNDS
    raise_tool_errors: bool = False
    enable_thinking: ChatCompletionEnableThinking = ChatCompletionEnableThinking.MODEL_DEFAULT

    @property
    def calls_tools(self) -> bool:
        """Whether the model may call."""
        return bool(self.tools) and self.tool_choice is not Choice.NONE

    @property
    def declarations(self) -> tuple[ChatCompletionTool, ...]:
        """What the model is shown."""
        return tuple(tool.declaration for tool in self.tools.values())

    def after_calls(self) -> TurnSettings:
        """The settings once calls were made: a wanted call is no longer wanted."""
        if self.tool_choice is Choice.NONE:
            return self
        return replace(self, tool_choice=Choice.AUTO, named_tool=None)


def turn_settings(fields: Mapping[str, Any]) -> TurnSettings:
    """Check the fields of a chat or a turn: TypeError for wrong types, ValueError for what makes no sense."""
    tools = _tools(fields.get("tools", ()))
    choice, named = _tool_choice(fields.get("tool_choice", "auto"), tools)
    for name in ("approve", "on_call", "on_reasoning"):
        if fields.get(name) is not None and not callable(fields[name]):
            raise TypeError(f"{name} must be a function or None, not {type(fields[name]).__name__}")
    modes = ChatCompletionEnableThinking
    thinking = fields.get("enable_thinking")
    if thinking is not None:
        instance_of(thinking, bool, "enable_thinking")
    return TurnSettings(
        tools,
        choice,
        named,
        fields.get("approve"),
        fields.get("on_call"),
        fields.get("on_reasoning"),
        index_value(fields.get("max_tool_rounds", MAX_ROUNDS), "max_tool_rounds", minimum=1),
        instance_of(fields.get("raise_tool_errors", False), bool, "raise_tool_errors"),
        modes.MODEL_DEFAULT if thinking is None else modes.ENABLED if thinking else modes.DISABLED,
    )


def _tools(given: Any) -> Mapping[str, Tool]:
    if isinstance(given, tuple) and not given:
        return {}
    from .tool_functions import tools_by_name  # chats without tools need no types

    return tools_by_name(given)


def _tool_choice(given: Any, tools: Mapping[str, Tool]) -> tuple[ChatCompletionToolChoice, str | None]:
    instance_of(given, str, "tool_choice")
    if given in tools:
        return Choice.NAMED, given
    if given not in _CHOICES:
        known = ", ".join(map(repr, [*_CHOICES, *tools]))
        raise ValueError(f"tool_choice must be one of {known}, not {given!r}")
    if given == "required" and not tools:
        raise ValueError('tool_choice="required" needs tools')
    return _CHOICES[given], None


def check_no_form(settings: TurnSettings, names: Iterable[str]) -> None:
    """Refuse an answer that must keep to a form where the model may call tools."""
    for name in names if settings.calls_tools else ():
        mend = 'let the model call its tools first, then ask with tool_choice="none"'
        raise NotSupportedError(NOT_SUPPORTED, "chat", f"tools and {name} exclude each other: {mend}")


# --- one call ---------------------------------------------------------------------------------------------------------


def answer_call(settings: TurnSettings, call: ToolCall) -> ToolCall:
    """Run a pending call and return it with its result. Exceptions of the tool become results unless
    `raise_tool_errors`; those of `approve` pass.
    """
    bound = bound_arguments(settings, call)
    if isinstance(bound, ToolCall):
        return bound
    if settings.approve is not None:
        refused = refusal(call, _not_awaited(settings.approve(call), "approve"))
        if refused is not None:
            return refused
    try:
        value = _not_awaited(settings.tools[call.name].function(*bound.args, **bound.kwargs), call.name)
        return done(call, value)
    except Exception as error:
        return failed(settings, call, error)


def check_blocking(settings: TurnSettings) -> None:
    """Raise TypeError for tools that have to be awaited."""
    for tool in settings.tools.values():
        if tool.is_coroutine:
            _refuse_coroutine(tool.name)


def bound_arguments(settings: TurnSettings, call: ToolCall) -> inspect.BoundArguments | ToolCall:
    """Return the arguments for the function, or the call as INVALID."""
    if call.status is not Status.PENDING:  # its text could not be read
        return call
    tool = settings.tools.get(call.name)
    if tool is None:
        return _invalid(call, f"there is no tool {call.name!r}; the tools are {', '.join(settings.tools)}")
    try:
        return tool.bind(dict(call.arguments))
    except ValueError as error:
        return _invalid(call, f"{error}".removeprefix("."))


def _invalid(call: ToolCall, problem: str) -> ToolCall:
    return replace(call, status=Status.INVALID, result=f"Error: {problem}")


def refusal(call: ToolCall, verdict: Any) -> ToolCall | None:
    """Return the call as REFUSED unless the verdict of `approve` is True."""
    if not isinstance(verdict, bool | str):
        raise TypeError(f"approve must return True, False or a reason, not {verdict!r}")
    if verdict is True:
        return None
    reason = verdict or "the user does not allow this call"
    return replace(call, status=Status.REFUSED, result=f"Refused: {reason}")


def done(call: ToolCall, value: Any) -> ToolCall:
    """Return a call with what its function has returned; TypeError for what has no form in JSON."""
    from .tool_functions import result_text

    return replace(call, status=Status.DONE, result=result_text(value), value=value)


def failed(settings: TurnSettings, call: ToolCall, error: Exception) -> ToolCall:
    """Return the call as FAILED, or raise the error."""
    if settings.raise_tool_errors:
        raise error
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # the class may be the caller's own
        text = type(error).__name__
    return replace(call, status=Status.FAILED, result=f"Error: {text}", error=error)


def _not_awaited(value: Any, name: str) -> Any:
    if inspect.isawaitable(value):
        with suppress(AttributeError):
            value.close()  # type: ignore[attr-defined]
        _refuse_coroutine(name)
    return value


def _refuse_coroutine(name: str) -> NoReturn:
    raise TypeError(f"{name} has to be awaited: use chat.astream() or chat.asend()")
