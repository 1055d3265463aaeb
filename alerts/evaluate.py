"""From an expression to the alerts of its rule: rows, labels, data time, staleness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from alerts.models import RuleEvaluation, fingerprint
from alerts.rules.expression import ENGINE_VIEWS, VALUE
from alerts.rules.model import NoData, Rule
from alerts.state import NOTHING, Row, RuleError, Tracked, Transition, resume, step
from lake.clock import ZERO
from lake.errors import SojournError, first_line
from lake.views import below

Query = Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the visible data reaches.

    ``as_of`` is the newest event in gold, ``watermark`` the instant up to which nothing is missing: the same, or the
    newest sample where all events are in and the queues are simply idle. ``stale``: the wall clock has left it behind.
    Unless ``complete``, the newest is read before what came earlier: levels, such as a backlog, are unknown.
    ``reached`` is the watermark on our own clock, on which ``for`` is counted; None = the watermark itself.
    """

    as_of: datetime | None
    watermark: datetime | None
    stale: bool
    complete: bool = True
    reached: datetime | None = None


@dataclass(frozen=True, slots=True)
class RuleMemory:
    """What is remembered of a rule: its alerts, and the data time at which they were last evaluated."""

    alerts: Mapping[str, Tracked] = field(default_factory=dict)
    evaluated_to: datetime | None = None
    interrupted: bool = False  # read from the store, or met with stale data, and not evaluated since


@dataclass(frozen=True, slots=True)
class Outcome:
    """One evaluation: what it says to the outside, what to remember, and what changed."""

    evaluation: RuleEvaluation
    memory: RuleMemory
    transitions: tuple[Transition, ...] = ()
    rewritten: bool = False  # more of the memory changed than the transitions tell


class Identities:
    """Label sets seen before, with their fingerprints: computing one for each row and round would cost the most."""

    MOST = 200_000

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, ...], tuple[dict[str, str], str]] = {}

    def of(self, names: Sequence[str], values: tuple[str | None, ...], rule: Rule) -> tuple[dict[str, str], str]:
        """The labels of a row, and their fingerprint; null and empty columns are absent, the rule's labels win."""
        if (known := self._known.get(values)) is not None:
            return known
        labels = {name: value for name, value in zip(names, values, strict=True) if value}
        labels = {**labels, **rule.labels, "alertname": rule.name}
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[values] = labels, fingerprint(labels)
        return self._known[values]


def evaluate(
    rule: Rule, memory: RuleMemory, query: Query, freshness: Freshness, now: datetime, identities: Identities
) -> Outcome:
    """Evaluate ``rule`` at wall clock ``now``. A failure changes no state; stale data follow the rule's ``no_data``.

    Whatever is raised, by the query or by what it returned, is the error of this rule: no other must suffer from it.
    """
    data_rule = reads_lake(rule)
    stale = data_rule and freshness.stale
    try:
        time = _evaluation_time(rule, memory, freshness, now) if data_rule and not stale else now
        if stale and rule.no_data is NoData.KEEP:
            return _outcome(rule, replace(memory, interrupted=True), freshness, now, stale=True)
        if rewritten := memory.interrupted or stale:
            gap = time - memory.evaluated_to if memory.evaluated_to is not None else ZERO
            memory = replace(memory, alerts=_resumed(rule, memory.alerts, gap, told=stale), interrupted=False)
        if not stale:
            rows = rows_of(query(rule.expr), rule, identities)
            keep = not freshness.complete and reads_levels(rule)
            alerts, transitions = step(memory.alerts, rows, rule, time, keep_firing=keep)
        elif rule.no_data is NoData.OK:
            alerts, transitions = step(memory.alerts, [], rule, time)
        else:
            alerts, transitions = _step_no_data(rule, memory.alerts, time)
    except SojournError as error:
        return _outcome(rule, memory, freshness, now, stale=stale, error=str(error))
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        return _outcome(rule, memory, freshness, now, stale=stale, error=what)
    remembered = RuleMemory(alerts, time, interrupted=stale)
    outcome = _outcome(rule, remembered, freshness, now, stale=stale, transitions=transitions)
    return replace(outcome, rewritten=rewritten and bool(alerts))


def reads_lake(rule: Rule) -> bool:
    """Whether the rule looks at data that can grow stale."""
    return not rule.tables <= ENGINE_VIEWS.keys()


def reads_levels(rule: Rule) -> bool:
    """Whether the rule looks at levels, which are unknown while history is incomplete."""
    return "stage_history" in below(rule.tables)[1]


def rows_of(table: pa.Table, rule: Rule, identities: Identities) -> list[Row]:
    """The alerts in ``table``: text columns are labels, ``value`` is the number, other columns feed the annotations."""
    names = [column.lower() for column in table.column_names]
    if VALUE not in names:
        raise RuleError("the expression returned no column named value")
    label_at = [i for i, field_ in enumerate(table.schema) if _is_text(field_.type) and names[i] != VALUE]
    extra_at = [i for i in range(len(names)) if i not in label_at and names[i] != VALUE]
    values = _numbers(table.column(names.index(VALUE)))
    label_names = [names[i] for i in label_at]
    labels = _transposed([table.column(i).to_pylist() for i in label_at], table.num_rows)
    extras = _transposed([_plain(names[i], table.column(i)) for i in extra_at], table.num_rows)
    extra_names = [names[i] for i in extra_at]
    rows = []
    for value, label_values, extra in zip(values, labels, extras, strict=True):
        known, identity = identities.of(label_names, label_values, rule)
        more = dict(zip(extra_names, extra, strict=True)) if extra else NOTHING
        rows.append(Row(known, identity, value, more))
    return rows


def _is_text(type_: pa.DataType) -> bool:
    return bool(
        types.is_string(type_)
        or types.is_large_string(type_)
        or types.is_string_view(type_)
        or types.is_dictionary(type_)
    )


def _plain(name: str, column: pa.ChunkedArray) -> list[Any]:
    """What templates can reckon with: decimals, which SQL makes of literals and sums, as floats."""
    try:
        return list((column.cast(pa.float64()) if types.is_decimal(column.type) else column).to_pylist())
    except (OverflowError, ValueError) as error:  # infinity, and other instants that no calendar has
        raise RuleError(f"column {name} cannot be read: {error}") from error


def _numbers(column: pa.ChunkedArray) -> list[float | None]:
    if not is_number(column.type) and not types.is_null(column.type):
        raise RuleError(f"value must be a number, but is {column.type}")
    numbers = [None if value is None else float(value) for value in column.to_pylist()]
    return [None if number is not None and math.isnan(number) else number for number in numbers]


def is_number(type_: pa.DataType) -> bool:
    """Whether a column of this type can be a ``value``."""
    return any(one(type_) for one in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean))


def _transposed(columns: Sequence[Sequence[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    if not columns:
        return [()] * count
    return zip(*columns, strict=True)


def _evaluation_time(rule: Rule, memory: RuleMemory, freshness: Freshness, now: datetime) -> datetime:
    """min(now − query_offset, watermark), but never before the last one: late data do not turn time back."""
    time = min(now - rule.query_offset, freshness.reached or freshness.watermark or now)
    return max(time, memory.evaluated_to) if memory.evaluated_to and not memory.interrupted else time


def _resumed(rule: Rule, alerts: Mapping[str, Tracked], gap: timedelta, *, told: bool) -> dict[str, Tracked]:
    """``alerts`` after ``gap`` without good data; where that is ``told``, the alert that says so goes on meanwhile."""
    resumed = resume(alerts, gap)
    mine = _no_data_row(rule).fingerprint
    return resumed | {mine: alerts[mine]} if told and mine in alerts else resumed


def _no_data_row(rule: Rule) -> Row:
    labels = {**rule.labels, "alertname": rule.name, "no_data": "true"}
    return Row(labels, fingerprint(labels), None)


def _step_no_data(
    rule: Rule, alerts: Mapping[str, Tracked], time: datetime
) -> tuple[dict[str, Tracked], list[Transition]]:
    """``no_data: alert``: everything stays as it was, beside one alert that says that data are missing."""
    row = _no_data_row(rule)
    mine = {key: tracked for key, tracked in alerts.items() if key == row.fingerprint}
    changed, transitions = step(mine, [row], rule, time)
    return {**alerts, **changed}, transitions


def _outcome(
    rule: Rule,
    memory: RuleMemory,
    freshness: Freshness,
    now: datetime,
    *,
    stale: bool,
    error: str | None = None,
    transitions: Iterable[Transition] = (),
) -> Outcome:
    evaluation = RuleEvaluation(
        rule=rule.name,
        group=rule.group,
        actions=rule.actions,
        evaluated_at=now,
        data_as_of=freshness.as_of,
        ok=error is None,
        stale=stale,
        error=error,
        alerts=tuple(tracked.alert for tracked in memory.alerts.values()),
    )
    return Outcome(evaluation, memory, tuple(transitions))


#: A rule without any alert, and with a ``for`` of at least so many intervals of the engine's, waits for the next.
PATIENT = 10


def is_due(rule: Rule, last: datetime | None, now: datetime, patience: timedelta | None = None) -> bool:
    """Whether a rule with an ``interval`` of its own, or left alone for ``patience``, may be evaluated again; without
    either it always may."""
    every = rule.interval or patience
    return every is None or last is None or now - last >= every - timedelta(milliseconds=1)


def patience_with(rule: Rule, memory: RuleMemory, interval: timedelta) -> timedelta | None:
    """For how long (the engine's ``interval``) new data may wait for a rule; None: not at all.

    A rule that has to match for long before it fires is looked at once an interval, as Prometheus looks at all of
    them, while nothing matches. As soon as something does, each commit counts: what is pending and what fires is
    stepped as ever, and a match that nobody saw was shorter than an interval.
    """
    return interval if rule.hold >= PATIENT * interval and not memory.alerts and not rule.actions else None
