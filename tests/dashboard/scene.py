"""A lake with a story in it: eight tenants share ``orders``, ``acme-7`` turns loud, a rule fires, a limit is set.

Messages go through a first-in-first-out queue with a fixed number of workers; what the analytics would have made of
their events is written to the lake's own tables.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.models import fingerprint
from lake.histogram import bucket_index
from lake.store import Lake
from lake.tables import TABLES
from tests.support.finishing import finish

BROKER = "nats"
WORKERS = 40
PROCESSING_SECONDS = 1.0
NOISY = "acme-7"
TENANTS = ("acme-7", "birch", "cedar", "delta-co", "elm", "fern", "gale", "heron")


_NEVER = ("failed", "dead_lettered", "expired", "sidelined", "delayed", "retries", "finished_unreceived")


@dataclass
class _Cell:
    """One partial in the making."""

    counts: Counter[str] = field(default_factory=Counter)
    ages: list[float] = field(default_factory=list)
    processing: list[float] = field(default_factory=list)
    nets: Counter[int] = field(default_factory=Counter)
    newest: float = 0.0


#: What is left of a limit at the end of the story.
LEASE = timedelta(seconds=30)


def write_story(
    root: Path,
    *,
    end: datetime,
    seconds: int = 420,
    noisy_from: int = 240,
    seed: int = 3,
    queue: str = "orders",
    names: Mapping[str, str] | None = None,
    lease: timedelta = LEASE,
) -> Lake:
    """A lake at ``root`` whose newest event is at ``end``; ``acme-7`` sends twelve times its share at the last.

    ``lease`` is what is left of its limit then, or when it is written. ``queue`` and ``names`` are what the queue
    ``orders`` and the tenants are called instead.
    """
    lake = Lake(root)
    lake.create()
    start = end - timedelta(seconds=seconds)
    named = names or {}
    rows = _partials(queue, start, seconds, noisy_from, seed)
    _append(lake, "partials", [{**row, "tenant": named.get(row["tenant"], row["tenant"])} for row in rows])
    _append(
        lake, "partials", _partials("emails", start, seconds, seconds + 1, seed + 1, tenants=TENANTS[1:4], share=0.5)
    )
    _append(
        lake,
        "queue_samples",
        [{**row, "queue": row["queue"].replace("orders", queue)} for row in _samples(start, seconds)],
    )
    turned = start + timedelta(seconds=noisy_from)
    loud = named.get(NOISY, NOISY)
    _append(lake, "alert_transitions", alerts_of(turned, queue, loud))
    finish(root)
    took = datetime.now(UTC) - end
    if timedelta() < took < timedelta(minutes=10):  # a story that ends now
        lease += took
    _append(lake, "actions", [{**row, "queue": queue, "tenant": loud} for row in actions_of(turned, end, lease)])
    return lake


def _partials(
    queue: str,
    start: datetime,
    seconds: int,
    noisy_from: int,
    seed: int,
    *,
    tenants: Iterable[str] = TENANTS,
    share: float = 2.5,
) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    sent: list[tuple[float, str]] = []
    for tenant in tenants:
        for second in range(seconds):
            loud = tenant == NOISY and second >= noisy_from
            for _ in range(_poisson(chance, share * (12 if loud else 1))):
                sent.append((second + chance.random(), tenant))
    cells: dict[tuple[str, int], _Cell] = defaultdict(_Cell)
    workers = [0.0] * WORKERS
    heapq.heapify(workers)
    for at, tenant in sorted(sent):
        _event(cells, tenant, at, seconds, "enqueued", enqueued=at)
        received = max(at + 0.02 + chance.random() * 0.03, heapq.heappop(workers))
        took = PROCESSING_SECONDS * (0.6 + 0.8 * chance.random())
        heapq.heappush(workers, received + took)
        _event(cells, tenant, received, seconds, "received", enqueued=at)
        _event(cells, tenant, received + took, seconds, "completed", enqueued=at, processing=took)
    origin = int(start.timestamp())
    return [_row(queue, tenant, origin, second, cell) for (tenant, second), cell in sorted(cells.items())]


def _event(
    cells: dict[tuple[str, int], _Cell],
    tenant: str,
    at: float,
    seconds: int,
    kind: str,
    *,
    enqueued: float,
    processing: float | None = None,
) -> None:
    if at >= seconds:
        return
    cell = cells[tenant, int(at)]
    cell.counts[kind] += 1
    cell.newest = max(cell.newest, at)
    if kind == "received":
        cell.ages.append(at - enqueued)
    else:
        cell.nets[int(enqueued)] += 1 if kind == "enqueued" else -1
    if processing is not None:
        cell.processing.append(processing)


def _row(queue: str, tenant: str, origin: int, second: int, cell: _Cell) -> dict[str, Any]:
    ages, processing = cell.ages, cell.processing
    counts = {name: cell.counts[name] for name in ("enqueued", "received", "completed")}
    zeros = dict.fromkeys(
        ("failed", "dead_lettered", "expired", "sidelined", "delayed", "retries", "finished_unreceived"), 0
    )
    return {
        "broker": BROKER,
        "queue": queue,
        "subscriber": "",
        "tenant": tenant,
        "bucket_start": datetime.fromtimestamp(origin + second, UTC),
        "bucket_seconds": 1,
        "newest_occurred_at": datetime.fromtimestamp(origin + cell.newest, UTC),
        **counts,
        **zeros,
        "started": counts["received"],
        "first_attempt_age_count": len(ages),
        "first_attempt_age_sum": sum(ages),
        "first_attempt_age_max": max(ages, default=None),
        "first_attempt_age_skewed": 0,
        "first_attempt_age_histogram": _histogram(ages),
        "processing_count": len(processing),
        "processing_sum": sum(processing),
        "processing_max": max(processing, default=None),
        "processing_histogram": _histogram(processing),
        "backlog_cells": [{"second": origin + at, "net": net} for at, net in cell.nets.items() if net],
    }


def _histogram(values: list[float]) -> list[dict[str, int]]:
    return [{"index": index, "count": n} for index, n in Counter(map(bucket_index, values)).items()]


def _samples(start: datetime, seconds: int) -> list[dict[str, Any]]:
    rows = []
    for second in range(0, seconds, 5):
        at = start + timedelta(seconds=second)
        for queue, depth in (("orders", max(0, (second - 240) * 8)), ("emails", 0), ("orders.dlq", 0)):
            rows.append(
                {
                    "sampled_at": at,
                    "broker": BROKER,
                    "queue": queue,
                    "depth": depth,
                    "in_flight": 30 if queue == "orders" else 0,
                    "in_flight_limit": 1000 if queue == "orders" else None,
                    "dead_letter_for": "orders" if queue.endswith("dlq") else None,
                    "staleness_seconds": 0.0,
                    "source": "nats-sampler",
                    "ingested_at": at,
                    "ingest_date": at.date(),
                }
            )
    return rows


def alerts_of(turned: datetime, queue: str = "orders", tenant: str = NOISY) -> list[dict[str, Any]]:
    """A watchdog, and the alert that names the noisy tenant 12 s after it turned loud."""
    labels = {
        "alertname": "TenantHoldsSharedQueue",
        "severity": "critical",
        "broker": BROKER,
        "queue": queue,
        "tenant": tenant,
    }
    notes = {"summary": f"Tenant {tenant} holds the shared queue {queue} while others wait"}
    dog = {"alertname": "Watchdog", "severity": "none"}
    return [
        _transition(turned - timedelta(seconds=200), dog, {}, "inactive", "firing", None, "always fires"),
        _transition(turned + timedelta(seconds=2), labels, notes, "inactive", "pending", 0.41, "0.41 is above 0.25"),
        _transition(turned + timedelta(seconds=12), labels, notes, "pending", "firing", 0.63, "true for 10 s"),
    ]


def _transition(
    at: datetime,
    labels: dict[str, str],
    notes: dict[str, str],
    before: str,
    after: str,
    value: float | None,
    reason: str,
) -> dict[str, Any]:
    return {
        "at": at,
        "data_as_of": at,
        "rule_group": "noisy",
        "rule": labels["alertname"],
        "fingerprint": fingerprint(labels),
        "labels": list(labels.items()),
        "annotations": list(notes.items()),
        "from_state": before,
        "to_state": after,
        "value": value,
        "reason": reason,
    }


def actions_of(turned: datetime, end: datetime, lease: timedelta = LEASE) -> list[dict[str, Any]]:
    """A throttle of the noisy tenant 13 s after it turned loud, tightened once, valid for ``lease`` more."""
    return [
        _action(turned + timedelta(seconds=13), "1", None, 15.0, end + lease),
        _action(turned + timedelta(seconds=73), "2", 15.0, 9.5, end + lease),
    ]


def _action(at: datetime, number: str, before: float | None, after: float | None, until: datetime) -> dict[str, Any]:
    return {
        "at": at,
        "action_id": number,
        "idempotency_key": number,
        "rule": "TenantHoldsSharedQueue",
        "policy": "throttle-noisy",
        "actuator": "limits-api",
        "broker": BROKER,
        "queue": "orders",
        "tenant": NOISY,
        "decision": "throttle",
        "dry_run": False,
        "before": before,
        "after": after,
        "valid_until": until,
        "inputs": [("backlog", "410")],
        "reason": f"{NOISY} holds 63 % of in flight while 7 tenants wait; others keep their rate",
        "outcome": "applied",
    }


def write_samples(
    root: Path, *, end: datetime, seconds: int = 420, tenants: list[dict[str, Any]] | None = None
) -> Lake:
    """A lake of readings alone: nobody tells of messages, and the depth of ``orders`` grows; its ``tenants`` are in the
    newest one."""
    lake = Lake(root)
    lake.create()
    rows = _samples(end - timedelta(seconds=seconds), seconds)
    next(row for row in reversed(rows) if row["queue"] == "orders")["tenants"] = tenants
    _append(lake, "queue_samples", rows)
    finish(root)
    return lake


def write_many_tenants(root: Path, *, end: datetime, tenants: int) -> Lake:
    """A lake with one queue and ``tenants`` tenants, each with a few messages in the last ten seconds."""
    lake = Lake(root)
    lake.create()
    origin = int(end.timestamp()) - 10
    rows = []
    for number in range(tenants):
        cell = _Cell(newest=number % 10 + 0.5)
        cell.counts["enqueued"] = 1 + (number % 7)
        cell.nets[number % 10] = cell.counts["enqueued"]
        rows.append(_row("orders", f"tenant-{number:06d}", origin, number % 10, cell))
    _append(lake, "partials", rows)
    finish(root)
    return lake


def _append(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    lake.append(name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))


def _poisson(chance: random.Random, mean: float) -> int:
    total, count = chance.expovariate(1.0), 0
    while total < mean:
        count += 1
        total += chance.expovariate(1.0)
    return count
