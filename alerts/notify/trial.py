"""``sojourn alerts test``: one receiver is told of an alert that is none, by the very way that pages take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from alerts.models import AlertInstance, AlertState, fingerprint
from alerts.notify.payload import alertmanager, encoded
from alerts.notify.plan import Decision, Notice, Reason
from alerts.notify.sender import Sender
from alerts.notify.settings import ReceiverSettings
from alerts.store.database import Database, connect, transaction
from alerts.store.outbox import OutboxMessage
from lake.clock import Clock

#: What an attempt takes at most beside the time-out of the receiver: looking up, writing down.
_SPARE = timedelta(seconds=5)
ALERT = "SojournTest"


@dataclass(frozen=True, slots=True)
class Tried:
    """How one attempt went: what it told (firing, resolved), what came of it, and in which time."""

    told: str
    outcome: str
    status_code: int | None
    error: str | None
    seconds: float | None

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver took it."""
        return self.outcome == "delivered"


def trial(receiver: ReceiverSettings, external_url: str) -> Iterator[Tried]:
    """Tell ``receiver`` that a test alert fires and, if it took that and wants to know, that it is resolved.

    There is one attempt each. Nothing of it is kept, no rule is evaluated. UserError for a key that cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="sojourn-test-") as folder:
        store = Path(folder) / "alerts.sqlite"
        clock = Clock()
        sender = Sender(store, [receiver], clock)
        with closing(connect(store)) as db:
            sender.start()
            try:
                for status in ("firing", "resolved") if receiver.send_resolved else ("firing",):
                    tried = _try(db, sender, receiver, status, clock.now(), external_url)
                    yield tried
                    if not tried.is_delivered:
                        return
            finally:
                sender.stop()


def _try(db: Database, sender: Sender, receiver: ReceiverSettings, status: str, now: datetime, url: str) -> Tried:
    message = _message(receiver, status, now, url)
    with transaction(db):
        message.insert(db)
    sender.wake()
    deadline = time.monotonic() + (receiver.timeout + _SPARE).total_seconds()
    while time.monotonic() < deadline:
        row = db.execute(
            "SELECT outcome, status_code, error, duration_seconds FROM deliveries WHERE delivery_id = ?", [message.id]
        ).fetchone()
        if row is not None:
            return Tried(status, *row)
        time.sleep(0.02)
    return Tried(status, "retry", None, "there was no answer in time", None)


def _message(receiver: ReceiverSettings, status: str, now: datetime, url: str) -> OutboxMessage:
    labels = {"alertname": ALERT, "severity": "info", "broker": "test", "queue": "test", "tenant": "test"}
    labels |= receiver.match
    notes = {"summary": f"A test of the receiver {receiver.name}: nothing is wrong"}
    alert = AlertInstance(ALERT, "(test)", labels, notes, None, AlertState.FIRING, now, now, fingerprint(labels))
    notices = (Notice(alert, None if status == "firing" else now),)
    firing, resolved = (notices, ()) if status == "firing" else ((), notices)
    key = f'{{}}:{{alertname="{ALERT}"}}'
    decision = Decision(receiver.name, key, {"alertname": ALERT}, True, Reason.FIRST, firing, resolved)
    body = encoded(alertmanager(decision, url))
    return OutboxMessage(f"msg_test_{status}_{now.timestamp():.6f}", receiver.name, key, status, 1, body, now, None)
