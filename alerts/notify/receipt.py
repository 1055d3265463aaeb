"""A receipt to those who take webhooks: what an action that has ended saved whom, and cost whom."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

from alerts.control.active_limit import Entry
from alerts.models import AlertInstance, AlertState, fingerprint
from alerts.notify.payload import alertmanager, encoded
from alerts.notify.plan import Decision, Notice, Reason
from alerts.store.database import Store, connect, transaction
from alerts.store.outbox import OutboxMessage
from lake.clock import Clock

if TYPE_CHECKING:
    from alerts.notify.sender import Sender
    from alerts.settings import AlertSettings

ALERT = "ActionReceipt"


def tell_receipt(store: Store, settings: AlertSettings, sender: Sender, clock: Clock, entry: Entry) -> None:
    """Put it into the outbox of each receiver that takes webhooks, and resolved alerts, and matches; but once."""
    labels = labels_of(entry)
    messages = [
        _message(receiver.name, labels, entry, clock.now(), settings)
        for receiver in settings.receivers
        if receiver.format == "webhook"
        and receiver.send_resolved
        and all(labels.get(name) == value for name, value in receiver.match.items())
    ]
    if not messages:
        return
    with closing(connect(store)) as db, transaction(db):
        for message in messages:
            if not db.execute("SELECT 1 FROM outbox WHERE id = ?", [message.id]).fetchall():
                message.insert(db)
    sender.wake()


def labels_of(entry: Entry) -> dict[str, str]:
    """What tells one action's receipt from another's."""
    labels = {"alertname": ALERT, "severity": "info", "broker": entry.broker, "queue": entry.queue}
    return labels | {"tenant": entry.tenant or "", "policy": entry.policy, "action_id": entry.action_id}


def _message(
    receiver: str, labels: dict[str, str], entry: Entry, now: datetime, settings: AlertSettings
) -> OutboxMessage:
    notes = {"summary": entry.reason, **entry.inputs}
    journal = f"{settings.dashboard_url.rstrip('/')}/actions" if settings.dashboard_url else ""
    alert = AlertInstance(
        ALERT, "(actions)", labels, notes, None, AlertState.FIRING, now, now, fingerprint(labels), journal
    )
    key = f'{{}}:{{action_id="{entry.action_id}"}}'
    group = {"alertname": ALERT, "action_id": entry.action_id}
    decision = Decision(receiver, key, group, True, Reason.RESOLVED, (), (Notice(alert, now),))
    body = encoded(alertmanager(decision, settings.external_url or ""))
    return OutboxMessage(f"msg_receipt_{entry.action_id}_{receiver}", receiver, key, "resolved", 1, body, now, None)
