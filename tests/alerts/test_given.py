"""What people and other programs tell the alert process: kept across restarts, obeyed, journalled, and ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alerts.models import fingerprint
from alerts.received import firing_of
from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.matchers import parse
from alerts.routing.silence import EXPIRED_KEPT, Silence
from alerts.store import Delivery, Outbox
from alerts.store import given as module
from alerts.store.database import Store, connect
from alerts.store.given import ApiState, Author, ReceivedAlert, TooMany, Unknown
from alerts.store.translate import note_clock, translate
from tests.alerts.helpers import GoldLake
from tests.alerts.test_engine import DEAD, World

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
OPS = Author("ops", "127.0.0.1")


def silence(*matchers: str, id: str = "", ends: timedelta = HOUR, now: datetime = NOW) -> Silence:
    return Silence(id, tuple(map(parse, matchers)), now, now + ends, "ops", "deploy", now)


def sent(ends: timedelta = 5 * MINUTE, now: datetime = NOW, **labels: str) -> ReceivedAlert:
    return ReceivedAlert({"alertname": "DiskFull", **labels}, {"summary": "full"}, "http://p", now, now + ends, now)


def test_what_was_given_survives_a_restart_and_says_who_gave_it(store: Store) -> None:
    state = ApiState(store)
    id = state.silence(silence('queue=~"a.*"', "tenant!=b"), OPS, NOW, NOW)
    state.acknowledge(Acknowledgement("f", "ann", "on it", NOW), "10.0.0.1", NOW)
    state.receive([sent()], Author("prometheus", "10.0.0.2"), NOW, NOW)
    state.receive([sent()], Author("prometheus", "10.0.0.2"), NOW, NOW)
    given = state.given
    state.close()
    assert ApiState(store).given == given
    assert [str(matcher) for matcher in given.silences[id].matchers] == ['queue=~"a.*"', 'tenant!="b"']
    assert connect(store).execute("SELECT who, peer, what FROM journal ORDER BY id").fetchall() == [
        ("ops", "127.0.0.1", "silence"),
        ("ann", "10.0.0.1", "acknowledge"),
        ("prometheus", "10.0.0.2", "alert"),
    ]


def test_a_silence_is_ended_once_and_forgotten_after_days(store: Store) -> None:
    state = ApiState(store)
    id = state.silence(silence("a=b"), OPS, NOW, NOW)
    state.expire(id, OPS, NOW + MINUTE, NOW)
    state.expire(id, OPS, NOW + 2 * MINUTE, NOW)
    assert state.given.silences[id].ends_at == NOW + MINUTE
    later = NOW + EXPIRED_KEPT + 2 * MINUTE
    other = state.silence(silence("a=b", now=later), OPS, later, later)
    assert state.given.silences.keys() == {other} == ApiState(store).given.silences.keys()
    for unknown in (
        lambda: state.expire(id, OPS, NOW, NOW),
        lambda: state.silence(silence("a=b", id=id), OPS, NOW, NOW),
    ):
        with pytest.raises(Unknown):
            unknown()


def test_what_is_kept_is_bounded_and_nothing_is_taken_by_halves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SILENCES", 1)
    monkeypatch.setattr(module, "MOST_RECEIVED", 2)
    state = ApiState(store)
    state.silence(silence("a=b"), OPS, NOW, NOW)
    with pytest.raises(TooMany):
        state.silence(silence("a=c"), OPS, NOW, NOW)
    with pytest.raises(TooMany):
        state.receive([sent(n=str(number)) for number in range(3)], OPS, NOW, NOW)
    assert (len(state.given.silences), len(state.given.received)) == (1, 0)
    state.receive([sent(n="1"), sent(n="2")], OPS, NOW, NOW)
    later = NOW + 21 * MINUTE
    state.receive([sent(n="3", now=later)], OPS, later, later)
    assert len(state.given.received) == len(ApiState(store).given.received) == 1


def test_an_alert_that_is_repeated_fires_since_it_began(store: Store) -> None:
    state = ApiState(store)
    for minute in (0, 1, 2):
        state.receive([sent(now=NOW + minute * MINUTE)], OPS, NOW, NOW)
    (one,) = state.given.received.values()
    assert (one.starts_at, one.ends_at) == (NOW, NOW + 7 * MINUTE)
    state.receive([sent(now=NOW + HOUR)], OPS, NOW + HOUR, NOW)
    (one,) = state.given.received.values()
    assert one.starts_at == NOW + HOUR, "another time that it fires"


def test_setting_the_clock_neither_lengthens_nor_shortens_a_silence_across_a_restart(store: Store) -> None:
    state = ApiState(store)
    id = state.silence(silence("a=b"), OPS, NOW, NOW)
    state.close()
    db = connect(store)
    note_clock(db, NOW + MINUTE, HOUR)
    translate(db, NOW + MINUTE + HOUR)
    assert ApiState(store).given.silences[id].ends_at == NOW + 2 * HOUR


class Told:
    """An engine with a state before it, and a pager that takes everything."""

    def __init__(self, gold: GoldLake) -> None:
        self.world = World(gold, [DEAD])
        self.gold = gold
        self.state = ApiState(gold.lake.state_path("alerts.sqlite"))
        self.start()

    def start(self) -> None:
        self.world.start()
        self.world.engine._api_state = self.state

    def at(self, after: timedelta, **counts: int) -> list[str]:
        self.gold.partial(at=NOW + after, received=1, **counts)
        self.world.round(NOW + after)
        return self.world.messages()

    def reasons(self) -> list[str]:
        return [row[0] for row in self.world.db.execute("SELECT reason FROM decisions ORDER BY id")]


def test_a_silence_that_begins_and_ends_is_obeyed_without_new_data(gold: GoldLake) -> None:
    told = Told(gold)
    id = told.state.silence(silence("tenant=acme"), OPS, NOW, NOW)
    assert told.at(MINUTE, dead_lettered=1) == []
    assert told.reasons() == ["held: every alert that it would be told of is silenced"]
    (muted,) = told.world.db.execute("SELECT muted FROM decisions").fetchone()
    assert id in muted and "silenced by ops (deploy)" in muted
    told.world.engine.round(NOW + 59 * MINUTE, new_data=False)
    assert told.world.messages() == []
    told.world.engine.round(NOW + HOUR, new_data=False)
    assert told.world.messages() == ["firing"]


def test_an_acknowledgement_ends_when_its_alert_does(gold: GoldLake) -> None:
    told = Told(gold)
    told.at(0 * MINUTE, dead_lettered=1)
    (alert,) = told.world.engine.snapshot.firing()
    told.state.acknowledge(Acknowledgement(alert.fingerprint, "ann", "", NOW), "", NOW)
    told.at(MINUTE)
    told.start()
    told.at(2 * MINUTE)
    assert told.state.given.acknowledgements.keys() == {alert.fingerprint}
    told.at(3 * MINUTE, sidelined=1)
    assert told.state.given.acknowledgements == {}
    assert told.world.db.execute("SELECT who, what FROM journal ORDER BY id DESC").fetchone() == ("sojourn", "release")


def test_an_alert_of_another_program_fires_resolves_and_survives_a_restart(gold: GoldLake) -> None:
    told = Told(gold)
    told.state.receive([sent(queue="disks")], OPS, NOW, NOW)
    assert told.at(0 * MINUTE) == ["firing"]
    (alert,) = firing_of(told.state.given.received, NOW).values()
    assert (alert.fingerprint, alert.generator_url) == (fingerprint(alert.labels), "http://p")
    told.start()
    assert told.at(4 * MINUTE) == ["firing"]
    outbox = Outbox(told.world.db)
    (message,) = outbox.due(NOW + HOUR, "pager")
    outbox.record(message, Delivery(NOW, "delivered", 200, None, None), None, now=NOW)
    told.world.engine.round(NOW + 5 * MINUTE, new_data=False)
    assert told.world.messages() == ["resolved"]
    assert told.world.db.execute("SELECT rule_group, rule, to_state FROM transitions").fetchall() == [
        ("(received)", "DiskFull", "firing"),
        ("(received)", "DiskFull", "inactive"),
    ]
