"""Our chat templates next to plain Jinja with the settings that templates are written for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from jinja2 import Environment
from jinja2.exceptions import TemplateError

from genai.template import ChatTemplate

pytestmark = pytest.mark.peer
CLOCK = datetime(2026, 3, 5, 14, 7, 9, tzinfo=UTC)


def raise_exception(message: str) -> None:
    raise TemplateError(message)


def plain_jinja(source: str, variables: dict[str, Any]) -> str:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": CLOCK.strftime}
    return environment.from_string(source).render(variables)


MESSAGES = [
    {"role": "system", "content": " Be kind. "},
    {"role": "user", "content": "Hi <b> & é\n"},
    {
        "role": "assistant",
        "content": "<think>\nhm\n</think>\n\nYo",
        "tool_calls": [{"function": {"arguments": {"a": [1, "é"]}}}],
    },
    {"role": "tool", "content": "3", "name": "add"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"items": {"type": "object"}, "b": None}}}]

ROLES = """{{ bos_token }}{% for m in messages -%}
[{{ m['role'] | upper }}] {{ m.content | trim }}{{ eos_token }}
{% endfor %}"""

SYSTEM_FIRST = """{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- for m in rest %}
    {%- if loop.first and system is defined %}{{ '<<SYS>>' + system + '<</SYS>>\\n' }}{% endif %}
    {{- '<|' + m.role + '|>\\n' + m.content.split('</think>')[-1].lstrip('\\n') ~ (loop.last ~ loop.index0) }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

NAMESPACES = """{% set ns = namespace(last=-1, seen=[]) %}
{% for m in messages[::-1] %}
{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = loop.revindex0 %}{% endif %}
{% set ns.seen = ns.seen + [m.role] %}
{% endfor %}
{{ ns.last }} {{ ns.seen | join(',') }} {{ ns.seen | unique | sort | list }}
{% for t in tools %}{{ t | tojson }}
{{ t | tojson(indent=4) | indent(2) }}{% endfor %}"""

MACROS = """{%- macro shown(value, depth=0) -%}
{%- if value is mapping -%}
{ {%- for k, v in value | dictsort %}{{ k }}:{{ shown(v, depth + 1) }}{{ ';' if not loop.last }}{% endfor -%} }
{%- elif value is string -%}'{{ value }}'
{%- elif value is iterable -%}[{% for v in value %}{{ shown(v, depth + 1) }}{% endfor %}]
{%- else -%}{{ value }}{%- endif -%}
{%- endmacro -%}
{% for m in messages %}{{ shown(m) }}
{% for c in m.tool_calls %}{{ shown(c.function.arguments) }}{{ c.function.arguments | tojson }}{% endfor %}
{% endfor %}{{ shown(tools) }}"""

LOOPS = """{% for m in messages if m.role != 'system' %}{% if loop.index > 2 %}{% break %}{% endif %}
  {{ loop.cycle('a', 'b') }}{{ loop.previtem.role if loop.previtem is defined }}
  {{ m.content | replace('<', '(') | length }}
{% else %}none{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}
{{ messages | map(attribute='role') | reject('in', ['tool']) | list }} {{ tools | length }}"""

VALUES = """{{ strftime_now('%d %b %Y') }} {{ '%s-%03d' % ('a', 7) }} {{ (1, 2) }} {{ [1, 'x', none, true] }}
{{ {'a': [1]} }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ 7 % 3 }} {{ -3 | abs }} {{ 2.5 | round }}
{{ '3' | int + 1 }} {{ undefined_name }} {{ 'abc' | title }} {{ 'a-b'.partition('-') }}
{{ 'abc'.startswith('ab') }} {{ x | default('d') }} {{ messages[-1].name }} {{ 'a' in 'abc' and 1 not in [2] }}
{{ messages[0].get('nope', 'no') }} {{ messages[1] == messages[1] }} {{ 'é' | tojson }}"""


@pytest.mark.parametrize("source", [ROLES, SYSTEM_FIRST, NAMESPACES, MACROS, LOOPS, VALUES])
def test_templates_render_as_in_plain_jinja(source: str) -> None:
    variables = {
        "messages": MESSAGES,
        "tools": TOOLS,
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    ours = ChatTemplate(source, "test").render(variables, lambda: CLOCK)
    assert ours == plain_jinja(source, variables)
