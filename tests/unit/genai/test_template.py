"""Chat templates: the environment they expect, and the walls around hostile ones."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from genai.template import ChatTemplate, format_time
from genai.template_limits import TemplateLimits
from winml_lite import WinMLError

CLOCK = datetime(2026, 3, 5, 14, 7, 9, tzinfo=timezone(timedelta(hours=1), "CET"))
QUICK = TemplateLimits(seconds=0.2, characters=1_000_000, rendered=100_000)


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source, "test").render(variables, lambda: CLOCK)


def failure(source: str, **variables: Any) -> WinMLError:
    with pytest.raises(WinMLError) as caught:
        ChatTemplate(source, "test", QUICK).render(variables, lambda: CLOCK)
    assert caught.value.hresult == 0x8007000D
    return caught.value


def test_s_tpl_05_blocks_leave_no_blank_lines() -> None:
    assert render("{% if true %}\n  a\n{% endif %}\n  b\n") == "  a\n  b"


def test_s_tpl_05_only_the_last_newline_of_the_template_is_dropped() -> None:
    assert render("a\n\n") == "a\n"


def test_s_tpl_05_loops_can_break_and_continue() -> None:
    source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}"
    assert render(source + "{{ i }}{% endfor %}") == "023"


def test_s_tpl_05_strftime_now_uses_the_given_clock() -> None:
    assert render("{{ strftime_now('%d %b %Y') }}") == "05 Mar 2026"


def test_g41_s_tpl_05_raise_exception_surfaces_its_text() -> None:
    assert failure("{{ raise_exception('boom') }}").native_message == "boom"


def test_s_tpl_05_tojson_escapes_neither_html_nor_other_scripts() -> None:
    assert render("{{ x | tojson }}", x={"k": "é<>&'\""}) == '{"k": "é<>&\'\\""}'


def test_tojson_takes_indent_and_separators() -> None:
    assert render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"
    assert render("{{ {'a': 1} | tojson(separators=(',', ':')) }}") == '{"a":1}'


def test_the_usual_tools_of_templates_work() -> None:
    assert (
        render("{% set ns = namespace(n=1) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
        == "4"
    )
    assert render("{{ 'a,b'.split(',')[-1] ~ 1 ~ none }}") == "b1None"
    assert (
        render("{{ xs | selectattr('k', 'equalto', 2) | map(attribute='v') | join('-') }}", xs=[{"k": 2, "v": "x"}])
        == "x"
    )
    assert render("{% for k, v in d.items() %}{{ loop.index }}{{ k }}{{ v }}{% endfor %}", d={"a": 1}) == "1a1"
    assert render("{{ '%s %5.2f' % ('a', 1.5) }}{{ 7 // 2 }}{{ 'abc'[::-1] }}{{ '  x ' | trim }}") == "a  1.503cbax"
    assert render("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}") == "12"
    assert render("{% set x %}a{{ 1 }}{% endset %}{{ x | upper | replace('A', 'b') | indent(2, true) }}") == "  b1"
    assert render("{% generation %}a{% endgeneration %}b") == "ab"


def test_dict_members_may_be_named_like_methods() -> None:
    assert render("{{ d.update }}{{ d.pop }}", d={"update": 1, "pop": 2}) == "12"


def test_a_bad_template_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(WinMLError, match="line 2") as caught:
        ChatTemplate("a\n{% if %}", "my template")
    assert caught.value.hresult == 0x8007000D
    assert "my template" in str(caught.value)


def test_an_undefined_use_says_what_is_undefined() -> None:
    assert "'x' is undefined" in str(failure("{{ x.y }}"))


UNREACHABLE = "is not allowed|has no attribute|No filter named|is undefined|no loader|has no text"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ (1).bit_length() }}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({}) }}",
        "{{ messages[0].pop('a') }}",
        "{{ '{}'.format(1) }}",
        "{{ 'x'.center(9) }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ strftime_now.func }}",
        "{{ messages | attr('append') }}",
        "{{ messages | map('attr', 'append') | list }}",
        "{{ lipsum(5) }}",
        "{{ cycler }}{{ cycler('a').next() }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{{ namespace }}",
    ],
)
def test_s_tpl_04_nothing_outside_the_lists_can_be_reached(source: str) -> None:
    messages = [{"a": 1}]
    assert re.search(UNREACHABLE, str(failure(source, messages=messages)))
    assert messages == [{"a": 1}]


LIMITS = (
    "runs longer than|(makes|renders|strips) more than|is longer than|more than 4096 bits|width of more than 999|"
    "Range too big|recursion depth|cannot be compiled|indents by at most|round takes -15 to 15 digits"
)
DOUBLING = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10**9) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * 'x' }}",
        "{{ [1] * 10**9 }}",
        "{{ 10 ** (10 ** 8) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
        "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
        "{{ ('b' * 9999).join('a' * 9999) }}",
        "{{ ('a' * 9999) | join('b' * 9999) }}",
        "{{ ('a\n' * 9999) | indent(9999) }}",
        "{{ ('a' * 99999).strip('b' * 99999) }}",
        "{{ ('a' * 99999) | trim('b' * 99999) }}",
        "{{ [1] | tojson(indent=999999) }}",
        "{{ 1 | round(10**9, 'ceil') }}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set b = 'x' * 99999 %}{% set ns = namespace(x=[]) %}"
        "{% for i in range(99999) %}{% set ns.x = ns.x + [b[1:]] %}{% endfor %}",
        DOUBLING + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        DOUBLING + "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
        DOUBLING + "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
        DOUBLING + "{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
        DOUBLING + "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set x %}{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}{% endset %}",
        "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
        "{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}",
        "{% for i in [1] %}" * 40 + "{% endfor %}" * 40,
        "x" * (1 << 18),
    ],
    ids=lambda source: source[:60],
)
def test_s_tpl_04_time_and_size_are_bounded(source: str) -> None:
    assert re.search(LIMITS, str(failure(source)))


TREES = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(9) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"


@pytest.mark.parametrize(
    "expression",
    [
        "ns.x in [ns.x + [1]] * 99999",
        "([ns.x] * 99999).count(ns.x + [1])",
        "([ns.x] * 99999).index(ns.x + [1])",
        "([ns.x, ns.x + [1]] * 49999) | sort",
        "([ns.x, ns.x + [1]] * 49999) | max",
        "([ns.x] * 99999) | select('eq', ns.x + [1]) | list",
        "([ns.x] * 99999) | string",
        "'%s' % ([ns.x] * 99999,)",
    ],
)
def test_s_tpl_04_comparing_and_printing_large_values_is_bounded(expression: str) -> None:
    assert re.search(LIMITS, str(failure(TREES + "{{ " + expression + " }}")))


def test_a_failed_rendering_leaves_the_template_usable() -> None:
    template = ChatTemplate("{% if n %}{{ raise_exception('no') }}{% endif %}ok", "test")
    with pytest.raises(WinMLError):
        template.render({"n": 1}, lambda: CLOCK)
    assert template.render({"n": 0}, lambda: CLOCK) == "ok"


def test_budgets_of_threads_do_not_meet() -> None:
    limits = replace(QUICK, seconds=1000)
    template = ChatTemplate("{% for i in range(2000) %}{{ 'x' * 40 }}{% endfor %}", "test", limits)
    lengths: list[int] = []
    threads = [
        threading.Thread(target=lambda: lengths.append(len(template.render({}, lambda: CLOCK)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == [80_000] * 8


def test_variables_are_those_read_before_they_are_set() -> None:
    template = ChatTemplate("{% set a = 1 %}{{ a }}{{ b }}{% if c is defined %}{% endif %}", "test")
    assert {"b", "c"} <= template.variables
    assert "a" not in template.variables


def test_mentioned_are_attributes_and_constants() -> None:
    template = ChatTemplate("{{ m.one }}{{ m['two'] }}{{ m.get('three') }}{# four #}", "test")
    assert {"one", "two", "three"} <= template.mentioned
    assert "four" not in template.mentioned


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("%Y-%m-%d %H:%M:%S", "2026-03-05 14:07:09"),
        ("%A %a %B %b %-d %e", "Thursday Thu March Mar 5  5"),
        ("%I:%M %p %-I %j %y", "02:07 PM 2 064 26"),
        ("%F %T %D %R", "2026-03-05 14:07:09 03/05/26 14:07"),
        ("%z %Z %u %w 100%%", "+0100 CET 4 4 100%"),
        ("no directive", "no directive"),
    ],
)
def test_format_time_writes_the_c_locale_everywhere(format_: str, text: str) -> None:
    assert format_time(CLOCK, format_) == text


def test_format_time_of_midnight_without_zeros() -> None:
    assert format_time(datetime(2026, 1, 1, tzinfo=UTC), "%-H %I %p %-M") == "0 12 AM 0"


@pytest.mark.parametrize("format_", ["%Q", "%", "%-", "%5Y"])
def test_format_time_refuses_what_it_does_not_know(format_: str) -> None:
    with pytest.raises(ValueError, match="does not know"):
        format_time(CLOCK, format_)
