"""More trouble for a lake of :mod:`tests.dashboard.scene`: consumers of ``invoices`` hold too much and dead-letter."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.models import fingerprint
from lake.store import Lake
from lake.tables import TABLES
from tests.dashboard.scene import BROKER, TENANTS, _partials
from tests.support.finishing import finish

QUEUE = "invoices"
REASONS = ("card declined", "card declined", "card declined", "no such account", "<b>boom</b> & co", None)


def write_troubles(root: Path, *, end: datetime, seconds: int = 420) -> None:
    """Add to the lake at ``root`` what happened on ``invoices`` in the ``seconds`` before ``end``."""
    lake = Lake(root)
    start = end - timedelta(seconds=seconds)
    rows = _partials(QUEUE, start, seconds, seconds + 1, 5, tenants=TENANTS[1:5], share=1.5)
    dead = []
    for place, row in enumerate(rows):
        if place % 9 == 0 and row["completed"]:
            row["completed"], row["dead_lettered"], row["retries"] = row["completed"] - 1, 1, 2
            dead.append((row["tenant"], row["newest_occurred_at"]))
    _append(lake, "partials", rows)
    _append(lake, "message_events", [_dead(tenant, at, number) for number, (tenant, at) in enumerate(dead)])
    _append(lake, "queue_samples", [row for second in range(0, seconds, 5) for row in _readings(start, second)])
    labels = {"alertname": "LeakedInFlight", "severity": "warning", "broker": BROKER, "queue": QUEUE}
    summary = f"120 messages of {QUEUE} are in flight that nobody seems to work on"
    fired = {
        "at": end - timedelta(seconds=60),
        "data_as_of": end,
        "rule_group": "consumers",
        "rule": "LeakedInFlight",
        "fingerprint": fingerprint(labels),
        "labels": list(labels.items()),
        "annotations": [("summary", summary)],
        "from_state": "pending",
        "to_state": "firing",
        "value": 120.0,
        "reason": "true for 15 min",
    }
    _append(lake, "alert_transitions", [fired])
    finish(root)


def _dead(tenant: str, at: datetime, number: int) -> dict[str, Any]:
    return {
        "event_id": f"dead-{number}",
        "event_type": "dead_lettered",
        "broker": BROKER,
        "queue": QUEUE,
        "tenant": tenant,
        "message_id": f"m-{number}",
        "attempt": 3,
        "enqueued_at": at - timedelta(seconds=9),
        "occurred_at": at,
        "reason": random.Random(number).choice(REASONS),
        "clock": "broker",
        "source": "tests",
        "ingested_at": at,
        "ingest_date": at.date(),
    }


def _readings(start: datetime, second: int) -> list[dict[str, Any]]:
    at = start + timedelta(seconds=second)
    told = {"sampled_at": at, "broker": BROKER, "staleness_seconds": 0.0, "source": "tests", "ingested_at": at}
    polls = {"polls_total": second * 20, "empty_polls_total": second * 3}
    busy = {"consumers": 4, "prefetch": 250, "in_flight_limit": 160, "visibility_timeout_seconds": 30.0}
    return [
        {**told, **polls, **busy, "queue": QUEUE, "depth": 3, "in_flight": 6, "ingest_date": at.date()},
        {
            **told,
            "queue": f"{QUEUE}.dlq",
            "depth": second // 4,
            "dead_letter_for": QUEUE,
            "ingest_date": at.date(),
        },
    ]


def _append(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    lake.append(name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
