"""What an output parser knows about the model's output before it comes (genai §3.5, 3.8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .continuation import ReasoningTags
from .tool_dialects import ToolDialect


@dataclass(frozen=True, slots=True)
class OutputSyntax:
    """How a model marks the parts of its output, after one particular prompt."""

    reasoning: ReasoningTags | None = None
    """The marks around reasoning."""
    starts_in_reasoning: bool = False
    """The prompt ends inside the reasoning."""
    is_continuation: bool = False
    """The prompt ends inside a text, so blanks at the start of the output belong to it."""
    dialect: ToolDialect | None = None
    """How tool calls look; None when there must be none."""
    frames: tuple[str, ...] = ()
    """Marks that are no text, whether there are tool calls or not."""
    tools: tuple[tuple[str, str], ...] = ()
    """Names of the tools, and the JSON schemas of their parameters."""
    stops: tuple[str, ...] = ()
    """Texts that end the turn."""
    has_channels: bool = False
    """The output is in channels: analysis, commentary, final."""

    def schemas(self) -> Mapping[str, Any]:
        """The tools' schemas by name."""
        return {name: json.loads(schema) for name, schema in self.tools}
