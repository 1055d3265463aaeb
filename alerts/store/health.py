"""Whether notifications get through to each receiver, for the engine view ``notification_health``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

import pyarrow as pa

from alerts.rules.expression import ENGINE_VIEWS
from alerts.store.database import Database, from_us, to_us

DeliveryOutcome = Literal["delivered", "retry", "failed", "refused"]

#: A receiver that refuses is not well at once; one that is tried again is not after so long without success.
TRIED_FOR = timedelta(minutes=1)


def note_health(db: Database, receiver: str, at: datetime, outcome: DeliveryOutcome, error: str | None) -> None:
    """Remember how an attempt that began ``at`` went, as part of the caller's transaction; success ends all failure."""
    if outcome == "delivered":
        db.execute("DELETE FROM receiver_health WHERE receiver = ?", [receiver])
        return
    db.execute(
        "INSERT INTO receiver_health VALUES (?, ?, ?, ?) ON CONFLICT (receiver)"
        " DO UPDATE SET error = excluded.error, refused ="
        " CASE WHEN receiver_health.refused > excluded.refused THEN receiver_health.refused ELSE excluded.refused END",
        [receiver, to_us(at), int(outcome != "retry"), error or outcome],
    )


def notification_health(db: Database, receivers: Sequence[str], now: datetime) -> pa.Table:
    """The engine view of that name at ``now``: a row for each of ``receivers``, those that never failed included."""
    known = {
        row[0]: row[1:] for row in db.execute("SELECT receiver, failing_since, refused, error FROM receiver_health")
    }
    waiting = dict(db.execute("SELECT receiver, COUNT(*) FROM outbox GROUP BY receiver").fetchall())
    rows = []
    for receiver in receivers:
        since, refused, error = known.get(receiver, (None, False, None))
        failing = max(now - from_us(since), timedelta(0)) if since is not None else timedelta(0)
        rows.append(
            {
                "receiver": receiver,
                "ok": not refused and failing < TRIED_FOR,
                "error": error,
                "failing_seconds": failing.total_seconds(),
                "waiting": waiting.get(receiver, 0),
            }
        )
    return pa.Table.from_pylist(rows, schema=ENGINE_VIEWS["notification_health"])
