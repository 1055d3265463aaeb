"""Who is told what, and why: pure decisions in Alertmanager's terms, each with its reason.

Source of the semantics: prometheus/alertmanager ``dispatch/`` and ``notify/dedup_stage.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from alerts.models import AlertInstance
from alerts.notify.settings import ReceiverSettings
from alerts.routing.muting import Muting
from alerts.routing.route import Route, taken
from alerts.routing.settings import RouteSettings, routes_of
from alerts.routing.times import next_minute
from lake.clock import ZERO
from sojourn.client.backoff import doubled

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
    REMINDER = "acknowledged a while ago, and it still fires"
    SILENCED = "held: every alert that it would be told of is silenced"
    INHIBITED = "held: other alerts that fire inhibit it"
    ACKNOWLEDGED = "held: somebody looks after it"
    MUTE_TIME = "held: the route tells nothing at this time"


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

    def until(self, entry: Entry, route: Route) -> datetime:
        """Before when ``entry`` need not be sent: news may be accepted where this was not."""
        same = entry.says_as(self.entry)
        pause = doubled(self.times, FIRST_REFUSED_PAUSE, LONGEST_REFUSED_PAUSE)
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
    ``muted`` says by fingerprint why alerts that fire are held back.
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
    muted: Mapping[str, str] = field(default_factory=dict)


def plan(
    notices: Iterable[Notice],
    log: Mapping[Group, Entry],
    receivers: Sequence[ReceiverSettings],
    settings: RouteSettings,
    now: datetime,
    refusals: Mapping[Group, Refusal] = MappingProxyType({}),
    muting: Mapping[str, Muting] = MappingProxyType({}),
    ahead: timedelta = ZERO,
) -> list[Decision]:
    """A decision for each receiver and group that has alerts, given what receivers were told before (``log``).

    ``muting`` is what holds back alerts, by fingerprint; mute times are of the wall clock, ``ahead`` of ``now``.
    """
    groups: dict[Group, Gathered] = {}
    known = merged(notices)
    for notice in known:
        for receiver, route in ways(notice.alert, receivers, settings):
            labels = route.group_labels(notice.alert.labels)
            group = receiver.name, route.group_key(labels)
            if group not in groups:
                groups[group] = Gathered(receiver, route, group[1], labels, [])
            groups[group].members.append(notice)
    groups |= _left(known, log, groups, receivers, routes_of(settings)[-1])
    of_times = {route.key: why for route in routes_of(settings) if (why := route.muted(now + ahead)) is not None}
    decisions = []
    order = {receiver.name: place for place, receiver in enumerate(receivers)}
    for group, gathered in sorted(groups.items(), key=lambda entry: order[entry[0][0]]):
        decision = _decide(gathered, log.get(group), settings, now, muting, of_times.get(gathered.route.key))
        decisions.append(_held(decision, refusals.get(group), gathered.route, now))
    return decisions


@dataclass(frozen=True, slots=True)
class Gathered:
    """The alerts that one receiver hears of together."""

    receiver: ReceiverSettings
    route: Route
    key: str
    labels: Mapping[str, str]
    members: list[Notice]
    is_left: bool = False  # what it was told remains to be ended; the settings lead nobody here any more


def _left(
    known: Sequence[Notice],
    log: Mapping[Group, Entry],
    groups: Mapping[Group, Gathered],
    receivers: Sequence[ReceiverSettings],
    route: Route,
) -> dict[Group, Gathered]:
    """Groups in which a receiver was told that alerts fire, and which no route makes any more: routes were changed."""
    told = [(group, entry) for group, entry in log.items() if entry.firing and group not in groups]
    if not told:
        return {}
    by_name = {receiver.name: receiver for receiver in receivers}
    by_fingerprint = {notice.alert.fingerprint: notice for notice in known}
    found = {}
    for group, entry in told:
        members = [by_fingerprint[one] for one in sorted(entry.firing) if one in by_fingerprint]
        if members and group[0] in by_name:
            found[group] = Gathered(by_name[group[0]], route, group[1], {}, members, is_left=True)
    return found


def ways(
    alert: AlertInstance, receivers: Sequence[ReceiverSettings], settings: RouteSettings
) -> list[tuple[ReceiverSettings, Route]]:
    """Whom ``alert`` reaches, and by which route. The watchdog reaches its receiver alone, by the last."""
    routes = routes_of(settings)
    if alert.labels.get("alertname") == WATCHDOG:
        return [(receiver, routes[-1]) for receiver in receivers if receiver.name == settings.watchdog]
    return [
        (receiver, route)
        for route in taken(routes, alert.labels)
        for receiver in receivers
        if route.tells(receiver.name)
        and receiver.name != settings.watchdog
        and all(alert.labels.get(name) == value for name, value in receiver.match.items())
    ]


def group_of(alert: AlertInstance, receiver: ReceiverSettings, route: Route) -> Group:
    """The group in which ``receiver`` hears of ``alert`` by ``route``."""
    return receiver.name, route.group_key(route.group_labels(alert.labels))


def _held(decision: Decision, refusal: Refusal | None, route: Route, now: datetime) -> Decision:
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


def _decide(
    group: Gathered,
    entry: Entry | None,
    settings: RouteSettings,
    now: datetime,
    muting: Mapping[str, Muting],
    muted_time: str | None,
) -> Decision:
    receiver, route = group.receiver, group.route
    told = entry.firing if entry else frozenset()
    is_watchdog = group.labels.get("alertname") == WATCHDOG
    held = _holds(group, entry, settings, now, muting, None if is_watchdog else muted_time)
    firing = [notice for notice in group.members if notice.resolved_at is None]
    audible, shown = firing, tuple(firing)
    if held:
        audible = [notice for notice in firing if notice.alert.fingerprint not in held]
        # What it was told firing stays in what it hears, silenced or not: it is not over, and its end will be told.
        shown = tuple(notice for notice in firing if notice.alert.fingerprint not in held.keys() - told)
    over = tuple(n for n in group.members if n.resolved_at is not None and n.alert.fingerprint in told)
    repeat = settings.watchdog_interval if is_watchdog else receiver.repeats or route.repeat_interval
    # Who takes for over what is not repeated hears on of what is silenced, too.
    lasting = bool(shown) if receiver.is_kept_alive else bool(audible) and not group.is_left
    ids = frozenset(notice.alert.fingerprint for notice in shown)

    def decision(send: bool, reason: Reason, due_at: datetime | None = None, remember: Entry | None = None) -> Decision:
        if send:
            remember = Entry(ids, frozenset(n.alert.fingerprint for n in over), now)
            due_at = now + repeat if ids else None
        muted: dict[str, str] = {}
        if held:
            due_at = min((at for at in (due_at, *(one.until for one in held.values())) if at is not None), default=None)
            muted = {fingerprint: one.why for fingerprint, one in held.items()}
        return Decision(receiver.name, group.key, group.labels, send, reason, shown, over, remember, due_at, muted)

    if entry is None or not entry.firing:
        if not audible:
            return decision(False, _why(held) if firing else Reason.UNCHANGED)
        wait_until = min(n.alert.fired_at or now for n in audible) + route.group_wait
        if now < wait_until and route.group_wait > timedelta(0):
            return decision(False, Reason.GROUP_WAIT, wait_until)
    if entry is None:
        return decision(True, Reason.FIRST)
    news = _news(entry, ids, bool(over), receiver.send_resolved)
    if news in (Reason.UNCHANGED, Reason.NOT_WANTED):
        if news is Reason.UNCHANGED and lasting:
            if any(_reminds(n.alert.fingerprint, muting) for n in audible):
                return decision(True, Reason.REMINDER)
            if now - entry.sent_at >= repeat:
                return decision(True, Reason.REPEAT)
        if news is Reason.UNCHANGED and firing and not audible:
            return decision(False, _why(held), entry.sent_at + repeat if lasting else None)
        remember = Entry(entry.firing & ids, entry.resolved, entry.sent_at) if news is Reason.NOT_WANTED else None
        return decision(False, news, entry.sent_at + repeat if lasting else None, remember)
    if now - entry.sent_at < route.group_interval:
        return decision(False, Reason.GROUP_INTERVAL, entry.sent_at + route.group_interval)
    return decision(True, news)


@dataclass(frozen=True, slots=True)
class _Hold:
    reason: Reason
    why: str
    until: datetime | None = None  # when to look again; None: a change will bring it


def _holds(
    group: Gathered,
    entry: Entry | None,
    settings: RouteSettings,
    now: datetime,
    muting: Mapping[str, Muting],
    muted_time: str | None,
) -> dict[str, _Hold]:
    """Which alerts of ``group`` that fire are not told now, and why."""
    if not muting and muted_time is None:
        return {}
    held = {}
    for notice in group.members:
        fingerprint = notice.alert.fingerprint
        mute = muting.get(fingerprint)
        if notice.resolved_at is not None:
            continue
        if mute is not None and mute.is_silent:
            held[fingerprint] = _Hold(Reason.SILENCED if mute.silenced_by else Reason.INHIBITED, mute.why)
        elif muted_time is not None:
            held[fingerprint] = _Hold(Reason.MUTE_TIME, muted_time, next_minute(now))
        elif mute is not None and mute.acknowledged is not None:
            last = mute.acknowledged.last_reminder(now, settings.remind_interval)
            if last is None or (entry is not None and entry.sent_at >= last):
                until = mute.acknowledged.next_reminder(now, settings.remind_interval)
                held[fingerprint] = _Hold(Reason.ACKNOWLEDGED, mute.why, until)
    return held


def _why(held: Mapping[str, _Hold]) -> Reason:
    """One reason for a group of which every alert is held: the strongest."""
    reasons = {hold.reason for hold in held.values()}
    strongest = (Reason.MUTE_TIME, Reason.SILENCED, Reason.INHIBITED, Reason.ACKNOWLEDGED)
    return next(reason for reason in strongest if reason in reasons)


def _reminds(fingerprint: str, muting: Mapping[str, Muting]) -> bool:
    """Whether an alert that is not held was acknowledged: then its reminder is due."""
    return fingerprint in muting


def _news(entry: Entry, firing: frozenset[str], some_over: bool, send_resolved: bool) -> Reason:
    if not firing <= entry.firing:
        return Reason.NEW_ALERTS
    if some_over:
        if not send_resolved:
            return Reason.NOT_WANTED
        return Reason.SOME_RESOLVED if firing else Reason.RESOLVED
    return Reason.UNCHANGED
