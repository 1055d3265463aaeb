"""From an expression to the alerts of its rule: rows, labels, data time, staleness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial

import pyarrow as pa

from alerts.answer import Answer, Identities
from alerts.columns import Columns, Instances, advance
from alerts.models import RuleEvaluation, fingerprint
from alerts.rules.expression import ENGINE_VIEWS
from alerts.rules.model import NoData, Rule
from alerts.state import Row, Tracked, Transition, pending_since, resume, step
from lake.clock import ZERO
from lake.errors import SojournError, first_line
from lake.views import below

Query = Callable[[str], pa.Table]
#: The same, where rows may come as columns at hand.
Asked = Callable[[str], pa.Table | Answer]


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

    @property
    def instances(self) -> Instances:
        """Its alerts, for readers."""
        return Instances(self.alerts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One evaluation: what it says to the outside, what to remember, and what changed."""

    evaluation: RuleEvaluation
    memory: RuleMemory
    transitions: tuple[Transition, ...] = ()
    rewritten: bool = False  # more of the memory changed than the transitions tell


def evaluate(
    rule: Rule, memory: RuleMemory, query: Asked, freshness: Freshness, now: datetime, identities: Identities
) -> Outcome:
    """Evaluate ``rule``, whose expressions ``query`` answers, at wall clock ``now``.

    A failure changes no state; stale data follow the rule's ``no_data``.

    Whatever is raised, by the query or by what it returned, is the error of this rule: no other must suffer from it.
    """
    data_rule = reads_lake(rule)
    stale = data_rule and freshness.stale
    alerts: Mapping[str, Tracked]
    try:
        time = _evaluation_time(rule, memory, freshness, now) if data_rule and not stale else now
        if stale and rule.no_data is NoData.KEEP:
            return _outcome(rule, replace(memory, interrupted=True), freshness, now, stale=True)
        if rewritten := memory.interrupted or stale:
            gap = time - memory.evaluated_to if memory.evaluated_to is not None else ZERO
            memory = replace(memory, alerts=_resumed(rule, memory.alerts, gap, told=stale), interrupted=False)
        if not stale:
            answer, keep = identities.answer(query(rule.expr)), not freshness.complete and reads_levels(rule)
            over = None if rule.resolve is None else cache(partial(_resolved, rule, rule.resolve, query))
            alerts, transitions = advance(
                memory.alerts, answer, rule, identities, time, keep_firing=keep, resolved=over
            )
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
    rewritten = rewritten and bool(alerts)
    return _outcome(rule, remembered, freshness, now, stale=stale, transitions=transitions, rewritten=rewritten)


def _resolved(rule: Rule, expr: str, query: Asked) -> frozenset[str]:
    """What ``expr`` says is over, by fingerprint."""
    known = Identities()
    return frozenset(row.fingerprint for row in known.answer(query(expr)).rows(rule, known))


def reads_lake(rule: Rule) -> bool:
    """Whether the rule looks at data that can grow stale."""
    return not rule.tables <= ENGINE_VIEWS.keys()


def reads_levels(rule: Rule) -> bool:
    """Whether the rule looks at levels, which are unknown while history is incomplete."""
    return "stage_history" in below(rule.tables)[1]


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
    rewritten: bool = False,
) -> Outcome:
    alerts = memory.alerts
    since = alerts.pending_since if isinstance(alerts, Columns) else pending_since(alerts.values())
    evaluation = RuleEvaluation(
        rule=rule.name,
        group=rule.group,
        actions=rule.actions,
        evaluated_at=now,
        data_as_of=freshness.as_of,
        ok=error is None,
        stale=stale,
        error=error,
        alerts=memory.instances,
        pending_since=since,
    )
    return Outcome(evaluation, memory, tuple(transitions), rewritten)


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
