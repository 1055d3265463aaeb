"""The store's contract, over SQLite and over PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from alerts.evaluate import RuleMemory
from alerts.models import AlertInstance, AlertState, fingerprint
from alerts.notify.plan import Decision, Entry, Notice, Reason
from alerts.state import Tracked, Transition
from alerts.store import Delivery, Exporter, Outbox, OutboxMessage, Resolved, States, connect
from alerts.store.database import Database, Store, from_us, to_us, transaction
from alerts.store.inputs import LONGEST_INPUT
from alerts.store.translate import note_clock, translate
from lake.dataset import rows_of
from lake.store import Lake

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
KEY = ("g", "Dead")


def alert(tenant: str = "a", state: AlertState = AlertState.FIRING) -> AlertInstance:
    labels = {"alertname": "Dead", "tenant": tenant}
    fired = NOW if state is AlertState.FIRING else None
    return AlertInstance("Dead", "g", labels, {"summary": 'ä "?" %s'}, 0.1, state, NOW, fired, fingerprint(labels))


def message(
    id: str, group: str = "k", receiver: str = "pager", at: datetime = NOW, **told: frozenset[str]
) -> OutboxMessage:
    return OutboxMessage(id, receiver, group, "firing", 1, '{"n": 1}', at, NOW, **told)


@pytest.fixture
def db(store: Store) -> Iterator[Database]:
    with closing(connect(store)) as database:
        yield database


def put(db: Database, *messages: OutboxMessage) -> Outbox:
    with transaction(db):
        for one in messages:
            one.insert(db)
    return Outbox(db)


def delivered(outbox: Outbox, one: OutboxMessage, outcome: str = "delivered", retry_at: datetime | None = None) -> None:
    outbox.record(one, Delivery(NOW, outcome, 200, "a\0b", 0.5), retry_at, now=NOW)  # type: ignore[arg-type]


def told(*alerts: AlertInstance, send: bool = False) -> Decision:
    entry = Entry(frozenset(one.fingerprint for one in alerts), frozenset(), NOW)
    notices = tuple(Notice(one) for one in alerts)
    return Decision("pager", "k", {}, send, Reason.FIRST, notices, (), entry=entry, muted={"f": "silenced"})


def test_a_round_is_remembered_as_it_was_written(db: Database) -> None:
    pending = Tracked(alert("b", AlertState.PENDING), None, SECOND)
    firing = Tracked(replace(alert("a"), value=None), NOW, timedelta(0))
    memory = RuleMemory({one.alert.fingerprint: one for one in (firing, pending)}, NOW)
    moves = [Transition(one.alert, AlertState.INACTIVE, one.alert.state, "it matches") for one in (firing, pending)]
    for _ in range(2):  # what is there is replaced
        States(db).commit(NOW, NOW, transitions=moves, memories={KEY: memory}, decisions=[told(firing.alert)])
    memories, resolved = States(db).load()
    assert memories == {KEY: replace(memory, interrupted=True)} and resolved == []
    assert States(db).read_told() == {("pager", "k"): told(firing.alert).entry}
    longer = replace(pending, paused=9 * SECOND)
    later = replace(memory, alerts={pending.alert.fingerprint: longer}, evaluated_to=NOW + SECOND)
    over = Transition(replace(firing.alert, state=AlertState.INACTIVE), AlertState.FIRING, AlertState.INACTIVE, "")
    States(db).commit(NOW + SECOND, None, transitions=[over], memories={KEY: later}, rewritten=[KEY])
    memories, resolved = States(db).load()
    assert memories[KEY].alerts == {pending.alert.fingerprint: longer} and memories[KEY].evaluated_to == NOW + SECOND
    (gone,) = resolved
    assert (gone.alert.fingerprint, gone.at) == (firing.alert.fingerprint, NOW + SECOND)
    States(db).commit(NOW, None, forgotten=[Resolved(gone.alert, gone.at)], purged=[("pager", "k")])
    States(db).forget_rule(KEY)
    memories, resolved = States(db).load()
    assert memories[KEY].evaluated_to is None and resolved == [] and States(db).read_told() == {}


def test_a_round_is_written_as_a_whole_or_not_at_all(db: Database) -> None:
    move = Transition(alert(), AlertState.INACTIVE, AlertState.FIRING, "it matches")
    memories = {KEY: RuleMemory({alert().fingerprint: Tracked(alert())}, NOW)}
    with pytest.raises(Exception):  # noqa: B017 - each store's own
        States(db).commit(NOW, NOW, transitions=[move], memories=memories, messages=[message("same"), message("same")])
    assert States(db).load() == ({}, []) and Outbox(db).waiting() == 0
    States(db).commit(NOW, NOW, transitions=[move], memories=memories, messages=[message("one"), message("two", "l")])
    assert Outbox(db).waiting() == 2


def test_messages_leave_in_order_and_are_told_once_delivered(db: Database) -> None:
    said = frozenset({"f1", "f2"})
    first, second = message("m1", firing=said), message("m2", resolved=said, at=NOW + SECOND)
    outbox = put(db, first, second, message("m3", "l"), message("m4", receiver="chat"))
    assert [one.id for one in outbox.due(NOW, "pager")] == ["m1", "m3"]
    assert [one.id for one in outbox.due(NOW, "pager", most=1)] == ["m1"]
    assert [one.id for one in outbox.due(NOW, "pager", besides=["k"])] == ["m3"]
    assert outbox.next_at("pager", besides=["l"]) == NOW and outbox.next_at("nobody") is None
    assert [one.id for one in outbox.orphans(["pager"])] == ["m4"] and len(outbox.orphans([])) == 4
    states = States(db)
    assert states.load_told().expected() == {
        ("pager", "k"): Entry(frozenset(), said, NOW + SECOND),
        ("pager", "l"): Entry(frozenset(), frozenset(), NOW),
        ("chat", "k"): Entry(frozenset(), frozenset(), NOW),
    }
    delivered(outbox, first, "retry", NOW + HOUR)
    assert [one.id for one in outbox.due(NOW, "pager")] == ["m3"] and states.take_settled() == []
    outbox.hasten("pager", NOW)
    assert [(one.id, one.attempts) for one in outbox.due(NOW, "pager")] == [("m1", 1), ("m3", 0)]
    delivered(outbox, first)
    assert [(one.id, one.delivered, one.entry.firing) for one in states.take_settled()] == [("m1", True, said)]
    assert states.take_settled() == [] and states.read_told()["pager", "k"].firing == said
    delivered(outbox, second)
    delivered(outbox, message("m3", "l"), "refused")
    assert [(one.id, one.delivered) for one in states.take_settled()] == [("m2", True), ("m3", False)]
    assert states.read_told() == {("pager", "k"): Entry(frozenset(), said, NOW)} and outbox.waiting() == 1
    for url in ("http://a", "http://b"):
        outbox.disable("pager", url, NOW)
    assert outbox.disabled() == {"pager": "http://b"}


def test_history_flows_into_the_lake_once(db: Database, store: Store, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    saw = {"threshold": 0.05, "waiting": 12, "stale": False, "age": None, "as_of": NOW, "cells": "x" * 999}
    fired = replace(alert(), inputs=saw)
    move = Transition(fired, AlertState.INACTIVE, AlertState.FIRING, "it matches")
    States(db).commit(NOW, NOW, transitions=[move])
    delivered(put(db, message("m1")), message("m1"))
    assert Exporter(db, lake).export() == 2
    with closing(connect(store)) as other:
        assert Exporter(other, lake).export() == 0
    States(db).commit(NOW, NOW, transitions=[move])
    assert Exporter(db, lake).export() == 1
    (one,) = rows_of(DeltaTable(lake.path("deliveries"))).to_pylist()
    assert (one["delivery_id"], one["status_code"], one["duration_seconds"]) == ("m1", 200, 0.5)
    both = rows_of(DeltaTable(lake.path("alert_transitions"))).to_pylist()
    assert [dict(row["inputs"]) for row in both] == 2 * [
        {
            "threshold": "0.05",
            "waiting": "12",
            "stale": "false",
            "age": None,
            "as_of": "2026-01-01T12:00:00.000000Z",
            "cells": "x" * LONGEST_INPUT,
        }
    ]


def test_a_store_of_an_earlier_version_gets_what_it_lacks(db: Database, store: Store, tmp_path: Path) -> None:
    with transaction(db):
        db.execute("ALTER TABLE transitions DROP COLUMN inputs")
    if not isinstance(store, Path):
        store.make()  # type: ignore[attr-defined]
    with closing(connect(store)) as newer:
        move = Transition(alert(), AlertState.INACTIVE, AlertState.FIRING, "it matches")
        States(newer).commit(NOW, NOW, transitions=[move])
        assert newer.execute("SELECT inputs FROM transitions").fetchall() == [("{}",)]


def test_instants_move_to_the_clock_of_the_process_that_goes_on(db: Database) -> None:
    outbox = put(db, message("m1"))
    with transaction(db):
        note_clock(db, NOW, HOUR)
    assert translate(db, NOW + HOUR + SECOND) == HOUR
    assert translate(db, NOW + HOUR + SECOND) == timedelta(0)
    assert outbox.next_at("pager") == NOW + HOUR
    assert from_us(to_us(NOW)) == NOW
