"""What the alert process must not forget, in SQLite or PostgreSQL: states, notifications to send, what was done."""

from alerts.store.database import connect
from alerts.store.export import Exporter
from alerts.store.given import ApiState, Author, Given
from alerts.store.outbox import Delivery, Outbox, OutboxMessage
from alerts.store.states import Resolved, States

__all__ = [
    "Author",
    "Delivery",
    "ApiState",
    "Exporter",
    "Given",
    "Outbox",
    "OutboxMessage",
    "Resolved",
    "States",
    "connect",
]
