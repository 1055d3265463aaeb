"""Why an alert fires: what its rule compares, beside what it saw when the alert last changed its state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from alerts.models import AlertState
from alerts.rules.model import RuleEntry
from dashboard.services import noisy
from dashboard.services.alerting import number_of
from dashboard.services.keys import Row
from dashboard.services.overview import Fact
from dashboard.services.say import UNKNOWN, decimal, duration, instant, messages, percent
from lake.definitions import Definitions
from lake.views import VIEWS

#: What a rule's own summary makes of its value says what it is measured in.
_SAID_AS = re.compile(r"\bvalue\s*\|\s*(humanize_duration|humanize_percentage|messages)\b")
_SAY = {"humanize_duration": duration, "humanize_percentage": percent, "messages": messages}
_COMPARED: dict[type[exp.Binary], str] = {
    exp.GT: "above",
    exp.GTE: "at or above",
    exp.LT: "below",
    exp.LTE: "at or below",
    exp.EQ: "at",
}
#: The same, read from the other side.
_TURNED: dict[type[exp.Binary], type[exp.Binary]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the conditions that all held: as SQL, what is known of its sides, and what a column alone stands for."""

    says: str
    saw: str
    means: str = ""


@dataclass(frozen=True, slots=True)
class Because:
    """Value and threshold, the conditions of the rule, and what else its row said (name, figure)."""

    facts: tuple[Fact, ...] = ()
    conditions: tuple[Condition, ...] = ()
    besides: tuple[tuple[str, str], ...] = ()


def because(
    state: Row, rule: RuleEntry | None, definitions: Definitions, now: datetime, changes: Iterable[Row] = ()
) -> Because:
    """Of the row ``state`` of ``alert_states``, as of when it last fired by ``changes`` (``alert_transitions``), else
    of its last change. ``rule`` is its rule as the files have it now, None where they do not.

    What a rule does not select is not known of it later.
    """
    fired = max((row for row in changes if _fires(row, state)), key=lambda row: row["at"], default=None)
    when = "when its state last changed"
    if fired is not None:
        state, when = (
            {**state, "value": fired["value"], "inputs": fired.get("inputs"), "since": fired["at"]},
            "when it fired",
        )
    value, inputs = state.get("value"), dict(state.get("inputs") or {})
    labels: Mapping[str, str] = state.get("labels") or {}
    unit = _unit(rule)
    compared = None if rule is None else _compared(rule.expr, tuple(sorted(_parameters(rule, definitions).items())))
    threshold, how = _threshold(inputs, compared)
    at = f"{when}, {instant(state.get('since'), now, seconds=True)}"
    facts = (Fact("Value", said(value, unit), at), Fact("Threshold", said(threshold, unit), how))
    known: dict[exp.Expression, tuple[str, object]] = {}
    conditions = () if compared is None else compared.conditions
    for node, name in () if compared is None else compared.selected.items():
        one = value if name == "value" else inputs.get(name, labels.get(name))
        if one is not None:
            known[node] = name, one
    told = tuple(
        Condition(one.says, _of_flag(one.node, known, inputs) or _saw(one.node, known, unit), one.means)
        for one in conditions
    )
    used = {known[part][0] for one in conditions for part in _parts(one.node, known) if part in known}
    left = tuple((name, figure(name, one)) for name, one in inputs.items() if name not in (*used, "threshold"))
    return Because(facts, told, left)


def _fires(row: Row, state: Row) -> bool:
    """Whether ``row`` tells that the alert in ``state`` began to fire."""
    before, after = AlertState(row["from_state"]), AlertState(row["to_state"])
    return row["fingerprint"] == state["fingerprint"] and after.is_firing and not before.is_firing


def value_and_threshold(state: Row, rule: RuleEntry | None, definitions: Definitions) -> tuple[str, str]:
    """The same two figures alone."""
    unit = _unit(rule)
    compared = None if rule is None else _compared(rule.expr, tuple(sorted(_parameters(rule, definitions).items())))
    return said(state.get("value"), unit), said(_threshold(dict(state.get("inputs") or {}), compared)[0], unit)


def sayer(rule: RuleEntry | None) -> Callable[[float | None], str]:
    """How values of ``rule`` are said."""
    unit = _unit(rule)
    return lambda value: said(value, unit)


def said(value: float | None, unit: str = "") -> str:
    """``value`` in the unit in which a rule's summary says it."""
    if value is None:
        return UNKNOWN
    return _SAY[unit](value) if unit else decimal(value)


def figure(name: str, told: object) -> str:
    """What a column ``name`` held, as people read it; its name tells its unit."""
    if told is None:
        return UNKNOWN
    try:
        number = float(str(told))
    except ValueError:
        return str(told)
    return duration(number) if name.endswith("_seconds") else decimal(number)


@dataclass(frozen=True, slots=True)
class _Asked:
    node: exp.Expression
    says: str
    means: str


@dataclass(frozen=True, slots=True)
class _Compared:
    """A rule's expression, read: its columns by what they are made of, its conditions, its threshold where it is one
    number."""

    selected: Mapping[exp.Expression, str]
    conditions: tuple[_Asked, ...]
    threshold: float | None


def _parameters(rule: RuleEntry, definitions: Definitions) -> dict[str, float]:
    lake = {"target_seconds": definitions.target_seconds, "window_seconds": float(definitions.window_seconds)}
    return {**lake, **rule.thresholds}


@lru_cache(maxsize=256)
def _compared(expr: str, parameters: tuple[tuple[str, float], ...]) -> _Compared | None:
    """The outermost SELECT of ``expr`` with its parameters filled in; None where it is none that can be read."""
    try:
        query = sqlglot.parse_one(expr, read="spark")
    except SqlglotError:
        return None
    if not isinstance(query, exp.Select):
        return None
    values = dict(parameters)
    query = query.transform(
        lambda node: (
            exp.Literal.number(f"{values[node.name]:.15g}")
            if isinstance(node, exp.Placeholder) and node.name in values
            else node
        )
    )
    selected: dict[exp.Expression, str] = {}
    threshold = None
    for column in query.expressions:
        name, made_of = column.alias_or_name.lower(), column.unalias()
        if isinstance(made_of, exp.Literal):
            threshold = float(made_of.name) if name == "threshold" and made_of.is_number else threshold
        else:
            selected.setdefault(made_of, name)
    views = [VIEWS[table.name] for table in query.find_all(exp.Table) if table.name in VIEWS]
    defined = {column.name: column.description.replace("`", "") for view in views for column in view.columns}
    conditions: list[Any] = []
    for clause in (query.args.get("where"), query.args.get("having")):
        if clause is not None:
            whole = clause.this
            conditions.extend(whole.flatten() if isinstance(whole, exp.And) else [whole])
    asked = (_Asked(one, _text(one), defined.get(one.name, "") if _is_alone(one) else "") for one in conditions)
    return _Compared(selected, tuple(asked), threshold)


def _is_alone(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column)


def _text(node: exp.Expression) -> str:
    """A condition as people read it: without the short names of the views that it joins, unless it needs them."""
    bare = node.copy()
    tables: dict[str, set[str]] = {}
    for column in bare.find_all(exp.Column):
        tables.setdefault(column.name, set()).add(column.table)
    for column in bare.find_all(exp.Column):
        if len(tables[column.name]) == 1:
            column.set("table", None)
    return bare.sql(dialect="spark")


def _threshold(inputs: Mapping[str, str | None], compared: _Compared | None) -> tuple[float | None, str]:
    """What the value was held against, and how that is known."""
    if (found := number_of(inputs, "threshold")) is not None:
        return found, "the rule's own, at that time"
    if compared is None:
        return None, ""
    if compared.threshold is not None:
        return compared.threshold, "as the rule file has it now"
    value = next((node for node, name in compared.selected.items() if name == "value"), None)
    for node in (one.node for one in compared.conditions):
        if not isinstance(node, exp.Binary) or type(node) not in _COMPARED:
            continue
        for mine, other, kind in (
            (node.this, node.expression, type(node)),
            (node.expression, node.this, _turned(node)),
        ):
            if mine == value and isinstance(other, exp.Literal) and other.is_number:
                return float(other.name), f"it fires {_COMPARED[kind]} that"
    return None, ""


def _turned(node: exp.Binary) -> type[exp.Binary]:
    return _TURNED[type(node)]


def _parts(node: exp.Expression, known: Mapping[exp.Expression, object]) -> Iterator[exp.Expression]:
    """Of a condition what is known, as large as it can be, and the columns of which nothing is."""
    if node in known or isinstance(node, exp.Column):
        yield node
        return
    for child in node.iter_expressions():
        yield from _parts(child, known)


def _is_settled(node: exp.Expression) -> bool:
    """Whether who knows that a condition held knows all of it: that something is so, is one text or number, or null."""
    if isinstance(node, exp.Not):
        return _is_settled(node.this)
    return (
        _is_alone(node)
        or isinstance(node, exp.Is)
        or (isinstance(node, exp.EQ) and isinstance(node.expression, exp.Literal))
    )


def _of_flag(node: exp.Expression, known: Mapping[exp.Expression, tuple[str, object]], inputs: Row) -> str:
    """What the row said of somebody whom one flag calls noisy; empty of other conditions."""
    if not _is_alone(node) or node.name != "noisy":
        return ""
    value = next((told for part, (name, told) in known.items() if name == "value" and part.name == "share"), None)
    return noisy.when_it_fired(value if isinstance(value, float) else None, inputs)


def _saw(node: exp.Expression, known: Mapping[exp.Expression, tuple[str, object]], unit: str) -> str:
    """What was seen of a condition that held."""
    if not any(part in known for part in _parts(node, known)) and _is_settled(node):
        return "it was so"
    told, unknown = [], []
    for part in dict.fromkeys(_parts(node, known)):
        if part not in known:
            unknown.append(part.name)
            continue
        name, value = known[part]
        shown = said(value, unit) if name == "value" and isinstance(value, float) else figure(name, value)
        told.append(f"{_text(part) if name == 'value' else name} {shown}")
    if unknown:
        lead = "it was so; " if not told else ""
        told.append(f"{lead}{UNKNOWN}, as the rule does not select it: {', '.join(dict.fromkeys(unknown))}")
    return "; ".join(told)


def _unit(rule: RuleEntry | None) -> str:
    texts = () if rule is None else rule.annotations.values()
    return next((found[1] for text in texts if (found := _SAID_AS.search(text))), "")
