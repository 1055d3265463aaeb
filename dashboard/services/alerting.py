"""Alerts, limits and the journal of decisions, ready to be read aloud."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from alerts.models import AlertState
from dashboard.services.keys import QueueKey, Row, concerns
from dashboard.services.say import UNKNOWN, ago, decimal, duration, instant, rate

#: From the loudest to the quietest; PagerDuty's words and Prometheus' customs together.
SEVERITIES = ("critical", "page", "error", "warning", "ticket", "info", "none")
#: An alert that always fires, so that its silence is noticed outside; here it only shows that rules run.
WATCHDOG = "watchdog"
_OUTCOMES = {
    "applied": "",
    "dry_run": " (dry run: nothing was changed)",
    "proposed": " (proposed: it waits for approval)",
}
_NOT_SHOWN = ("alertname", "severity", "broker", "queue", "subscriber", "tenant")


@dataclass(frozen=True, slots=True)
class AlertCard:
    """One alert that is pending or firing."""

    title: str
    severity: str
    firing: bool
    state: str
    since: str
    summary: str
    about: str
    value: str
    queue: QueueKey | None
    runbook: str = ""
    threshold: str = UNKNOWN
    fingerprint: str = ""
    renewed: bool = False  # it says what is the case now; else what was when its state last changed


@dataclass(frozen=True, slots=True)
class LimitCard:
    """One limit that is in force now."""

    queue: str
    tenant: str
    limit: str
    expires: str
    reason: str
    rule: str
    action: str = ""  # by which it is revoked


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that a rule or a policy did, with its place on the time axis."""

    at: datetime
    when: str
    what: str
    why: str
    kind: str  # alert, resolved, action
    about: str = ""  # of an action: what was done, and to whom


def alert_cards(
    states: Iterable[Row],
    changes: Iterable[Row],
    keys: Sequence[QueueKey],
    now: datetime,
    figures: Callable[[Row], tuple[str, str]] | None = None,
) -> tuple[AlertCard, ...]:
    """Every alert that is pending or firing: firing first, then the loudest, then the oldest.

    ``states`` are rows of ``alert_states``; ``changes`` (``alert_transitions``) give since when it fires; ``figures``
    say a row's value and threshold, as numbers without a unit where nobody does.
    """
    began = firing_since(changes)
    ranked = []
    for row in states:
        state = AlertState(row["state"])
        if state is AlertState.INACTIVE or is_watchdog(row):
            continue
        since = (began.get(row["fingerprint"]) if state.is_firing else None) or row["since"]
        card = alert_card(row, state, since, keys, now)
        if figures is not None:
            value, threshold = figures(row)
            card = replace(card, value=value, threshold=threshold)
        ranked.append((not card.firing, severity_rank(card.severity), since, card.title, card))
    return tuple(entry[-1] for entry in sorted(ranked, key=lambda entry: entry[:-1]))


def renewed(states: Iterable[Row], said: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Rows of ``alert_states``, which tell what an alert said when its state last changed, with what those that fire
    say now: their annotations by fingerprint, as the alert process has them."""
    found = []
    for row in states:
        notes = said.get(row["fingerprint"])
        if notes is not None and AlertState(row["state"]).is_firing:
            inputs = dict(row.get("inputs") or {}) | {name: notes[name] for name in ("threshold",) if name in notes}
            now = {"annotations": notes, "value": number_of(notes, "value"), "inputs": inputs, "renewed": True}
            row = {**row, **now}
        found.append(row)
    return found


def firing_since(changes: Iterable[Row]) -> dict[str, datetime]:
    """Since when each alert that ever fired does, or did when it last fired, by its fingerprint."""
    return {
        row["fingerprint"]: row["at"]
        for row in sorted(changes, key=lambda row: row["at"])
        if row["to_state"] == AlertState.FIRING and row["from_state"] != AlertState.KEEP_FIRING
    }


def alert_card(row: Row, state: AlertState, since: datetime, keys: Sequence[QueueKey], now: datetime) -> AlertCard:
    """A row of ``alert_states``, which is in ``state`` ``since`` then, of whichever of ``keys`` it is about."""
    labels, notes = row["labels"], row.get("annotations") or {}
    where = [f"{name} {labels[name]}" for name in ("broker", "queue", "subscriber", "tenant") if labels.get(name)]
    rest = [f"{name} {value}" for name, value in sorted(labels.items()) if name not in _NOT_SHOWN and value]
    return AlertCard(
        title=row["rule"],
        severity=labels.get("severity", "") or "warning",
        firing=state.is_firing,
        state="firing" if state.is_firing else "pending",
        since=f"since {instant(since, now)} ({ago(since, now)})",
        summary=notes.get("summary") or notes.get("description") or row.get("reason") or "",
        about=" · ".join(where + rest),
        value=decimal(row.get("value")),
        queue=next((key for key in keys if concerns(labels, key)), None),
        runbook=notes.get("runbook_url", ""),
        threshold=decimal(number_of(dict(row.get("inputs") or {}), "threshold")),
        fingerprint=row["fingerprint"],
        renewed=row.get("renewed", False),
    )


def number_of(inputs: Mapping[str, str | None] | None, name: str) -> float | None:
    """The number that a row of ``alert_states`` has under ``name``, if it has one."""
    try:
        found = float((inputs or {}).get(name) or "nan")
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def is_watchdog(row: Row) -> bool:
    """Whether this is the alert that fires always."""
    return str(row["rule"]).lower() == WATCHDOG


def severity_rank(severity: str) -> int:
    """The place of a severity, 0 the loudest; an unheard-of one ranks as a warning."""
    severity = severity.lower()
    return SEVERITIES.index(severity if severity in SEVERITIES else "warning")


def limit_cards(limits: Iterable[Row], now: datetime) -> tuple[LimitCard, ...]:
    """The limits in force at ``now``, the soonest to expire first; an expired one is not in force."""
    rows = [row for row in limits if row["valid_until"] is None or row["valid_until"] > now]
    rows.sort(key=lambda row: (row["valid_until"] is None, row["valid_until"], row["queue"], row["tenant"] or ""))
    return tuple(
        LimitCard(
            queue=row["queue"],
            tenant=row["tenant"] or "all tenants",
            limit=rate(row["rate"]),
            expires="no expiry" if row["valid_until"] is None else f"expires in {_left(row['valid_until'] - now)}",
            reason=row["reason"],
            rule=row.get("rule") or "",
            action=row.get("action_id") or "",
        )
        for row in rows
    )


def happenings(changes: Iterable[Row], actions: Iterable[Row], now: datetime, limit: int = 12) -> tuple[Happening, ...]:
    """What alerts and actions did, the newest first; pending alerts and repeated decisions are left out."""
    found = [*_alert_happenings(changes, now), *_action_happenings(actions, now)]
    return tuple(sorted(found, key=lambda happening: happening.at, reverse=True)[:limit])


def in_short(events: Iterable[Happening], most: int = 12) -> tuple[Happening, ...]:
    """``events`` for a list: the steps that a limit took in a row, one way, are one."""
    found: list[Happening] = []
    for _, group in groupby(events, key=lambda one: one.about or one):
        newest, *before = group
        if before:
            steps = f"{newest.why}; the last of {len(before) + 1} steps since {before[-1].when}"
            newest = replace(newest, why=steps)
        found.append(newest)
    return tuple(found[:most])


def _alert_happenings(changes: Iterable[Row], now: datetime) -> Iterable[Happening]:
    for row in changes:
        before, after = AlertState(row["from_state"]), AlertState(row["to_state"])
        if before.is_firing == after.is_firing or is_watchdog(row):
            continue
        tenant = row["labels"].get("tenant")
        name = row["rule"] + (f" · {tenant}" if tenant else "")
        yield Happening(
            row["at"],
            f"{instant(row['at'], now, seconds=True)}",
            f"{name} {'fires' if after.is_firing else 'is resolved'}",
            row["reason"],
            "alert" if after.is_firing else "resolved",
        )


def _action_happenings(actions: Iterable[Row], now: datetime) -> Iterable[Happening]:
    last: dict[tuple[str, str | None], tuple[str, float | None]] = {}
    for row in sorted(actions, key=lambda row: row["at"]):
        subject = (row["queue"], row["tenant"])
        decided = (row["decision"], row["after"])
        if row["decision"] in ("hold", "skip") or last.get(subject) == decided:
            continue
        last[subject] = decided
        if row["decision"] == "receipt":
            at = f"{instant(row['at'], now, seconds=True)}"
            yield Happening(row["at"], at, f"receipt of {row['tenant']}'s limit", row["reason"], "action")
            continue
        limit = "no limit" if row["after"] is None else rate(row["after"])
        trial = _OUTCOMES.get(row["outcome"], f" ({row['outcome']})")
        yield Happening(
            row["at"],
            f"{instant(row['at'], now, seconds=True)}",
            f"{row['decision']} {row['tenant'] or 'all tenants'} → {limit}{trial}",
            row["reason"],
            "action",
            f"{row['decision']} {row['queue']} {row['tenant']}",
        )


def _left(span: timedelta) -> str:
    return duration(max(1, round(span.total_seconds()))) if span else UNKNOWN
