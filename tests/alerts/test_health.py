from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alerts.rules.expression import checked
from alerts.rules.model import Rule
from alerts.store import Delivery, Outbox, OutboxMessage, connect
from alerts.store.database import Database, Store, transaction
from alerts.store.health import DeliveryOutcome, notification_health

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def db(store: Store) -> Database:
    return connect(store)


def attempt(db: Database, outcome: DeliveryOutcome, error: str | None, at: datetime = NOW) -> None:
    message = OutboxMessage(f"msg_{outcome}_{at}", "pager", "g", "firing", 1, "{}", at, None)
    with transaction(db):
        message.insert(db)
    Outbox(db).record(message, Delivery(at, outcome, None, error, None), at if outcome == "retry" else None, now=at)


def health(db: Database, now: datetime) -> dict[str, Any]:
    well, pager = notification_health(db, ["other", "pager"], now).to_pylist()
    assert well == {"receiver": "other", "ok": True, "error": None, "failing_seconds": 0.0, "waiting": 0}
    return dict(pager)


def test_a_refusal_is_seen_at_once_and_until_something_gets_through(db: Database) -> None:
    attempt(db, "refused", "answered 403")
    attempt(db, "retry", "answered 500", NOW + timedelta(seconds=1))
    later = NOW + timedelta(seconds=5)
    assert health(db, later) == {
        "receiver": "pager",
        "ok": False,
        "error": "answered 500",
        "failing_seconds": 5.0,
        "waiting": 1,
    }
    attempt(db, "delivered", None, later)
    assert health(db, later)["ok"]


def test_what_is_tried_again_is_no_failure_before_a_minute_has_passed(db: Database) -> None:
    attempt(db, "retry", "answered 500")
    attempt(db, "retry", "ConnectTimeout", NOW + timedelta(seconds=59))
    assert health(db, NOW + timedelta(seconds=59))["ok"]
    assert not health(db, NOW + timedelta(seconds=60))["ok"]


def test_rules_may_ask_how_receivers_do(db: Database) -> None:
    expr = "SELECT receiver, failing_seconds AS value FROM notification_health WHERE NOT ok"
    rule = Rule("g", "NotificationsFailing", expr, tables=checked(expr))
    assert rule.tables == {"notification_health"}
