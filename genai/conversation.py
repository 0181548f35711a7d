"""Formatting a conversation: request to prompt text to token ids (genai §3.2 to 3.5).

The order: check the request, map it for the template with control spellings broken, render, see that every field was
used, work out what opens the assistant's turn, tokenize. Not here: the template engine (`template.py`), spellings
(`spellings.py`), the data that templates see (`template_data.py`), tokenizing (`prompt_encoding.py`).

Control spellings stay as they are in assistant messages (templates look for their marks there) and in template values
(they are the program's own).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from winml_lite import WinMLError

from .continuation import added_text, continued_text, marked_end, resolve_continuation
from .control_tokens import ControlTokenCheck
from .conversation_checks import check_request, image_places, invalid, parse_json, unsupported
from .conversation_output import output_constraint, output_syntax, parser_capabilities, preserved_tokens
from .conversation_result import (
    ConversationFormatResult,
    ConversationGenerationPromptMetadata,
    ConversationImplementationIdentity,
)
from .media_marks import MediaMarks
from .messages import (
    ChatCompletionContinuation,
    ChatCompletionEnableThinking,
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionTemplateValue,
    ChatCompletionTemplateValueType,
    ChatRole,
)
from .prompt_encoding import encode_prompt
from .spellings import unused_character
from .template import ChatTemplate
from .template_data import Break, MessageTexts, TemplateData
from .vocabulary import TextVocabulary, TokenizerCore

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

IDENTITY = ConversationImplementationIdentity("genai.jinja", 1)
_OWN_NAMES = frozenset(
    "messages tools add_generation_prompt bos_token eos_token enable_thinking "
    "strftime_now raise_exception namespace range dict".split()
)
_PROBE = "probe of the end of a turn"


def format_conversation(
    core: TokenizerCore, request: ChatCompletionRequest, tokenizer: Tokenizer, *, takes_images: bool = False
) -> ConversationFormatResult:
    """Format `request`; see `Tokenizer.format_conversation` for the errors. With `takes_images` the content may have
    parts of type "image"; where they come is in the result.
    """
    check_request(request, takes_images)
    continuation = resolve_continuation(request)
    name = core.template_name(has_tools=bool(request.tools))
    template = core.template(name)
    _check_template(template, request)
    texts = [template.source, *_texts(request)]
    marker = unused_character(texts)
    end = unused_character([*texts, marker])
    marks = MediaMarks(unused_character([*texts, marker, end]), image_places(request))
    spellings = core.control_spellings
    untrusted: set[str] = set()

    def broken(text: str) -> str:
        untrusted.add(text)
        return spellings.broken(text, marker)

    def encoded(change: Break) -> list[int]:
        text = _Rendering(core, template, request, change, end, marks).prompt(continuation)[0]
        return [token_id for run in encode_prompt(core.vocabulary, marks.split(text)[0], marker) for token_id in run]

    text, opening = _Rendering(core, template, request, broken, end, marks).prompt(continuation)
    shown, places = marks.split(text)
    runs = encode_prompt(core.vocabulary, shown, marker)
    token_ids = [token_id for run in runs for token_id in run]
    if any(spellings.inert(text) != text for text in untrusted):
        ControlTokenCheck(core.vocabulary, spellings, encoded, broken, token_ids).run(request.messages)
    generation_prompt = opening.replace(marker, "")
    stops = _additional_stops(core, template, name)
    syntax = output_syntax(request, template.source, core.vocabulary, generation_prompt, continuation)
    constraint, triggers = output_constraint(request, syntax, core.vocabulary)
    return ConversationFormatResult(
        token_ids=tuple(token_ids),
        implementation_identity=IDENTITY,
        generation_prompt=generation_prompt,
        generation_prompt_metadata=ConversationGenerationPromptMetadata(opening != "", continuation),
        additional_stops=stops,
        parser_capabilities=parser_capabilities(syntax, request),
        constraint=constraint,
        constraint_triggers=triggers,
        preserved_tokens=preserved_tokens(syntax, template.source, core.vocabulary),
        tokenizer=tokenizer,
        text="".join(shown).replace(marker, ""),
        output_syntax=replace(syntax, stops=stops),
        token_runs=tuple(map(tuple, runs)),
        media_places=places,
    )


class _Rendering:
    """One request against one template."""

    def __init__(
        self,
        core: TokenizerCore,
        template: ChatTemplate,
        request: ChatCompletionRequest,
        broken: Break,
        end: str,
        marks: MediaMarks,
    ) -> None:
        """`end` is a character that is in no text of the request."""
        self._template = template
        self._request = request
        self._broken = broken
        self._end = end
        self._marks = marks
        self._variables = _variables(core.vocabulary, request)
        self._now = _clock(request)

    def prompt(self, continuation: ChatCompletionContinuation) -> tuple[str, str]:
        """Return the whole prompt, and the end of it that belongs to the assistant's turn."""
        messages = self._request.messages
        if continuation == ChatCompletionContinuation.NONE:
            closed = self._render(messages, False)
            if not self._request.add_generation_prompt:
                return closed, ""
            prompt = self._render(messages, True)
            return prompt, added_text(closed, prompt)
        closed = self._render(messages[:-1], False)
        written = self._up_to_end_of_text(continuation)
        if written is not None:
            return written, added_text(closed, written)
        opened = self._render(messages[:-1], True)
        opening = added_text(closed, opened)
        partial = continued_text(messages[-1], opening, self._template.source)
        return opened + partial, opening + partial

    def _up_to_end_of_text(self, continuation: ChatCompletionContinuation) -> str | None:
        """The conversation as the template itself writes it, cut where the last message's text ends.

        None when the template does not show that text: then the message has to be written for it.
        """
        *earlier, last = self._request.messages
        if last.reasoning_content is not None and "reasoning_content" not in self._template.mentioned:
            return None
        try:
            text = self._render((*earlier, marked_end(last, continuation, self._end)), False)
        except WinMLError:
            return None
        before, found, _ = text.rpartition(self._end)
        return before if found else None

    def _render(self, messages: Sequence[ChatCompletionMessage], add_generation_prompt: bool) -> str:
        texts = MessageTexts(self._broken, self._marks)
        if not self._marks.places:
            return self._render_once(messages, add_generation_prompt, texts)
        try:
            text = self._render_once(messages, add_generation_prompt, replace(texts, joins_parts=True))
            self._marks.split(text)
            return text
        except WinMLError as error:
            try:  # a template that takes only parts
                return self._render_once(messages, add_generation_prompt, texts)
            except WinMLError:
                raise error from None

    def _render_once(
        self, messages: Sequence[ChatCompletionMessage], add_generation_prompt: bool, texts: MessageTexts
    ) -> str:
        data = TemplateData(messages, self._request.tools, texts)
        variables = {
            **self._variables,
            "messages": data.messages,
            "tools": data.tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            text = self._template.render(variables, self._now)
        except WinMLError as error:
            if messages:
                place = f"{error.context}, at message {data.last_read} (role {messages[data.last_read].role!r})"
                raise type(error)(error.hresult, place, error.native_message) from error
            raise
        data.check_read()
        return text


def check_tools_shown(template: ChatTemplate) -> None:
    """Refuse tools (0x80070032) for a template that never looks at them."""
    if "tools" not in template.variables:
        mend = "use a model that was trained to call tools, or give a template that shows them"
        unsupported(f"tools are given, but the chat template shows none: {mend}")


def _check_template(template: ChatTemplate, request: ChatCompletionRequest) -> None:
    """Refuse what the template never looks at."""
    if request.tools:
        check_tools_shown(template)
    thinking = request.enable_thinking
    if thinking != ChatCompletionEnableThinking.MODEL_DEFAULT and "enable_thinking" not in template.variables:
        unsupported(f"enable_thinking is {thinking.name}, but the chat template does not use it; use MODEL_DEFAULT")
    for index, message in enumerate(request.messages):
        if message.reasoning_content is not None and "reasoning_content" not in template.mentioned:
            is_continued = request.continuation and index == len(request.messages) - 1
            if not is_continued:
                unsupported(f"message {index} has reasoning_content, but the chat template does not use it")
    for value in request.template_values:
        if value.name not in _OWN_NAMES and value.name not in template.variables:
            unsupported(f"the chat template does not use the template value {value.name!r}")


def _variables(vocabulary: TextVocabulary, request: ChatCompletionRequest) -> dict[str, Any]:
    """The template's variables, but for those that differ between two renderings."""
    variables: dict[str, Any] = {"bos_token": "", "eos_token": "", **vocabulary.named_tokens}
    taken = _OWN_NAMES | variables.keys()
    if request.enable_thinking != ChatCompletionEnableThinking.MODEL_DEFAULT:
        variables["enable_thinking"] = request.enable_thinking == ChatCompletionEnableThinking.ENABLED
    for value in request.template_values:
        if value.name in taken:
            invalid(f"the template value {value.name!r} redefines a variable of the formatter, or is given twice")
        taken |= {value.name}
        variables[value.name] = _template_value(value)
    return variables


def _template_value(value: ChatCompletionTemplateValue) -> Any:
    if value.type == ChatCompletionTemplateValueType.JSON:
        return parse_json(str(value.value), f"the template value {value.name!r}")
    return value.value


def _clock(request: ChatCompletionRequest) -> Callable[[], datetime]:
    """The clock that the template sees."""
    seconds, minutes = request.timestamp_unix_seconds, request.time_zone_offset_minutes
    try:
        zone = timezone(timedelta(minutes=minutes or 0))
        if seconds is not None:
            moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(zone)
            return lambda: moment
    except (OverflowError, ValueError) as error:
        invalid(f"timestamp_unix_seconds or time_zone_offset_minutes is out of range: {error}")
    if minutes is not None:
        return lambda: datetime.now(zone)
    return lambda: datetime.now().astimezone()


def _texts(request: ChatCompletionRequest) -> list[str]:
    """Every text of a request that a template may see."""
    texts: list[str | None] = []
    for message in request.messages:
        texts += [message.role, message.content, message.reasoning_content, message.tool_call_id, message.tool_name]
        texts += [part.text for part in message.content_parts]
        for call in message.tool_calls:
            texts += [call.id, call.name, call.arguments_json, call.model_native_id]
    for tool in request.tools:
        texts += [tool.name, tool.description, tool.type, tool.parameters_json]
    texts += [str(value.value) for value in request.template_values]
    return [text for text in texts if text]


def _additional_stops(core: TokenizerCore, template: ChatTemplate, name: str) -> tuple[str, ...]:
    """The mark that ends a turn in this template, unless it is one of the EOS tokens."""
    if name not in core.stops:
        core.stops[name] = _find_stops(core.vocabulary, template)
    return core.stops[name]


def _find_stops(vocabulary: TextVocabulary, template: ChatTemplate) -> tuple[str, ...]:
    request = ChatCompletionRequest((ChatCompletionMessage(ChatRole.USER, _PROBE),), timestamp_unix_seconds=0)
    turns = [{"role": ChatRole.USER, "content": "?"}, {"role": ChatRole.ASSISTANT, "content": _PROBE}]
    variables = {**_variables(vocabulary, request), "messages": turns, "tools": None, "add_generation_prompt": False}
    try:
        text = template.render(variables, _clock(request))
    except WinMLError:
        return ()  # a template with rules of its own about turns: nothing can be learned from it
    _, found, rest = text.rpartition(_PROBE)
    rest = rest.lstrip()
    ids = vocabulary.encode(rest, False) if found else []
    if not ids:
        return ()
    first = ids[0]
    spelling = (vocabulary.piece(first) or b"").decode("utf-8", "replace")
    if first in vocabulary.eos_token_ids:
        return ()
    if first in vocabulary.special_token_ids and rest.startswith(spelling):
        return (spelling,)
    tag = re.match(r"<[^\s<>]+>", rest)  # a mark that this vocabulary has no token for
    return (tag.group(),) if tag else ()
