"""Ages where history was rolled up, by brute force: every kind in the buckets that partials of its time have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from lake.histogram import quantile
from lake.store import Lake
from tests.reference.lives import SECOND, Event, Queue, Row, age_columns, micros, moment, named
from tests.reference.reference import Reference

KIND = "first_subscriber_first_attempt"

#: Broker and unix second → seconds of the bucket that holds it.
Width = Callable[[str, int], int]


def ages(reference: Reference, width: Width, *, now: bool = False) -> list[Row]:
    """The rows of `attempt_age`, or with ``now`` of its twin."""
    buckets: dict[tuple[Queue, str, str, int, int], list[int]] = {}

    def add(event: Event, kind: str, queue: Queue) -> None:
        if event.age is not None:
            seconds = width(queue.broker, event.second)
            place = (queue, event.tenant, kind, event.second // seconds * seconds, seconds)
            buckets.setdefault(place, []).append(event.age)

    earliest: dict[tuple[str, str, str], Event] = {}
    for event in reference.receipts:
        if event.type == "completed":
            add(event, "completion", event.queue)
        elif event.type == "received" and (event.attempt or 0) >= 2:
            add(event, "retry", event.queue)
        elif event.type == "received" and event.attempt == 1:
            add(event, "first_attempt", event.queue)
            message = (event.queue.broker, event.queue.queue, event.message)
            if message not in earliest or event.at < earliest[message].at:
                earliest[message] = event
    for event in earliest.values():
        add(event, KIND, event.queue._replace(subscriber=""))
    newest: dict[tuple[Queue, str, str], int] = {}
    for queue, tenant, kind, start, _ in buckets:
        newest[queue, tenant, kind] = max(start, newest.get((queue, tenant, kind), start))
    return [
        {
            "bucket_start": moment(start * SECOND),
            "bucket_seconds": seconds,
            **named(queue),
            "tenant": tenant,
            "kind": kind,
            **age_columns(values),
        }
        for (queue, tenant, kind, start, seconds), values in buckets.items()
        if not now or newest[queue, tenant, kind] == start
    ]


def first_receipts(reference: Reference, width: Width) -> list[Row]:
    """The rows of `attempt_age` of the first attempts over all subscribers."""
    return [row for row in ages(reference, width) if row["kind"] == KIND]


def widths(lake: Lake) -> Width:
    """How long the buckets of partials are, at most, that have a second or a later one."""
    until: dict[str, tuple[int, int]] = {}
    for row in lake.read("partials", columns=["broker", "bucket_start", "bucket_seconds"]).to_pylist():
        last = micros(row["bucket_start"]) // SECOND + row["bucket_seconds"] - 1
        minutes, hours = until.get(row["broker"], (-1, -1))
        until[row["broker"]] = (
            max(minutes, last if row["bucket_seconds"] >= 60 else -1),
            max(hours, last if row["bucket_seconds"] >= 3600 else -1),
        )

    def width(broker: str, second: int) -> int:
        minutes, hours = until.get(broker, (-1, -1))
        return 3600 if second <= hours else 60 if second <= minutes else 1

    return width


def leveled(rows: list[Row], width: Width) -> list[Row]:
    """``rows`` of `attempt_age` added up to the buckets that partials have, as whoever sums rows does it."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        second = micros(row["bucket_start"]) // SECOND
        seconds = max(row["bucket_seconds"], width(row["broker"], second))
        place = tuple(row[name] for name in ("broker", "queue", "subscriber", "tenant", "kind"))
        groups.setdefault((*place, second // seconds * seconds, seconds), []).append(row)
    return [_sum(group, start, seconds) for (*_, start, seconds), group in groups.items()]


def _sum(rows: list[Row], start: int, seconds: int) -> Row:
    histogram: Counter[int] = Counter()
    for row in rows:
        for cell in row["histogram"]:
            histogram[cell["index"]] += cell["count"]
    count = sum(row["count"] for row in rows)
    return rows[0] | {
        "bucket_start": moment(start * SECOND),
        "bucket_seconds": seconds,
        "count": count,
        "mean_seconds": sum(row["mean_seconds"] * row["count"] for row in rows) / count,
        **{f"p{percent}_seconds": quantile(histogram, percent / 100) for percent in (50, 90, 99)},
        "max_seconds": max(row["max_seconds"] for row in rows),
        "skewed": sum(row["skewed"] for row in rows),
        "histogram": [{"index": index, "count": number} for index, number in histogram.items()],
    }
