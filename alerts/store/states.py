"""The engine's side of the store: alerts survive a restart, and are committed together with what is to be sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa

from alerts.evaluate import RuleMemory
from alerts.models import AlertInstance, AlertState
from alerts.notify.plan import Decision, Entry, Group
from alerts.notify.told import Settled, Told
from alerts.state import Tracked, Transition
from alerts.store.database import (
    Database,
    from_set,
    from_us,
    from_us_or_none,
    to_json,
    to_set,
    to_us,
    to_us_or_none,
    transaction,
)
from alerts.store.health import notification_health
from alerts.store.inputs import told
from alerts.store.outbox import OutboxMessage, insert_all
from alerts.store.schema import upsert
from alerts.store.translate import note_clock
from lake.clock import ZERO

#: Notify decisions that are remembered; older ones are forgotten.
DECISIONS_KEPT = 10_000
#: Alerts of one decision of which it is remembered why they were held back.
MUTED_KEPT = 100
RuleKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """An alert that fired and is over, remembered until receivers have been told."""

    alert: AlertInstance
    at: datetime


class States:
    """Reads and writes what rules remember. One object belongs to one thread."""

    def __init__(self, connection: Database) -> None:
        self._db = connection
        self._settled = 0

    def load(self) -> tuple[dict[RuleKey, RuleMemory], list[Resolved]]:
        """What every rule remembered when the process last ran, and the alerts that were over."""
        alerts: dict[RuleKey, dict[str, Tracked]] = {}
        resolved: list[Resolved] = []
        for row in self._db.execute(
            "SELECT rule_group, rule, fingerprint, labels, annotations, value, state, active_since, fired_at,"
            " kept_since, paused, resolved_at FROM alerts"
        ):
            alert = AlertInstance(
                rule=row[1],
                group=row[0],
                labels=json.loads(row[3]),
                annotations=json.loads(row[4]),
                value=row[5],
                state=AlertState(row[6]),
                active_since=from_us(row[7]),
                fired_at=from_us_or_none(row[8]),
                fingerprint=row[2],
            )
            if row[11] is not None:
                resolved.append(Resolved(alert, from_us(row[11])))
                continue
            tracked = Tracked(alert, from_us_or_none(row[9]), timedelta(microseconds=row[10]))
            alerts.setdefault((row[0], row[1]), {})[row[2]] = tracked
        evaluated = {
            (row[0], row[1]): from_us(row[2])
            for row in self._db.execute("SELECT rule_group, rule, evaluated_to FROM rules")
        }
        keys = alerts.keys() | evaluated.keys()
        return {key: RuleMemory(alerts.get(key, {}), evaluated.get(key), interrupted=True) for key in keys}, resolved

    def load_told(self) -> Told:
        """What each receiver has been told of each group, and what is on its way to it."""
        with transaction(self._db):
            log = self.read_told()
            pending = self._db.execute(
                "SELECT id, receiver, group_key, firing, resolved, created_at FROM outbox"
                " WHERE firing IS NOT NULL ORDER BY sequence"
            ).fetchall()
            self._db.execute("DELETE FROM settled")
        return Told(log, ((row[0], (row[1], row[2]), _entry(row[3:])) for row in pending))

    def read_told(self) -> dict[Group, Entry]:
        """What each receiver has been told of each group."""
        return {
            (row[0], row[1]): Entry(to_set(row[2]), to_set(row[3]), from_us(row[4]))
            for row in self._db.execute("SELECT receiver, group_key, firing, resolved, sent_at FROM notified")
        }

    def take_settled(self) -> list[Settled]:
        """What has left the outbox since this was last asked, in order."""
        rows = self._db.execute(
            "SELECT number, id, receiver, group_key, firing, resolved, at, delivered FROM settled"
            " WHERE number > ? ORDER BY number",
            [self._settled],
        ).fetchall()
        self._settled = rows[-1][0] if rows else self._settled
        return [Settled(row[1], (row[2], row[3]), _entry(row[4:7]), bool(row[7])) for row in rows]

    def notification_health(self, receivers: Sequence[str], now: datetime) -> pa.Table:
        """How ``receivers`` do, as rules may read it."""
        return notification_health(self._db, receivers, now)

    def commit(
        self,
        now: datetime,
        data_as_of: datetime | None,
        *,
        transitions: Iterable[Transition] = (),
        memories: Mapping[RuleKey, RuleMemory] | None = None,
        rewritten: Iterable[RuleKey] = (),
        forgotten: Iterable[Resolved] = (),
        decisions: Iterable[Decision] = (),
        messages: Iterable[OutboxMessage] = (),
        purged: Iterable[tuple[str, str]] = (),
        ahead: timedelta = ZERO,
    ) -> None:
        """Write one round, or none of it: states, their history, what receivers will be told, and why.

        History is for people: it has the time of the wall clock, which is ``ahead`` of ``now``.
        """
        memories = memories or {}
        with transaction(self._db):
            note_clock(self._db, now, ahead)
            self._write_transitions(now, now + ahead, data_as_of, [*transitions], memories)
            for key in rewritten:
                # Time without evaluations is kept of what pends or is kept firing; what fires stays as it is written.
                tracked = [
                    one
                    for one in memories[key].alerts.values()
                    if one.kept_since is not None or one.alert.state is not AlertState.FIRING
                ]
                self._db.executemany(upsert("alerts"), (_alert_row(one, None) for one in tracked))
            self._db.executemany(
                upsert("rules"),
                [(*key, to_us(memory.evaluated_to)) for key, memory in memories.items() if memory.evaluated_to],
            )
            self._db.executemany(
                "DELETE FROM alerts WHERE rule_group = ? AND rule = ? AND fingerprint = ? AND resolved_at IS NOT NULL",
                [(gone.alert.group, gone.alert.rule, gone.alert.fingerprint) for gone in forgotten],
            )
            self._write_decisions(now + ahead, decisions)
            insert_all(self._db, messages)
            self._db.executemany("DELETE FROM notified WHERE receiver = ? AND group_key = ?", purged)
            self._db.execute("DELETE FROM settled WHERE number <= ?", [self._settled])

    def forget_rule(self, key: RuleKey) -> None:
        """Drop what is known of a rule that is no longer there."""
        with transaction(self._db):
            self._db.execute("DELETE FROM rules WHERE rule_group = ? AND rule = ?", key)

    def _write_transitions(
        self,
        now: datetime,
        shown: datetime,
        data_as_of: datetime | None,
        transitions: Sequence[Transition],
        memories: Mapping[RuleKey, RuleMemory],
    ) -> None:
        """Statements of a kind together: PostgreSQL answers thousands of rows at once, and one by one for seconds."""
        alerts: dict[tuple[str, str, str], list[Any] | None] = {}  # as it is then; None: gone
        for transition in transitions:
            alert = transition.alert
            key = alert.group, alert.rule, alert.fingerprint
            if transition.to_state is AlertState.INACTIVE:
                fired = transition.from_state.is_firing
                alerts[key] = _alert_row(Tracked(alert), now) if fired else None
            else:
                memory = memories.get((alert.group, alert.rule))
                tracked = memory.alerts.get(alert.fingerprint) if memory else None
                alerts[key] = _alert_row(tracked or Tracked(alert), None)
        gone = [key for key, row in alerts.items() if row is None]
        self._db.executemany("DELETE FROM alerts WHERE rule_group = ? AND rule = ? AND fingerprint = ?", gone)
        self._db.executemany(upsert("alerts"), [row for row in alerts.values() if row is not None])
        at, as_of = to_us(shown), to_us_or_none(data_as_of)
        self._db.executemany(
            "INSERT INTO transitions (at, data_as_of, rule_group, rule, fingerprint, labels, annotations, from_state,"
            " to_state, value, reason, inputs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                [
                    at,
                    as_of,
                    one.alert.group,
                    one.alert.rule,
                    one.alert.fingerprint,
                    to_json(one.alert.labels),
                    to_json(one.alert.annotations),
                    one.from_state.value,
                    one.to_state.value,
                    one.alert.value,
                    one.reason,
                    to_json(told(one.alert.inputs)),
                ]
                for one in transitions
            ),
        )

    def _write_decisions(self, now: datetime, decisions: Iterable[Decision]) -> None:
        decisions, at = list(decisions), to_us(now)
        self._db.executemany(
            "INSERT INTO decisions (at, receiver, group_key, sent, reason, firing, resolved, muted)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                [
                    at,
                    decision.receiver,
                    decision.group_key,
                    int(decision.send),
                    str(decision.reason),
                    len(decision.firing),
                    len(decision.resolved),
                    to_json(dict(islice(decision.muted.items(), MUTED_KEPT))) if decision.muted else None,
                ]
                for decision in decisions
            ),
        )
        for decision in decisions:
            if decision.entry is not None and not decision.send:
                self._db.execute(
                    upsert("notified"),
                    [
                        decision.receiver,
                        decision.group_key,
                        from_set(decision.entry.firing),
                        from_set(decision.entry.resolved),
                        to_us(decision.entry.sent_at),
                    ],
                )
        self._db.execute("DELETE FROM decisions WHERE id <= (SELECT MAX(id) FROM decisions) - ?", [DECISIONS_KEPT])


def _alert_row(tracked: Tracked, resolved_at: datetime | None) -> list[Any]:
    alert = tracked.alert
    return [
        alert.group,
        alert.rule,
        alert.fingerprint,
        to_json(alert.labels),
        to_json(alert.annotations),
        alert.value,
        alert.state.value,
        to_us(alert.active_since),
        to_us_or_none(alert.fired_at),
        to_us_or_none(tracked.kept_since),
        tracked.paused // timedelta(microseconds=1),
        to_us_or_none(resolved_at),
    ]


def _entry(row: Sequence[Any]) -> Entry:
    firing, resolved, at = row
    return Entry(to_set(firing), to_set(resolved), from_us(at))
