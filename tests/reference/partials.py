"""Events to the rows of `partials` and `marks`, in plain Python: what Spark's transforms compute, for fast tests.

The views are judged over these rows in milliseconds; one test holds them to what Spark itself writes.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.histogram import bucket_index
from lake.store import Lake
from lake.tables import AGE_KINDS, EVENT_TYPES, FINISHING_TYPES, MARKS, PARTIALS, QUEUE_SAMPLES
from tests.reference.lives import SECOND, micros, moment, without_duplicates
from tests.support.finishing import finish

Row = dict[str, Any]


def partials_of(events: list[Row]) -> list[Row]:
    """One row for each (broker, queue, subscriber, tenant, second) of ``events``, which hold no duplicates."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for event in events:
        second = micros(event["occurred_at"]) // SECOND
        groups.setdefault((*_place(event), second), []).append(event)
    return [_partial(place[:4], place[4], group) for place, group in groups.items()]


def _place(event: Row) -> tuple[str, str, str, str]:
    return event["broker"], event["queue"], event.get("subscriber") or "", event.get("tenant") or "unknown"


def _partial(place: tuple[Any, ...], second: int, events: list[Row]) -> Row:
    attempts = [event.get("attempt") for event in events if event["event_type"] == "received"]
    ended = [event for event in events if event["event_type"] in ("completed", "failed")]
    processing = [event["processing_seconds"] for event in ended if event.get("processing_seconds") is not None]
    row: Row = dict(zip(("broker", "queue", "subscriber", "tenant"), place, strict=True))
    row |= {name: sum(event["event_type"] == name for event in events) for name in EVENT_TYPES}
    row |= {
        "bucket_start": moment(second * SECOND),
        "bucket_seconds": 1,
        "newest_occurred_at": max(event["occurred_at"] for event in events),
        "started": sum(attempt in (1, None) for attempt in attempts),
        "retries": sum((attempt or 0) >= 2 for attempt in attempts),
        "finished_unreceived": sum(
            event["event_type"] in FINISHING_TYPES[1:] and not event.get("attempt") for event in events
        ),
        "processing_count": len(processing),
        "processing_sum": sum(processing, 0.0),
        "processing_max": max(processing, default=None),
        "processing_histogram": _histogram(processing),
        "backlog_cells": _cells(events),
    }
    for kind in AGE_KINDS:
        ages = [age for event in events if _kind(event) == kind and (age := _age(event)) is not None]
        clamped = [max(0.0, age) for age in ages]
        row |= {
            f"{kind}_age_count": len(ages),
            f"{kind}_age_sum": sum(clamped, 0.0),
            f"{kind}_age_max": max(clamped, default=None),
            f"{kind}_age_skewed": sum(age < 0 for age in ages),
            f"{kind}_age_histogram": _histogram(clamped),
        }
    return row


def _kind(event: Row) -> str | None:
    attempt = event.get("attempt")
    if event["event_type"] == "completed":
        return "completion"
    if event["event_type"] != "received" or attempt is None or attempt < 1:
        return None
    return "first_attempt" if attempt == 1 else "retry"


def _age(event: Row) -> float | None:
    if event.get("enqueued_at") is None:
        return None
    difference: timedelta = event["occurred_at"] - event["enqueued_at"]
    return difference.total_seconds()


def _histogram(values: list[float]) -> list[Row]:
    return [{"index": index, "count": count} for index, count in Counter(map(bucket_index, values)).items()]


def _cells(events: list[Row]) -> list[Row]:
    nets: Counter[int | None] = Counter()
    for event in events:
        known: datetime | None = event.get("enqueued_at")
        if event["event_type"] == "enqueued":
            nets[micros(known or event["occurred_at"]) // SECOND] += 1
        elif event["event_type"] in FINISHING_TYPES:
            nets[None if known is None else micros(known) // SECOND] -= 1
    return [{"second": second, "net": net} for second, net in nets.items() if net]


def marks_of(events: list[Row]) -> list[Row]:
    """The events that must be remembered one by one."""
    return [_mark(event) for event in events if _is_marked(event)]


def _is_marked(event: Row) -> bool:
    event_type, attempt = event["event_type"], event.get("attempt")
    if event_type == "received":
        return attempt is not None and (attempt >= 2 or (attempt == 1 and bool(event.get("subscriber"))))
    if event_type == "completed":
        return attempt is None or attempt >= 2
    return event_type != "enqueued"


def _mark(event: Row) -> Row:
    broker, queue, subscriber, tenant = _place(event)
    row: Row = {"broker": broker, "queue": queue, "subscriber": subscriber, "tenant": tenant}
    row |= {name: event.get(name) for name in ("message_id", "event_type", "attempt", "occurred_at")}
    if event["event_type"] == "received" and (age := _age(event)) is not None:
        row |= {"age_seconds": max(0.0, age), "age_index": bucket_index(max(0.0, age)), "age_skewed": age < 0}
    return row


def fill(
    root: Path, events: list[Row], samples: list[Row], *, batches: int = 3, seed: int = 0, finished: bool = False
) -> Lake:
    """A lake whose gold tables hold ``events``, scattered over several micro-batches, and whose bronze ``samples``;
    ``finished``: with what the analysis makes of them."""
    lake = Lake(root)
    rng = random.Random(seed)
    parts: list[list[Row]] = [[] for _ in range(batches)]
    for event in without_duplicates(events):
        rng.choice(parts).append(event)
    for part in parts:
        lake.append("partials", pa.Table.from_pylist(partials_of(part), PARTIALS.schema))
        lake.append("marks", pa.Table.from_pylist(marks_of(part), MARKS.schema))
    add_samples(lake, samples)
    if finished:
        finish(root)
    return lake


def add_samples(lake: Lake, samples: list[Row]) -> None:
    """Append ``samples`` as a collector does."""
    ours = [
        {"source": "test"} | sample | {"ingested_at": sample["sampled_at"], "ingest_date": sample["sampled_at"].date()}
        for sample in samples
    ]
    lake.append("queue_samples", pa.Table.from_pylist(ours, QUEUE_SAMPLES.schema))
