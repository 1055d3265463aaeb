"""The sender's side of the store: messages to be delivered, in order within a group, each kept until it has arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from alerts.store.database import Database, from_set, from_us, from_us_or_none, to_us, to_us_or_none, transaction
from alerts.store.health import DeliveryOutcome, note_health
from alerts.store.schema import upsert

#: The oldest message of each of a receiver's groups, except some groups.
_OLDEST = (
    "FROM outbox WHERE sequence IN (SELECT MIN(sequence) FROM outbox WHERE receiver = ? AND {} GROUP BY group_key)"
)


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One notification for one receiver. ``id`` is its webhook-id: the same for every attempt.

    ``firing`` and ``resolved`` are the fingerprints that it tells of, which are told once it is delivered.
    """

    id: str
    receiver: str
    group_key: str
    status: str  # firing or resolved
    alerts: int
    body: str
    created_at: datetime
    data_as_of: datetime | None
    attempts: int = 0
    firing: frozenset[str] = frozenset()
    resolved: frozenset[str] = frozenset()

    def insert(self, db: Database) -> None:
        """Put the message into the outbox, as part of the caller's transaction."""
        insert_all(db, [self])

    def row(self) -> list[object]:
        """What the outbox holds of it at first."""
        return [
            self.id,
            self.receiver,
            self.group_key,
            self.status,
            self.alerts,
            to_us_or_none(self.data_as_of),
            self.body,
            to_us(self.created_at),
            to_us(self.created_at),
            from_set(self.firing),
            from_set(self.resolved),
        ]


def insert_all(db: Database, messages: Iterable[OutboxMessage]) -> None:
    """Put messages into the outbox, in order, as part of the caller's transaction."""
    db.executemany(
        "INSERT INTO outbox (id, receiver, group_key, status, alerts, data_as_of, body, created_at, next_at,"
        " firing, resolved) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (message.row() for message in messages),
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver a message, and how it went."""

    at: datetime
    outcome: DeliveryOutcome
    status_code: int | None
    error: str | None
    duration_seconds: float | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that ended at ``now``; the message leaves the outbox unless it has a ``retry_at``."""

    message: OutboxMessage
    delivery: Delivery
    retry_at: datetime | None
    now: datetime


class Outbox:
    """Takes messages out of the store and records what became of them. One object belongs to one thread."""

    def __init__(self, connection: Database) -> None:
        self._db = connection

    def due(
        self, now: datetime, receiver: str, *, besides: Collection[str] = (), most: int = 100
    ) -> list[OutboxMessage]:
        """``receiver``'s messages to be tried now: of each group the oldest only, so that news arrive in order.

        The groups in ``besides`` are left out.
        """
        rows = self._db.execute(
            f"SELECT id, receiver, group_key, status, alerts, body, created_at, data_as_of, attempts"
            f" {_OLDEST.format(_is_none_of('group_key', besides))} AND next_at <= ? ORDER BY sequence LIMIT ?",
            [receiver, *besides, to_us(now), most],
        )
        return [
            OutboxMessage(
                row[0], row[1], row[2], row[3], row[4], row[5], from_us(row[6]), from_us_or_none(row[7]), row[8]
            )
            for row in rows
        ]

    def next_at(self, receiver: str, *, besides: Collection[str] = ()) -> datetime | None:
        """When the next of ``receiver``'s messages falls due, those of the groups in ``besides`` left out."""
        row = self._db.execute(
            f"SELECT MIN(next_at) {_OLDEST.format(_is_none_of('group_key', besides))}", [receiver, *besides]
        ).fetchone()
        return from_us_or_none(row[0])

    def orphans(self, receivers: Collection[str]) -> list[OutboxMessage]:
        """The messages for receivers that are none of ``receivers``."""
        rows = self._db.execute(
            "SELECT id, receiver, group_key, status, alerts, created_at, data_as_of, attempts FROM outbox"
            f" WHERE {_is_none_of('receiver', receivers)} ORDER BY sequence",
            [*receivers],
        ).fetchall()
        return [
            OutboxMessage(row[0], row[1], row[2], row[3], row[4], "", from_us(row[5]), from_us_or_none(row[6]), row[7])
            for row in rows
        ]

    def waiting(self) -> int:
        """How many messages have not arrived."""
        return int(self._db.execute("SELECT COUNT(*) FROM outbox").fetchone()[0])

    def record(self, message: OutboxMessage, delivery: Delivery, retry_at: datetime | None, *, now: datetime) -> None:
        """Write down an attempt that ended at ``now``. The message leaves the outbox unless it has a ``retry_at``.

        What it said has been told if it was delivered, and only then.
        """
        self.record_all([Attempt(message, delivery, retry_at, now)])

    def record_all(self, attempts: Sequence[Attempt]) -> None:
        """The same of several: all of them or none."""
        with transaction(self._db):
            for attempt in attempts:
                self._record(attempt)

    def _record(self, attempt: Attempt) -> None:
        message, delivery, number = attempt.message, attempt.delivery, attempt.message.attempts + 1
        if attempt.retry_at is None:
            self._settle(message, delivery.outcome == "delivered", attempt.now)
        else:
            self._db.execute(
                "UPDATE outbox SET attempts = ?, next_at = ? WHERE id = ?",
                [number, to_us(attempt.retry_at), message.id],
            )
        self._db.execute(
            "INSERT INTO deliveries (at, delivery_id, receiver, group_key, status, alerts, attempt, outcome,"
            " status_code, error, duration_seconds, data_as_of) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                to_us(delivery.at),
                message.id,
                message.receiver,
                message.group_key,
                message.status,
                message.alerts,
                number,
                delivery.outcome,
                delivery.status_code,
                delivery.error,
                delivery.duration_seconds,
                to_us_or_none(message.data_as_of),
            ],
        )
        note_health(self._db, message.receiver, attempt.now, delivery.outcome, delivery.error)

    def _settle(self, message: OutboxMessage, delivered: bool, now: datetime) -> None:
        said = self._db.execute("SELECT firing, resolved FROM outbox WHERE id = ?", [message.id]).fetchone()
        self._db.execute("DELETE FROM outbox WHERE id = ?", [message.id])
        if said is None or said[0] is None:
            return
        group = message.receiver, message.group_key
        if delivered:
            self._db.execute(upsert("notified"), [*group, *said, to_us(now)])
        self._db.execute(
            "INSERT INTO settled (id, receiver, group_key, firing, resolved, at, delivered)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [message.id, *group, *said, to_us(now), int(delivered)],
        )

    def hasten(self, receiver: str, now: datetime) -> None:
        """Let all that waits for ``receiver`` fall due: it answers again."""
        with transaction(self._db):
            self._db.execute(
                "UPDATE outbox SET next_at = ? WHERE receiver = ? AND next_at > ?", [to_us(now), receiver, to_us(now)]
            )

    def disable(self, receiver: str, url: str, now: datetime) -> None:
        """Remember that the receiver answered 410 Gone at ``url``; another url enables it again."""
        with transaction(self._db):
            self._db.execute(upsert("disabled"), [receiver, url, to_us(now)])

    def disabled(self) -> dict[str, str]:
        """The receivers that are gone, with the url that said so."""
        return dict(self._db.execute("SELECT receiver, url FROM disabled").fetchall())


def _is_none_of(column: str, values: Collection[str]) -> str:
    return f"{column} NOT IN ({', '.join('?' * len(values))})" if values else "TRUE"
