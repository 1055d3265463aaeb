"""What receivers have been told is what was delivered to them, whatever was decided."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from alerts.settings import AlertSettings
from alerts.store import Delivery, Outbox, connect
from alerts.store.health import DeliveryOutcome
from tests.alerts.helpers import GoldLake
from tests.alerts.test_engine import DEAD, World

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PAGER = {"name": "pager", "url": "https://example.org/"}


class Pager:
    """An engine with a receiver whose answers a test gives, at instants that it sets."""

    def __init__(self, gold: GoldLake, **route: str) -> None:
        self.gold = gold
        settings = AlertSettings.model_validate({"receivers": [PAGER], "route": route})
        self.world = World(gold, [DEAD], settings=settings)
        self.now = START

    def at(self, after: timedelta, tenant: str = "acme", **counts: int) -> list[str]:
        """The messages that wait once the lake has ``counts`` more, ``after`` the start."""
        self.now = START + after
        self.gold.partial(at=self.now, tenant=tenant, received=1, **counts)
        self.world.round(self.now)
        return self.world.messages()

    def answer(self, outcome: DeliveryOutcome) -> None:
        """The receiver's answer to all that waits."""
        outbox = Outbox(self.world.db)
        for message in outbox.due(self.now + MINUTE, "pager"):
            outbox.record(message, Delivery(self.now, outcome, None, None, None), None, now=self.now)

    def reasons(self) -> list[str]:
        return [row[0] for row in self.world.db.execute("SELECT reason FROM decisions ORDER BY id")]


def test_what_was_told_firing_is_told_resolved_at_any_group_interval(gold: GoldLake) -> None:
    pager = Pager(gold, group_interval="40m")
    assert pager.at(0 * MINUTE, dead_lettered=1) == ["firing"]
    pager.answer("delivered")
    assert pager.at(2 * MINUTE, sidelined=1) == []
    for minute in (17, 18, 30, 39):
        assert pager.at(minute * MINUTE) == []
    pager.world.start()  # it survives a restart, too
    assert pager.at(40 * MINUTE) == ["resolved"]
    pager.answer("delivered")
    assert pager.at(81 * MINUTE, dead_lettered=1) == ["firing"], "the next firing is news"


def test_a_resolved_alert_is_forgotten_once_everybody_knows(gold: GoldLake) -> None:
    pager = Pager(gold)
    pager.at(0 * MINUTE, dead_lettered=1)
    pager.answer("delivered")
    pager.at(1 * MINUTE, sidelined=1)
    pager.answer("delivered")
    pager.at(17 * MINUTE)
    pager.at(18 * MINUTE)
    assert pager.world.db.execute("SELECT COUNT(*) FROM alerts").fetchone() == (0,)
    assert pager.world.engine.snapshot.resolved == ()
    assert pager.world.db.execute("SELECT COUNT(*) FROM notified").fetchone() == (0,)


def test_a_message_that_was_refused_for_good_told_nothing_and_is_sent_anew_ever_more_slowly(gold: GoldLake) -> None:
    pager = Pager(gold)
    sent = []
    pager.at(0 * MINUTE, dead_lettered=1)
    pager.answer("refused")
    for half in range(1, 33):
        if pager.at(half * MINUTE / 2):
            sent.append(half / 2)
            pager.answer("refused")
    assert sent == [1.0, 3.0, 7.0, 15.0]
    assert "held: it refused this a moment ago" in pager.reasons()
    assert pager.world.db.execute("SELECT COUNT(*) FROM notified").fetchone() == (0,)


def test_news_are_sent_although_the_last_message_was_refused(gold: GoldLake) -> None:
    pager = Pager(gold, group_interval="10s")
    pager.at(0 * MINUTE, dead_lettered=1)
    pager.answer("refused")
    assert pager.at(timedelta(seconds=9), dead_lettered=1, tenant="other") == []
    assert pager.at(timedelta(seconds=10)) == ["firing"]


def test_who_was_told_nothing_is_told_of_no_end(gold: GoldLake) -> None:
    pager = Pager(gold)
    pager.at(0 * MINUTE, dead_lettered=1)
    pager.answer("failed")
    assert pager.at(10 * MINUTE, sidelined=1) == []
    assert pager.at(30 * MINUTE) == []
    assert pager.world.db.execute("SELECT COUNT(*) FROM alerts").fetchone() == (0,)


def test_an_end_that_was_refused_is_told_again(gold: GoldLake) -> None:
    pager = Pager(gold)
    pager.at(0 * MINUTE, dead_lettered=1)
    pager.answer("delivered")
    assert pager.at(1 * MINUTE, sidelined=1) == ["resolved"]
    pager.answer("refused")
    assert pager.at(timedelta(seconds=119)) == []
    assert pager.at(2 * MINUTE) == ["resolved"]
    pager.answer("delivered")
    assert pager.at(30 * MINUTE) == []


def test_what_is_on_its_way_is_not_sent_twice_across_a_restart(gold: GoldLake) -> None:
    pager = Pager(gold)
    assert pager.at(0 * MINUTE, dead_lettered=1) == ["firing"]
    pager.world.start()
    assert pager.at(1 * MINUTE) == ["firing"]
    pager.answer("delivered")
    pager.world.start()
    assert pager.at(2 * MINUTE) == []


def test_a_store_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE outbox (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, receiver TEXT NOT"
        " NULL, group_key TEXT NOT NULL, status TEXT NOT NULL, alerts INTEGER NOT NULL, data_as_of INTEGER, body TEXT"
        " NOT NULL, created_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, next_at INTEGER NOT NULL);"
        "INSERT INTO outbox VALUES (1, 'msg_1', 'pager', 'g', 'firing', 1, NULL, '{}', 0, 0, 0);"
    )
    old.close()
    outbox = Outbox(connect(path))
    (message,) = outbox.due(START, "pager")
    outbox.record(message, Delivery(START, "delivered", 200, None, None), None, now=START)
    assert outbox.waiting() == 0


def test_an_alert_whose_route_is_gone_is_remembered_until_its_end_was_told(gold: GoldLake) -> None:
    pager = Pager(gold)
    assert pager.at(0 * MINUTE, dead_lettered=1) == ["firing"]
    pager.answer("delivered")
    pager.world.settings = AlertSettings.model_validate({"receivers": [PAGER], "route": {"group_by": ["queue"]}})
    pager.world.start()
    assert pager.at(MINUTE) == ["firing"], "its new group is new"
    pager.answer("delivered")
    assert pager.at(2 * MINUTE, sidelined=1) == ["resolved", "resolved"]
    pager.answer("delivered")
    assert pager.at(30 * MINUTE) == []
    assert pager.world.db.execute("SELECT COUNT(*) FROM alerts").fetchone() == (0,)
