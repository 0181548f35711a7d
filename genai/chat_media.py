"""Media in a chat prompt (genai §9.2): which tensor belongs to which content part, and the segments of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from winml_lite import SequenceSegmentLayout, Tensor

from .chat_results import ChatMediaBinding
from .checks import instance_of
from .conversation_checks import IMAGE, image_places, unsupported
from .conversation_result import ConversationFormatResult
from .media_marks import Place
from .messages import ChatCompletionRequest
from .segments import TextGenerationSegment
from .tokenizer import Tokenizer

EncodedMedia: TypeAlias = tuple[Tensor, SequenceSegmentLayout]
"""What an encoder returns."""


def bound_media(request: ChatCompletionRequest, bindings: Iterable[ChatMediaBinding]) -> dict[Place, Tensor]:
    """Return the tensor of each place.

    ValueError for a place that is bound twice, is not there, or holds no plain image, and for an image without a
    binding where there are bindings.
    """
    media: dict[Place, Tensor] = {}
    for binding in bindings:
        instance_of(binding, ChatMediaBinding, "an element of bindings")
        place = binding.message_index, binding.content_part_index
        _check_place(request, place)
        if place in media:
            raise ValueError(f"part {place[1]} of message {place[0]} is bound twice")
        media[place] = binding.tensor
    for message, part in image_places(request) if media else ():
        if (message, part) not in media:
            raise ValueError(f"part {part} of message {message} is an image without a binding")
    return media


def _check_place(request: ChatCompletionRequest, place: Place) -> None:
    message_index, part_index = place
    if message_index >= len(request.messages):
        raise ValueError(f"there is no message {message_index}: the request has {len(request.messages)}")
    parts = request.messages[message_index].content_parts
    if part_index >= len(parts):
        raise ValueError(f"there is no part {part_index} of message {message_index}: it has {len(parts)} content parts")
    part = parts[part_index]
    if part.type != IMAGE:
        raise ValueError(f"part {part_index} of message {message_index} is of type {part.type!r}, not {IMAGE!r}")
    if part.text is not None or part.json_value is not None:
        raise ValueError(f"part {part_index} of message {message_index} is an image and has text or json_value, too")


def format_with_images(tokenizer: Tokenizer, request: ChatCompletionRequest) -> ConversationFormatResult:
    """Format a request that has images; else like `Tokenizer.format_conversation`."""
    from .conversation import format_conversation  # loads the template engine

    return format_conversation(tokenizer.underlying_object, request, tokenizer, takes_images=True)


def media_segments(
    formatted: ConversationFormatResult, encoded: Callable[[Place], EncodedMedia]
) -> list[TextGenerationSegment]:
    """Return the prompt with what `encoded` gives for each place of media."""
    first, *others = formatted.token_runs
    if not formatted.token_runs[-1]:
        unsupported("the prompt ends with an image, which says nothing about the next token; add text after it")
    segments = [TextGenerationSegment.from_tokens(first)] if first else []
    for place, run in zip(formatted.media_places, others, strict=True):
        segments.append(TextGenerationSegment.from_embeddings(*encoded(place)))
        if run:
            segments.append(TextGenerationSegment.from_tokens(run))
    return segments
