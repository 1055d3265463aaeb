"""Which receivers are to be told what of the alerts there are: plans, and remembers what was planned and told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from alerts.notify.payload import MOST_ALERTS, MOST_FOR_ALERTMANAGER, alertmanager, encoded, to_receiver
from alerts.notify.plan import Decision, Entry, Group, Notice, Reason, plan
from alerts.notify.told import Settled, Told
from alerts.routing.inhibit import SHIPPED
from alerts.routing.muting import muting, next_change
from alerts.settings import AlertSettings
from alerts.store.given import Given
from alerts.store.outbox import OutboxMessage

#: A resolved alert, and what a receiver was told of a group that is gone, is remembered for so long at least.
RESOLVED_KEPT = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be committed: decisions that are news, messages for the outbox, groups whose log is let go of."""

    decisions: Sequence[Decision] = ()
    messages: Sequence[OutboxMessage] = ()
    purged: Sequence[Group] = ()


@dataclass(frozen=True, slots=True)
class Instant:
    """When it is planned: ``now`` of the engine's clock, the wall clock ``ahead`` of it, over data up to ``as_of``."""

    now: datetime
    ahead: timedelta
    as_of: datetime | None


class Notifications:
    """The notifications of one engine, and belongs to its thread. ``told``: what receivers have been told before."""

    def __init__(self, settings: AlertSettings, told: Told, external_url: str) -> None:
        self._settings, self._told, self._external_url = settings, told, external_url
        self._most_alerts = {
            receiver.name: MOST_FOR_ALERTMANAGER if receiver.is_kept_alive else MOST_ALERTS
            for receiver in settings.receivers
        }
        shipped = SHIPPED if settings.builtin else ()
        self._inhibitions = (*shipped, *(one.rule for one in settings.route.inhibit))
        self._said: dict[Group, tuple[Reason, Mapping[str, str]]] = {}
        self._due: datetime | None = None
        self._is_outdated = True

    def outdate(self) -> None:
        """What was planned rests on something that has changed."""
        self._is_outdated = True

    def is_due(self, now: datetime) -> bool:
        """Whether there is something to plan though no alert has changed."""
        return self._is_outdated or (self._due is not None and now >= self._due)

    def settle(self, every: Iterable[Settled]) -> None:
        """Learn what was delivered and what was given up, and think again about who is to be told."""
        for settled in every:
            self._told.settle(settled)
            self._is_outdated = True

    def believed(self) -> set[str]:
        """The fingerprints of alerts of which some receiver believes that they fire."""
        return self._told.believed(receiver.name for receiver in self._settings.receivers)

    def plan(self, notices: Sequence[Notice], given: Given, at: Instant) -> Planned:
        """Decide who is to be told what of ``notices``, by what people said (``given``)."""
        settings, told, now = self._settings, self._told, at.now
        labels = {notice.alert.fingerprint: notice.alert.labels for notice in notices if notice.resolved_at is None}
        silences = tuple(given.silences.values())
        decisions = [
            # What is on its way says otherwise in the end: it is not overwritten.
            replace(d, entry=None) if not d.send and told.is_pending((d.receiver, d.group_key)) else d
            for d in plan(
                notices,
                told.expected(),
                settings.receivers,
                settings.route,
                now,
                refusals=told.refusals,
                muting=muting(labels, silences, self._inhibitions, given.acknowledgements, now),
                ahead=at.ahead,
            )
        ]
        self._is_outdated = False
        due = [d.due_at for d in decisions] + [next_change(silences, now)]
        self._due = min((each for each in due if each is not None), default=None)
        writing = _Writing(self._most_alerts, self._external_url, settings, at)
        said = {(d.receiver, d.group_key): (d.reason, d.muted) for d in decisions}
        before = self._said
        planned = Planned(
            [d for d in decisions if d.send or d.entry or before.get((d.receiver, d.group_key)) != (d.reason, d.muted)],
            [writing.message(d) for d in decisions if d.send],
            [group for group, entry in told.log.items() if group not in said and now - entry.sent_at > RESOLVED_KEPT],
        )
        self._said = said
        told.refusals = {group: refusal for group, refusal in told.refusals.items() if group in said}
        return planned

    def committed(self, planned: Planned) -> None:
        """Remember that ``planned`` has been committed: its messages are on their way."""
        for decision in planned.decisions:
            if decision.entry is not None and not decision.send:
                self._told.log[decision.receiver, decision.group_key] = decision.entry
        for message in planned.messages:
            said = Entry(message.firing, message.resolved, message.created_at)
            self._told.sent(message.id, (message.receiver, message.group_key), said)
        for purge in planned.purged:
            self._told.log.pop(purge, None)


@dataclass(slots=True)
class _Writing:
    """Writes messages; several receivers are told the same, which is written once."""

    most_alerts: Mapping[str, int]
    external_url: str
    settings: AlertSettings
    at: Instant
    written: dict[Any, tuple[str, str]] = field(default_factory=dict)

    def message(self, decision: Decision) -> OutboxMessage:
        """What the receiver of ``decision`` is to be told."""
        most, links = self.most_alerts[decision.receiver], self.settings.links
        key = decision.group_key, most, *map(id, decision.firing), *map(id, decision.resolved)
        if key not in self.written:
            payload = alertmanager(decision, self.external_url, self.at.ahead, most, links, self.settings.dashboard_url)
            del payload["receiver"]
            self.written[key] = payload["status"], encoded(payload)
        status, text = self.written[key]
        return OutboxMessage(
            id=f"msg_{uuid4().hex}",
            receiver=decision.receiver,
            group_key=decision.group_key,
            status=status,
            alerts=len(decision.firing) + len(decision.resolved),
            body=to_receiver(decision.receiver, text),
            created_at=self.at.now,
            data_as_of=self.at.as_of,
            firing=frozenset(notice.alert.fingerprint for notice in decision.firing),
            resolved=frozenset(notice.alert.fingerprint for notice in decision.resolved),
        )
