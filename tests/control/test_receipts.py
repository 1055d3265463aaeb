"""Each action that was in force ends with its receipt, by itself: in the journal once, and to those who are told."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.control.active_limit import Entry
from alerts.control.receipts import Receipts, due
from alerts.notify.receipt import labels_of, tell_receipt
from alerts.settings import AlertSettings
from alerts.store.database import connect
from lake.clock import Clock
from tests.support.waiting import wait_until

NOW = datetime.now(UTC)
ENDED = Entry(
    NOW - timedelta(minutes=2), "a1", "k", "NoisyTenant", "p", "limits_api", "nats", "orders", "t0", "release", False,
    10.0, None, None, {}, "calm", "applied",
)  # fmt: skip

TOLD = """
import json, sys
print(json.dumps({"reason": "saved 7 tenants 41 s", "inputs": {"lake": sys.argv[1], "action": sys.argv[2]}}))
"""


class Journal:
    """Rows, the newest first."""

    def __init__(self, *rows: Entry) -> None:
        self.rows = list(rows)

    def recent(self, limit: int) -> list[Entry]:
        return self.rows[:limit]

    def note(self, entries: Sequence[Entry]) -> None:
        self.rows = [*entries, *self.rows]


@pytest.mark.parametrize(
    "row",
    [
        replace(ENDED, decision="throttle", after=10.0),
        replace(ENDED, dry_run=True),
        replace(ENDED, outcome="failed"),
        replace(ENDED, at=NOW - timedelta(seconds=10)),
        replace(ENDED, at=NOW - timedelta(days=1)),
        replace(ENDED, tenant=None),
    ],
)
def test_what_was_not_in_force_has_not_ended_or_ended_long_ago_has_none(row: Entry) -> None:
    assert due([row], NOW) == []


def test_each_has_one_the_oldest_first() -> None:
    older = replace(ENDED, action_id="a0", at=NOW - timedelta(minutes=9), decision="expire")
    assert [row.action_id for row in due([ENDED, older], NOW)] == ["a0", "a1"]
    receipt = replace(ENDED, decision="receipt", outcome="told", at=NOW)
    assert [row.action_id for row in due([receipt, ENDED, older], NOW)] == ["a0"]


@pytest.fixture
def work(tmp_path: Path) -> Any:
    started: list[Receipts] = []

    def begin(code: str, journal: Journal, **options: Any) -> list[Entry]:
        told: list[Entry] = []
        command = [sys.executable, "-c", code]
        started.append(Receipts(command, tmp_path, journal, Clock(), told.append, every=0.02, **options))
        started[-1].start()
        return told

    yield begin
    for one in started:
        one.stop()


def test_it_is_worked_out_beside_journaled_and_told(work: Callable[..., list[Entry]], tmp_path: Path) -> None:
    journal = Journal(ENDED)
    told = work(TOLD, journal)
    wait_until(lambda: told, "the receipt")
    (entry,) = told
    assert journal.rows == [entry, ENDED]
    assert (entry.decision, entry.outcome, entry.action_id) == ("receipt", "told", "a1")
    assert entry.reason == "saved 7 tenants 41 s" and entry.inputs == {"lake": str(tmp_path), "action": "a1"}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('the journal does not say what came')", "does not say what came"),
        ("print('nonsense')", "nothing was said"),
        ("import time; time.sleep(600)", "longer than 0.5 s"),
    ],
)
def test_one_that_cannot_be_worked_out_says_why_once(work: Callable[..., list[Entry]], code: str, why: str) -> None:
    journal = Journal(ENDED)
    told = work(code, journal, timeout=0.5 if "sleep" in code else 60.0)
    wait_until(lambda: told, "the receipt")
    assert (told[0].outcome, len(journal.rows)) == ("failed", 2) and why in told[0].reason


def test_one_that_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    told: list[Entry] = []

    def tell(entry: Entry) -> None:
        told.append(entry)
        if len(told) == 1:
            raise sqlite3.OperationalError("disk I/O error")

    journal = Journal(ENDED)
    receipts = Receipts([sys.executable, "-c", TOLD], tmp_path, journal, Clock(), tell, every=0.02)
    receipts.start()
    wait_until(lambda: len(journal.rows) == 2, "the receipt in the journal")
    receipts.stop()
    assert len(told) == 2 and journal.rows == [told[1], ENDED]


class Woken:
    woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_receivers_of_webhooks_hear_of_it_as_of_what_is_over(tmp_path: Path) -> None:
    hooks: list[dict[str, Any]] = [{}, {"match": {"queue": "bills"}}, {"send_resolved": False}]
    receivers = [
        {"name": f"hook-{at}", "url": "http://127.0.0.1:9/x", "allow_private": True, **one}
        for at, one in enumerate(hooks)
    ]
    settings = AlertSettings.model_validate({"receivers": receivers, "dashboard_url": "https://s.example"})
    sender: Any = Woken()
    entry = replace(ENDED, decision="receipt", reason="saved 7 tenants 41 s", inputs={"saved_mean": "41"})
    for _ in range(2):
        tell_receipt(tmp_path / "alerts.sqlite", settings, sender, Clock(), entry)
    db = connect(tmp_path / "alerts.sqlite")
    ((receiver, status, body),) = db.execute("SELECT receiver, status, body FROM outbox").fetchall()
    db.close()
    assert (receiver, status, sender.woken) == ("hook-0", "resolved", 2)
    assert '"summary":"saved 7 tenants 41 s"' in body and '"saved_mean":"41"' in body
    assert '"generatorURL":"https://s.example/actions"' in body
    assert labels_of(entry)["action_id"] == "a1"
