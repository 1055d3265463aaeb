"""Templates fill texts in, and nothing that somebody writes into one costs more than that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.rules.sandbox import LONGEST_TEMPLATE, LONGEST_TEXT
from alerts.rules.templates import compiled, render
from lake.errors import UserError
from tests.support.deep import examples

LABELS = {"queue": "orders", "long": "a" * 5_000}
ROW: dict[str, Any] = {
    "backlog": 1_234_567,
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "many": list(range(100_000)),
    "text": "b" * 1_000_000,
    "absent": None,
}


def filled(text: str) -> str:
    return render(text, LABELS, 4.0, ROW)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ labels.queue | upper }} holds {{ row.backlog | humanize }}", "ORDERS holds 1.235M"),
        (
            "{{ 1 | messages }}, {{ value | messages }}, {{ row.backlog | messages }}",
            "1 message, 4 messages, 1,234,567 messages",
        ),
        ("{{ row.absent | messages }}", "an unknown number of messages"),
        ("{{ 'much' if value > 3 else 'little' }}", "much"),
        ("{% if row.absent is none %}nothing{% else %}{{ row.absent }}{% endif %}", "nothing"),
        ("{% for name, value in labels.items() %}{{ name }}={{ value[:6] }} {% endfor %}", "queue=orders long=aaaaaa "),
        ("{% for a in [1, 2, 3] if a > 1 %}{{ loop.index }}:{{ a }} {% endfor %}", "1:2 2:3 "),
        ("{% set big = row.backlog / 1000 %}{{ big | round(1) }} k", "1234.6 k"),
        ("{{ labels.queue ~ '/' ~ value }}", "orders/4.0"),
        ("{{ (value + 1) * 2 - 3 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 0.5 > 1 }}", "7.0 3 3 True"),
        ("{{ labels.absent }}|{{ labels.absent | default('-') }}|{{ row.at.isoformat()[:10] }}", "|-|2026-01-01"),
        ("{{ ['b', 'a'] | sort | join(', ') }} {{ 'a-b' | replace('-', '+') }}", "a, b a+b"),
        ("{{ row.at - row.at }}", "0:00:00"),
        ("{{ labels.long | truncate(5) }}", "aaaa…"),
    ],
)
def test_a_template_fills_in_labels_value_and_row(template: str, text: str) -> None:
    assert filled(template) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 10**9 }}",
        "{{ ('x',) * 10**9 }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 1 | round(-1000000000) }}",
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
        "{% set a = 99 %}" + "{% set a = a * a %}" * 60 + "{{ a }}",
        "{{ labels.long | replace('a', labels.long) }}",
        "{{ labels.long | join(labels.long) }}",
        "{{ row.text }}",
        "{{ row.text ~ row.text }}",
        "{{ row.many }}",
        "{% for a in row.text %}{% for b in row.text %}{% for c in row.text %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in row.many %}{{ loop.length }}{% endfor %}",
        "{% for a in labels.long %}{{ labels.long }}{% endfor %}",
        "{{ row.many['x' * 10**9] }}",
    ],
)
def test_what_would_cost_too_much_says_so_in_the_text(template: str) -> None:
    text = filled(template)
    assert text.startswith("<error expanding template: ")
    assert len(text) < 1000


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ lables.queue }}", "line 1: unknown name 'lables', did you mean 'labels'?"),
        ("\n{{ labels.queue | humanise }}", "line 2: unknown filter 'humanise', did you mean 'humanize'?"),
        ("{{ value is numbr }}", "unknown test 'numbr', did you mean 'number'?|No test named 'numbr'"),
        ("{{ 'x' | center(10**9) }}", "unknown filter 'center'"),
        ("{{ 'x' | indent(10**9) }}", "unknown filter 'indent'"),
        ("{{ '%d' | format(1) }}", "unknown filter 'format'"),
        ("{{ range(10**9) }}", "only the methods"),
        ("{{ 'x'.ljust(10**9) }}", "only the methods"),
        ("{{ '{:>1000000000}'.format(1) }}", "only the methods"),
        ("{% set f = labels.items %}{{ f() }}", "only the methods"),
        ("{{ labels.get(*labels) }}", "only the methods"),
        ("{{ lipsum() }}", "only the methods|unknown name"),
        ("{{ cycler }}", "unknown name 'cycler'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}", "'macro' is not allowed|only the methods"),
        ("{% include 'x' %}", "'include' is not allowed"),
        ("{% import 'x' as x %}", "'import' is not allowed"),
        ("{% block x %}{% endblock %}", "'block' is not allowed"),
        ("{% filter upper %}x{% endfilter %}", "'filterblock' is not allowed"),
        ("{% for a in [[]] recursive %}{{ loop(a) }}{% endfor %}", "recursive|only the methods"),
        ("{% set labels.queue = 1 %}", "set takes one name"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion|nested"),
        ("{{ " + "+".join("1" * 3000) + " }}", "nested too deeply"),
        ("{{ " + "-" * 4000 + "1 }}", "recursion|nested"),
        ("{% if 1 %}" * 300 + "{% endif %}" * 300, "recursion|nested"),
        ("{% for a in [1] %}" * 25 + "{% endfor %}" * 25, "nested"),
        ("x" * (LONGEST_TEMPLATE + 1) + "{{ value }}", "at most 8192 characters"),
        ("{{ $labels.queue }}", "line 1: unexpected char"),
    ],
)
def test_what_is_more_than_filling_in_is_refused_when_rules_are_read(template: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        compiled(template)
    assert "\n" not in str(caught.value).replace(template[:80], "")
    assert len(str(caught.value)) < 700


def test_a_text_can_always_be_stored_and_sent() -> None:
    assert render("{{ '\\ud800' }}!", {}, None, {}) == "?!"


_PIECES = (
    *("labels", "value", "row", ".queue", ".text", ".many", ".get(", ".items(", "~", "+", "*", "**", "//"),
    *("%", "|", "join", "replace(", "round(", "upper", "sort", "(", ")", "[", "]", ",", "'x'", "9"),
    *("99999999", "~value", "*9", "**9", "|string", "|length", "in", "is", "not", "if", "else", "and", "or"),
    *("defined", "none", "loop", "[0]", "[:5]"),
)
_STATEMENTS = (
    *("{% for a in row.text %}", "{% for b in labels %}", "{% endfor %}", "{% if value %}", "{% endif %}"),
    *("{% set c = ", "%}", "{{", "}}", "{% else %}", "a", "b", "c"),
)
_FRAGMENTS = (*_PIECES, *_STATEMENTS, *(f"{{{{ {piece} }}}}" for piece in _PIECES))


@settings(max_examples=examples(100, 400), deadline=None)
@given(st.lists(st.sampled_from(_FRAGMENTS), max_size=25))
def test_whatever_is_written_renders_to_a_short_text(pieces: list[str]) -> None:
    assert len(filled(" ".join(pieces))) <= LONGEST_TEXT
