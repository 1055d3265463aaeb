"""Who is told what, and why: pure decisions in Alertmanager's terms, each with its reason.

Source of the semantics: prometheus/alertmanager ``dispatch/`` and ``notify/dedup_stage.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from alerts.models import AlertInstance
from alerts.settings import ReceiverSettings, RouteSettings

#: A receiver and the key of one of its groups.
Group = tuple[str, str]
#: How long a message that was refused for good is not repeated as it is; doubling each time, up to the longest.
FIRST_REFUSED_PAUSE = timedelta(minutes=1)
LONGEST_REFUSED_PAUSE = timedelta(hours=1)
#: The alert that always fires, towards a dead man's switch outside; no other receiver hears of it.
WATCHDOG = "Watchdog"


class Reason(StrEnum):
    """Why a group's receiver is told, or is not."""

    FIRST = "first notification of this group"
    NEW_ALERTS = "alerts fire that it has not been told of"
    RESOLVED = "all alerts of the group are resolved"
    SOME_RESOLVED = "some alerts of the group are resolved"
    REPEAT = "nothing changed, but the repeat interval has passed"
    GROUP_WAIT = "held: waiting for more alerts of the group (group_wait)"
    GROUP_INTERVAL = "held: told of this group a moment ago (group_interval)"
    UNCHANGED = "held: nothing changed since it was told"
    NOT_WANTED = "held: it does not want resolved alerts"
    REFUSED = "held: it refused this a moment ago"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a receiver has been told of a group: fingerprints, and when."""

    firing: frozenset[str]
    resolved: frozenset[str]
    sent_at: datetime

    def says_as(self, other: Entry) -> bool:
        """Whether both are about the same alerts."""
        return (self.firing, self.resolved) == (other.firing, other.resolved)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was given up, since it was refused for good or tried for too long; and how many times in a row."""

    entry: Entry
    times: int

    @classmethod
    def of(cls, entry: Entry, before: Refusal | None) -> Refusal:
        """The refusal of ``entry`` after ``before``."""
        return cls(entry, before.times + 1 if before is not None and before.entry.says_as(entry) else 1)

    def until(self, entry: Entry, route: RouteSettings) -> datetime:
        """Before when ``entry`` need not be sent: news may be accepted where this was not."""
        same = entry.says_as(self.entry)
        pause = min(FIRST_REFUSED_PAUSE * 2 ** min(self.times - 1, 16), LONGEST_REFUSED_PAUSE)
        return self.entry.sent_at + (pause if same else route.group_interval)


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert as receivers hear of it; ``resolved_at`` None while it fires. ``data_as_of``: see payloads."""

    alert: AlertInstance
    resolved_at: datetime | None = None
    data_as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens for one receiver and group now; ``due_at`` is when to look again.

    ``entry`` is what it will have been told: once the notification is delivered, or at once where nothing is sent.
    """

    receiver: str
    group_key: str
    group_labels: Mapping[str, str]
    send: bool
    reason: Reason
    firing: tuple[Notice, ...]
    resolved: tuple[Notice, ...]
    entry: Entry | None = None
    due_at: datetime | None = None


def plan(
    notices: Iterable[Notice],
    log: Mapping[Group, Entry],
    receivers: Sequence[ReceiverSettings],
    route: RouteSettings,
    now: datetime,
    refusals: Mapping[Group, Refusal] = MappingProxyType({}),
) -> list[Decision]:
    """A decision for each receiver and group that has alerts, given what receivers were told before (``log``)."""
    decisions = []
    notices = merged(notices)
    for receiver in receivers:
        groups: dict[str, tuple[dict[str, str], list[Notice]]] = {}
        for notice in notices:
            if concerns(receiver, notice.alert, route):
                labels = group_labels(notice.alert, route)
                groups.setdefault(group_key(labels), (labels, []))[1].append(notice)
        for key, (labels, members) in groups.items():
            group = receiver.name, key
            decision = _decide(receiver, key, labels, members, log.get(group), route, now)
            decisions.append(_held(decision, refusals.get(group), route, now))
    return decisions


def _held(decision: Decision, refusal: Refusal | None, route: RouteSettings, now: datetime) -> Decision:
    """``decision``, unless the same was refused a moment ago."""
    if refusal is None or decision.entry is None or not decision.send:
        return decision
    until = refusal.until(decision.entry, route)
    return replace(decision, send=False, reason=Reason.REFUSED, entry=None, due_at=until) if now < until else decision


def merged(notices: Iterable[Notice]) -> list[Notice]:
    """One notice a fingerprint, as two rules may make the same alert: it fires while any fires.

    Of several that fire the one that has for longest speaks, of several that are over the one that ended last.
    """
    best: dict[str, Notice] = {}
    for notice in notices:
        known = best.setdefault(notice.alert.fingerprint, notice)
        if known is not notice and _speaks_before(notice, known):
            best[notice.alert.fingerprint] = notice
    return list(best.values())


def _speaks_before(one: Notice, other: Notice) -> bool:
    if one.resolved_at is None or other.resolved_at is None:
        if one.resolved_at is not None or other.resolved_at is not None:
            return one.resolved_at is None
        return _fired(one) < _fired(other)
    return one.resolved_at > other.resolved_at


def _fired(notice: Notice) -> tuple[datetime, str, str]:
    alert = notice.alert
    return alert.fired_at or alert.active_since, alert.group, alert.rule


def concerns(receiver: ReceiverSettings, alert: AlertInstance, route: RouteSettings) -> bool:
    """Whether ``receiver`` is to hear of ``alert`` at all."""
    if (alert.labels.get("alertname") == WATCHDOG) != (receiver.name == route.watchdog):
        return False
    return all(alert.labels.get(name) == value for name, value in receiver.match.items())


def group_labels(alert: AlertInstance, route: RouteSettings) -> dict[str, str]:
    """Those of the alert's labels that name its group."""
    return {name: alert.labels[name] for name in route.group_by if name in alert.labels}


def group_key(labels: Mapping[str, str]) -> str:
    """Alertmanager's name of a group under its one route: ``{}:{alertname="…", queue="…"}``."""
    quoted = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for _, value in sorted(labels.items())
    )
    inside = ", ".join(f'{name}="{value}"' for name, value in zip(sorted(labels), quoted, strict=True))
    return "{}:{" + inside + "}"


def _decide(
    receiver: ReceiverSettings,
    key: str,
    labels: Mapping[str, str],
    members: Sequence[Notice],
    entry: Entry | None,
    route: RouteSettings,
    now: datetime,
) -> Decision:
    told = entry.firing if entry else frozenset()
    firing = tuple(notice for notice in members if notice.resolved_at is None)
    over = tuple(n for n in members if n.resolved_at is not None and n.alert.fingerprint in told)
    is_watchdog = labels.get("alertname") == WATCHDOG
    repeat = route.watchdog_interval if is_watchdog else route.repeat_interval
    ids = frozenset(notice.alert.fingerprint for notice in firing)

    def decision(send: bool, reason: Reason, due_at: datetime | None = None, remember: Entry | None = None) -> Decision:
        if send:
            remember = Entry(ids, frozenset(n.alert.fingerprint for n in over), now)
            due_at = now + repeat if ids else None
        return Decision(receiver.name, key, labels, send, reason, firing, over, remember, due_at)

    if entry is None or not entry.firing:
        if not firing:
            return decision(False, Reason.UNCHANGED)
        wait_until = min(n.alert.fired_at or now for n in firing) + route.group_wait
        if now < wait_until and route.group_wait > timedelta(0):
            return decision(False, Reason.GROUP_WAIT, wait_until)
    if entry is not None:
        news = _news(entry, ids, bool(over), receiver.send_resolved)
        if news in (Reason.UNCHANGED, Reason.NOT_WANTED):
            if firing and news is Reason.UNCHANGED and now - entry.sent_at >= repeat:
                return decision(True, Reason.REPEAT)
            remember = Entry(entry.firing & ids, entry.resolved, entry.sent_at) if news is Reason.NOT_WANTED else None
            return decision(False, news, entry.sent_at + repeat if firing else None, remember)
        if now - entry.sent_at < route.group_interval:
            return decision(False, Reason.GROUP_INTERVAL, entry.sent_at + route.group_interval)
        return decision(True, news)
    return decision(True, Reason.FIRST)


def _news(entry: Entry, firing: frozenset[str], some_over: bool, send_resolved: bool) -> Reason:
    if not firing <= entry.firing:
        return Reason.NEW_ALERTS
    if some_over:
        if not send_resolved:
            return Reason.NOT_WANTED
        return Reason.SOME_RESOLVED if firing else Reason.RESOLVED
    return Reason.UNCHANGED
