"""The life of an alert as a pure function: inactive → pending → firing → (keep firing) → inactive.

The semantics are Prometheus' (``rules/alerting.go``). Time is data time, handed in; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from alerts.durations import format_duration
from alerts.models import AlertInstance, AlertState
from alerts.rules.model import Rule
from alerts.rules.templates import Annotations
from lake.errors import SojournError

ZERO = timedelta(0)


class RuleError(SojournError):
    """An evaluation that cannot be used; it is the error of one rule, whose alerts stay as they were."""


#: No columns.
NOTHING: Mapping[str, object] = MappingProxyType({})


class Row(NamedTuple):
    """One row that an expression returned: one alert. ``extra`` are the columns that are neither label nor value.

    A tuple: there may be a million in a round, and a frozen dataclass takes three times as long to make.
    """

    labels: Mapping[str, str]
    fingerprint: str
    value: float | None
    extra: Mapping[str, object] = NOTHING


@dataclass(frozen=True, slots=True)
class Tracked:
    """What is remembered of one alert between two evaluations.

    ``kept_since``: when the expression stopped matching a firing alert. ``paused``: time during which nobody
    evaluated, which therefore does not count towards ``for``.
    """

    alert: AlertInstance
    kept_since: datetime | None = None
    paused: timedelta = ZERO


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of an alert's state, with its reason; ``alert`` is as it is afterwards."""

    alert: AlertInstance
    from_state: AlertState
    to_state: AlertState
    reason: str


def removed(alert: AlertInstance) -> Transition:
    """What becomes of ``alert`` where its rule is no longer there."""
    over = replace(alert, state=AlertState.INACTIVE)
    return Transition(over, alert.state, AlertState.INACTIVE, "the rule is no longer there")


Alerts = Mapping[str, Tracked]  # by fingerprint
#: Fingerprints of what a rule's ``resolve`` says is over; asked when something may be.
Resolved = Callable[[], Container[str]]


def step(
    previous: Alerts,
    rows: Sequence[Row],
    rule: Rule,
    now: datetime,
    *,
    keep_firing: bool = False,
    resolved: Resolved | None = None,
) -> tuple[dict[str, Tracked], list[Transition]]:
    """The alerts of ``rule`` after an evaluation at ``now`` returned ``rows``, and what changed.

    With ``keep_firing`` the lack of a row says nothing: what fires stays as it is. With ``resolved`` it is not enough.

    Raises RuleError, and changes nothing, if two rows have the same labels or there are more than the rule's limit.
    """
    check_limit(rule, len(rows))
    current: dict[str, Tracked] = {}
    transitions: list[Transition] = []
    for row in rows:
        if row.fingerprint in current:
            raise twice(row)
        known = previous.get(row.fingerprint)
        tracked, transition = matched(known, row, rule, now) if known else appeared(row, rule, now)
        current[row.fingerprint] = tracked
        if transition:
            transitions.append(transition)
    for fingerprint, known in previous.items():
        if fingerprint in current:
            continue
        kept, transition = unmatched(known, rule, now, keep_firing=keep_firing, resolved=resolved)
        if kept:
            current[fingerprint] = kept
        if transition:
            transitions.append(transition)
    return current, transitions


def check_limit(rule: Rule, rows: int) -> None:
    """RuleError for more ``rows`` than the rule may return."""
    if rule.limit and rows > rule.limit:
        raise RuleError(f"{rows} alerts are more than the limit of {rule.limit}: its alerts are kept as they were")


def twice(row: Row) -> RuleError:
    """Another row had the labels of ``row``."""
    return RuleError(f"two rows have the same labels {dict(row.labels)}: the value is not a label")


def resume(previous: Alerts, gap: timedelta) -> dict[str, Tracked]:
    """``previous`` after ``gap`` without evaluations: downtime counts towards neither of a rule's durations.

    A ``gap`` below zero means that the clock was set back meanwhile: it lengthens none of them either.
    """
    if gap == ZERO:
        return dict(previous)
    return {
        fingerprint: replace(
            tracked,
            paused=tracked.paused + gap if tracked.alert.state is AlertState.PENDING else tracked.paused,
            kept_since=tracked.kept_since + gap if tracked.kept_since else None,
        )
        for fingerprint, tracked in previous.items()
    }


def appeared(row: Row, rule: Rule, now: datetime) -> tuple[Tracked, Transition]:
    """A new alert."""
    fires = rule.hold <= ZERO
    alert = AlertInstance(
        rule=rule.name,
        group=rule.group,
        labels=row.labels,
        annotations=Annotations(rule.annotations, row.labels, row.value, row.extra),
        value=row.value,
        state=AlertState.FIRING if fires else AlertState.PENDING,
        active_since=now,
        fired_at=now if fires else None,
        fingerprint=row.fingerprint,
        inputs=row.extra,
    )
    reason = "the expression matches" if fires else f"the expression matches; fires after {format_duration(rule.hold)}"
    return Tracked(alert), Transition(alert, AlertState.INACTIVE, alert.state, reason)


def matched(known: Tracked, row: Row, rule: Rule, now: datetime) -> tuple[Tracked, Transition | None]:
    """A ``known`` alert whose ``row`` is still there, and what changed."""
    before = known.alert
    state, fired_at, reason = before.state, before.fired_at, ""
    if state is AlertState.PENDING and now - before.active_since - known.paused >= rule.hold:
        state, fired_at, reason = AlertState.FIRING, now, f"the expression has matched for {format_duration(rule.hold)}"
    elif state is AlertState.KEEP_FIRING:
        state, reason = AlertState.FIRING, "the expression matches again"
    alert = AlertInstance(
        rule=before.rule,
        group=before.group,
        labels=before.labels,
        annotations=Annotations(rule.annotations, row.labels, row.value, row.extra),
        value=row.value,
        state=state,
        active_since=before.active_since,
        fired_at=fired_at,
        fingerprint=before.fingerprint,
        inputs=row.extra,
    )
    transition = Transition(alert, before.state, state, reason) if state is not before.state else None
    return Tracked(alert, None, known.paused), transition


def unmatched(
    known: Tracked, rule: Rule, now: datetime, *, keep_firing: bool = False, resolved: Resolved | None = None
) -> tuple[Tracked | None, Transition | None]:
    """A ``known`` alert that has no row any more, None if it is gone, and what changed: see :func:`step`."""
    before = known.alert
    if keep_firing and before.state.is_firing:
        return known, None
    if resolved is None or not before.state.is_firing or before.fingerprint in resolved():
        return _unmatched(known, rule, now)
    if before.state is AlertState.KEEP_FIRING:
        return known, None
    kept = replace(known, alert=replace(before, state=AlertState.KEEP_FIRING), kept_since=now)
    reason = "the expression no longer matches; kept firing until `resolve` does"
    return kept, Transition(kept.alert, before.state, AlertState.KEEP_FIRING, reason)


def pending_since(alerts: Iterable[Tracked]) -> datetime | None:
    """Since when the one of ``alerts`` has matched that will be the first to fire, pauses taken out; None: no one."""
    pending = (one for one in alerts if one.alert.state is AlertState.PENDING)
    return min((one.alert.active_since + one.paused for one in pending), default=None)


def _unmatched(known: Tracked, rule: Rule, now: datetime) -> tuple[Tracked | None, Transition | None]:
    before = known.alert
    reason = "the expression no longer matches"
    if before.state.is_firing and rule.keep_firing_for > ZERO:
        kept_since = known.kept_since or now
        if now - kept_since < rule.keep_firing_for:
            kept = replace(known, alert=replace(before, state=AlertState.KEEP_FIRING), kept_since=kept_since)
            if before.state is AlertState.KEEP_FIRING:
                return kept, None
            reason += f"; kept firing for {format_duration(rule.keep_firing_for)}"
            return kept, Transition(kept.alert, before.state, AlertState.KEEP_FIRING, reason)
        reason = f"the expression has not matched for {format_duration(rule.keep_firing_for)}"
    return None, Transition(replace(before, state=AlertState.INACTIVE), before.state, AlertState.INACTIVE, reason)
