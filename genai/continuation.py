"""Going on inside the last assistant message, and the marks around reasoning (genai §3.4, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .conversation_checks import IMAGE, invalid, unsupported
from .messages import ChatCompletionContinuation, ChatCompletionMessage, ChatCompletionRequest, ChatRole


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """How a model family marks its reasoning; `gap` stands between a mark and the reasoning."""

    opening: str
    closing: str
    gap: str


REASONING_TAGS = (
    ReasoningTags("<think>", "</think>", "\n"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>", ""),
    ReasoningTags("[THINK]", "[/THINK]", ""),
    ReasoningTags("<seed:think>", "</seed:think>", ""),
)


def reasoning_tags(template_source: str) -> ReasoningTags | None:
    """Return the tags that a template speaks of."""
    return next((tags for tags in REASONING_TAGS if tags.opening in template_source), None)


def resolve_continuation(request: ChatCompletionRequest) -> ChatCompletionContinuation:
    """Return NONE, CONTENT or REASONING; 0x80070057 when the last message has nothing there to go on with."""
    kinds = ChatCompletionContinuation
    wanted = request.continuation
    if wanted == kinds.NONE:
        return wanted
    last = request.messages[-1]
    if last.role != ChatRole.ASSISTANT:
        invalid(f"continuation {wanted.name} needs an assistant message at the end, not one of role {last.role!r}")
    if last.tool_calls:
        unsupported("a message with tool calls cannot be continued")
    if any(part.type == IMAGE for part in last.content_parts):
        unsupported("a message with images cannot be continued")
    content = content_text(last)
    if wanted == kinds.AUTO:
        wanted = kinds.REASONING if last.reasoning_content and not content else kinds.CONTENT
    if wanted == kinds.REASONING and (not last.reasoning_content or content):
        invalid("continuation REASONING needs a last message with reasoning_content and without content")
    if wanted == kinds.CONTENT and not content:
        invalid("continuation CONTENT needs a last message with content")
    return wanted


def content_text(message: ChatCompletionMessage) -> str:
    """The content of a message as one text."""
    return message.content or "".join(part.text or "" for part in message.content_parts)


def added_text(closed: str, opened: str) -> str:
    """What `opened` has beyond `closed`."""
    if opened.startswith(closed):
        return opened[len(closed) :]
    pairs = enumerate(zip(closed, opened, strict=False))
    return opened[next((index for index, (a, b) in pairs if a != b), len(opened)) :]


def marked_end(
    message: ChatCompletionMessage, continuation: ChatCompletionContinuation, mark: str
) -> ChatCompletionMessage:
    """Return the message with `mark` at the end of the text to go on with."""
    if continuation == ChatCompletionContinuation.REASONING:
        return replace(message, reasoning_content=f"{message.reasoning_content}{mark}")
    if message.content is not None:
        return replace(message, content=message.content + mark)
    *earlier, last = message.content_parts
    return replace(message, content_parts=(*earlier, replace(last, text=f"{last.text}{mark}")))


def continued_text(message: ChatCompletionMessage, opening: str, template_source: str) -> str:
    """Return what follows `opening`, the text that opens the assistant's turn, up to where the model goes on."""
    if "<|channel|>" in template_source:
        unsupported("a model that writes in channels cannot continue a message")
    reasoning, content = message.reasoning_content or "", content_text(message)
    tags = reasoning_tags(template_source)
    is_open = tags is not None and opening.rstrip().endswith(tags.opening)
    if not is_open and not reasoning:
        return content
    if tags is None or tags.closing in opening:
        unsupported("the chat template has no place for the reasoning_content of the last message")
    text = ("" if is_open else tags.opening + tags.gap) + reasoning
    return f"{text}{tags.gap}{tags.closing}{tags.gap * 2}{content}" if content else text
