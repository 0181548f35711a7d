"""What a formatted conversation says about the answer that is to come (genai §3.5 to 3.8).

The marks of reasoning and of tool calls, the texts that end the turn, and the constraint that the request asks for. Not
here: the prompt (`conversation.py`), the grammars themselves (`grammar.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple
from typing import TypeAlias

from .continuation import REASONING_TAGS, ReasoningTags, reasoning_tags
from .conversation_checks import parse_schema, unsupported
from .conversation_result import (
    ConversationConstraint,
    ConversationConstraintTrigger,
    ConversationConstraintTriggerType,
    ConversationParserCapabilities,
    ConversationPreservedToken,
)
from .grammar import (
    SYNTAX,
    SYNTAX_VERSION,
    CallSyntax,
    json_object_grammar,
    json_schema_grammar,
    tool_call_grammar,
)
from .messages import (
    ChatCompletionContinuation,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionToolChoice,
)
from .output_syntax import OutputSyntax
from .tool_dialects import ToolDialect, find_dialect
from .vocabulary import TextVocabulary

Constraint: TypeAlias = tuple[ConversationConstraint | None, tuple[ConversationConstraintTrigger, ...]]


def output_syntax(
    request: ChatCompletionRequest,
    template_source: str,
    vocabulary: TextVocabulary,
    opening: str,
    continuation: ChatCompletionContinuation,
) -> OutputSyntax:
    """Return how the answer will be marked; `opening` is the text that opens the assistant's turn."""
    dialect = find_dialect(template_source)
    reasoning = _reasoning(template_source, vocabulary)
    is_continuation = continuation != ChatCompletionContinuation.NONE
    if is_continuation:
        starts_in_reasoning = continuation == ChatCompletionContinuation.REASONING
    else:
        starts_in_reasoning = opening.rstrip().endswith(reasoning.opening)
    calls_tools = bool(request.tools) and request.tool_choice != ChatCompletionToolChoice.NONE
    return OutputSyntax(
        reasoning=reasoning,
        starts_in_reasoning=starts_in_reasoning,
        is_continuation=is_continuation,
        dialect=dialect if calls_tools else None,
        frames=dialect.frames if calls_tools or dialect.always_frames else (),
        tools=tuple((tool.name, tool.parameters_json) for tool in request.tools) if calls_tools else (),
        has_channels=dialect.has_channels,
    )


def parser_capabilities(syntax: OutputSyntax, request: ChatCompletionRequest) -> ConversationParserCapabilities:
    """Return what the parser of such an answer can tell apart."""
    flags = ConversationParserCapabilities
    found = flags.CONTENT
    if syntax.reasoning is not None or syntax.has_channels:
        found |= flags.REASONING
    if syntax.dialect is not None:
        found |= flags.TOOL_CALLS
        if request.parallel_tool_calls != ChatCompletionParallelToolCalls.DISABLED:
            found |= flags.PARALLEL_TOOL_CALLS
    return found


def preserved_tokens(
    syntax: OutputSyntax, template_source: str, vocabulary: TextVocabulary
) -> tuple[ConversationPreservedToken, ...]:
    """Return the marks that must stay visible in the output."""
    marks = [
        mark for tags in REASONING_TAGS if tags.opening in template_source for mark in (tags.opening, tags.closing)
    ]
    if syntax.dialect is not None:
        marks += [syntax.dialect.opener, syntax.dialect.closer]
    marks += syntax.frames
    return tuple(ConversationPreservedToken(vocabulary.find(mark), mark) for mark in dict.fromkeys(marks) if mark)


def output_constraint(request: ChatCompletionRequest, syntax: OutputSyntax, vocabulary: TextVocabulary) -> Constraint:
    """Return the grammar that the request asks for, and what switches it on; NotSupportedError where there is none."""
    formats = ChatCompletionResponseFormat
    reasoning = syntax.reasoning
    end = reasoning.closing if reasoning is not None and syntax.starts_in_reasoning else None
    if syntax.dialect is not None:
        return _tool_constraint(request, syntax, end, vocabulary)
    if request.response_format == formats.TEXT:
        return None, ()
    known = special_marks(vocabulary, end or "")
    if syntax.has_channels:
        unsupported(f"response_format {request.response_format.name} is not available for a model that writes channels")
    if request.response_format == formats.JSON_OBJECT:
        return _constraint(json_object_grammar(end, known)), ()
    schema = parse_schema(request.response_schema_json or "", "response_schema_json")
    strict = request.response_schema_strict
    return _constraint(json_schema_grammar(schema, strict=strict, reasoning_end=end, tokens=known)), ()


def _reasoning(template_source: str, vocabulary: TextVocabulary) -> ReasoningTags:
    """The tags that the template speaks of, else those that are tokens, else the commonest."""
    found = reasoning_tags(template_source)
    tokens = (tags for tags in REASONING_TAGS if vocabulary.find(tags.opening) is not None)
    return found or next(tokens, REASONING_TAGS[0])


def _constraint(grammar: str, lazy: bool = False) -> ConversationConstraint:
    return ConversationConstraint(SYNTAX, SYNTAX_VERSION, lazy, grammar)


def special_marks(vocabulary: TextVocabulary, *texts: str) -> dict[str, int]:
    """The special tokens that are spelled in `texts`: a grammar must name them by id."""
    spelled = [spelling for spelling in vocabulary.control_spellings if any(spelling in text for text in texts)]
    ids = {spelling: vocabulary.find(spelling) for spelling in spelled}
    return {spelling: token_id for spelling, token_id in ids.items() if token_id is not None}


def _tool_constraint(
    request: ChatCompletionRequest, syntax: OutputSyntax, reasoning_end: str | None, vocabulary: TextVocabulary
) -> Constraint:
    dialect = syntax.dialect
    assert dialect is not None
    choices = ChatCompletionToolChoice
    parallel = request.parallel_tool_calls != ChatCompletionParallelToolCalls.DISABLED
    if dialect.written is None:
        if request.tool_choice == choices.AUTO and parallel:
            return None, ()
        field = f"tool_choice {request.tool_choice.name}" if parallel else "parallel_tool_calls DISABLED"
        unsupported(f"{field} needs a grammar, and there is none for tool calls of the kind {dialect.name!r}")
    tools = [
        (tool.name, parse_schema(tool.parameters_json, "parameters_json"))
        for tool in request.tools
        if request.tool_choice != choices.NAMED or tool.name == request.named_tool_choice
    ]
    is_lazy = request.tool_choice == choices.AUTO
    tokens = special_marks(vocabulary, *astuple(dialect.written), reasoning_end or "")
    end = None if is_lazy else reasoning_end
    grammar = tool_call_grammar(tools, dialect.written, parallel=parallel, reasoning_end=end, tokens=tokens)
    triggers = (_trigger(syntax, dialect.written, dialect, tokens),) if is_lazy else ()
    return _constraint(grammar, is_lazy), triggers


def _trigger(
    syntax: OutputSyntax, written: CallSyntax, dialect: ToolDialect, tokens: Mapping[str, int]
) -> ConversationConstraintTrigger:
    """What the grammar of the calls begins with."""
    types = ConversationConstraintTriggerType
    begin = written.first + written.before_name
    mark = next((mark for mark in (*dialect.frames, dialect.opener) if mark and begin.startswith(mark)), None)
    if mark is None:
        # Nothing announces the call: it is one from the moment when the answer, after any reasoning, names a tool.
        names = "|".join(re.escape(written.spelled(name)) for name, _ in syntax.tools)
        before = "" if syntax.reasoning is None else rf"(?:[\s\S]*{re.escape(syntax.reasoning.closing)})?"
        pattern = rf'{before}\s*({re.escape(begin)}(?:{names})")[\s\S]*'
        return ConversationConstraintTrigger(types.FULL_PATTERN, None, pattern)
    if mark in tokens:
        return ConversationConstraintTrigger(types.TOKEN, tokens[mark], mark)
    return ConversationConstraintTrigger(types.TEXT, None, mark)
