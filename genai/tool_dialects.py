"""Which model family writes its tool calls how: a table, read from the top (genai §3.8).

A family is recognised by marks that its chat template holds; a template of no known family gets the last row, plain
JSON at the start of the answer. How calls are read is in `call_readers.py`, `brace_calls.py` and `python_calls.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .brace_calls import BraceCalls
from .call_readers import CallReader, JsonCalls, NamedCalls, ParameterCalls
from .grammar import CallSyntax
from .python_calls import PythonCalls


@dataclass(frozen=True, slots=True)
class ToolDialect:
    """How one family writes its calls."""

    name: str
    template_marks: tuple[str, ...]
    """Texts that a template of the family holds, all of them."""
    reader: CallReader
    opener: str = ""
    """The mark before a call."""
    closer: str = ""
    """The mark after a call; a malformed call is skipped up to it."""
    frames: tuple[str, ...] = ()
    """Other marks around calls and content, which are no text."""
    always_frames: bool = False
    """The frames stand around plain answers too."""
    has_channels: bool = False
    """Calls are messages of a channel, which `output_channels.py` reads."""
    is_bare: bool = False
    """A call may stand at the start of the answer without an opener."""
    written: CallSyntax | None = None
    """How calls must be written, for a grammar; None for what no grammar of JSON can say."""

    @property
    def call_frame(self) -> str | None:
        """The mark before all calls, if the family has one."""
        return self.frames[0] if self.frames and not self.always_frames else None


_JSON_START, _JSON_MIDDLE = '{"name": "', '", "arguments": '


def _json_list(opener: str, closer: str = "") -> CallSyntax:
    return CallSyntax(f"{opener}[", _JSON_START, _JSON_MIDDLE, "}", ", ", f"]{closer}")


DIALECTS = (
    ToolDialect("harmony", ("<|channel|>", "<|message|>"), JsonCalls(), has_channels=True),
    ToolDialect(
        "deepseek-r1",  # also V3
        ("<｜tool▁call▁begin｜>", "```json"),
        NamedCalls("\n```json\n", r"(?:\w+<｜tool▁sep｜>)?(?P<name>.+)", end="```"),
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        written=CallSyntax(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n",
            "\n```<｜tool▁call▁end｜>",
            "\n",
            "<｜tool▁calls▁end｜>",
        ),
    ),
    ToolDialect(
        "deepseek-v3.1",
        ("<｜tool▁call▁begin｜>",),
        NamedCalls("<｜tool▁sep｜>"),
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        written=CallSyntax(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "",
            "<｜tool▁calls▁end｜>",
        ),
    ),
    ToolDialect(
        "kimi-k2",
        ("<|tool_call_argument_begin|>",),
        NamedCalls("<|tool_call_argument_begin|>", r"(?P<id>(?:functions\.)?(?P<name>.+?)(?::\d+)?)"),
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    ToolDialect(
        "minimax-m2",
        ("<minimax:tool_call>",),
        ParameterCalls('">', '<parameter name="', '">', "", "</parameter>", "</invoke>"),
        '<invoke name="',
        frames=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    ToolDialect(
        "seed-oss",
        ("<seed:tool_call>",),
        ParameterCalls(">", "<parameter=", ">", "", "</parameter>", "</function>"),
        "<function=",
        frames=("<seed:tool_call>", "</seed:tool_call>"),
    ),
    ToolDialect(
        "qwen3-coder",
        ("<tool_call>", "<function=", "<parameter="),
        ParameterCalls(">", "<parameter=", ">", "", "</parameter>", "</function>"),
        "<function=",
        frames=("<tool_call>", "</tool_call>"),
    ),
    ToolDialect(
        "glm-4.5",
        ("<arg_key>", "<arg_value>"),
        ParameterCalls("", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"),
        "<tool_call>",
    ),
    ToolDialect("gemma-4", ("<|tool_call>call:",), BraceCalls('<|"|>'), "<|tool_call>call:", "<tool_call|>"),
    ToolDialect(
        "functiongemma",
        ("<start_function_call>call:",),
        BraceCalls("<escape>"),
        "<start_function_call>call:",
        "<end_function_call>",
    ),
    ToolDialect(
        "command-r7b",
        ("<|START_ACTION|>",),
        JsonCalls(("tool_name",), ("parameters",), ("tool_call_id",)),
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        always_frames=True,
        written=CallSyntax(
            "<|START_ACTION|>[\n    ",
            '{"tool_name": "',
            '", "parameters": ',
            "}",
            ",\n    ",
            "\n]<|END_ACTION|>",
        ),
    ),
    ToolDialect(
        "mistral-v11",  # and later
        ("[TOOL_CALLS]", "[ARGS]"),
        NamedCalls("[ARGS]", r"(?P<name>.+?)\s*(?:\[CALL_ID\]\s*(?P<id>.+))?"),
        "[TOOL_CALLS]",
        written=CallSyntax("", "[TOOL_CALLS]", "[ARGS]", "", "", ""),
    ),
    ToolDialect(
        "mistral", ("[TOOL_CALLS]",), JsonCalls(ids=("id",)), "[TOOL_CALLS]", written=_json_list("[TOOL_CALLS]")
    ),
    ToolDialect(
        "phi-4-mini",
        ("<|tool_call|>", "<|/tool_call|>"),
        JsonCalls(),
        "<|tool_call|>",
        "<|/tool_call|>",
        written=CallSyntax("", "<|tool_call|>" + _JSON_START, _JSON_MIDDLE, "}<|/tool_call|>", "", ""),
    ),
    ToolDialect("granite", ("<|tool_call|>",), JsonCalls(), "<|tool_call|>", written=_json_list("<|tool_call|>")),
    ToolDialect(
        "nemotron",
        ("<TOOLCALL>",),
        JsonCalls(),
        "<TOOLCALL>",
        "</TOOLCALL>",
        written=_json_list("<TOOLCALL>", "</TOOLCALL>"),
    ),
    ToolDialect("lfm2", ("<|tool_call_start|>",), PythonCalls(), "<|tool_call_start|>", "<|tool_call_end|>"),
    ToolDialect(
        "apriel",
        ("<tool_calls>[",),
        JsonCalls(ids=("id",)),
        "<tool_calls>",
        "</tool_calls>",
        written=_json_list("<tool_calls>", "</tool_calls>"),
    ),
    ToolDialect(
        "hermes",  # and Qwen
        ("<tool_call>",),
        JsonCalls(),
        "<tool_call>",
        "</tool_call>",
        written=CallSyntax("", "<tool_call>\n" + _JSON_START, _JSON_MIDDLE, "}\n</tool_call>", "\n", ""),
    ),
    ToolDialect(
        "functionary-v3.1",
        ("<function=",),
        NamedCalls(">"),
        "<function=",
        "</function>",
        written=CallSyntax("", "<function=", ">", "</function>", "", ""),
    ),
    ToolDialect(
        "llama-3",
        ("<|start_header_id|>",),
        JsonCalls(),
        "<|python_tag|>",
        is_bare=True,
        written=CallSyntax("", _JSON_START, '", "parameters": ', "}", "; ", ""),
    ),
    ToolDialect(
        "json", (), JsonCalls(), is_bare=True, written=CallSyntax("", _JSON_START, _JSON_MIDDLE, "}", "\n", "")
    ),
)


def find_dialect(template_source: str) -> ToolDialect:
    """Return the first row whose marks are all in the template."""
    return next(row for row in DIALECTS if all(mark in template_source for mark in row.template_marks))
