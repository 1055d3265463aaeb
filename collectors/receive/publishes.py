"""What applications tell of their publishes, merged by queue and second, as samples that a law is judged by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from collectors.receive.values import LATEST_MICROS, Bad, count, pairs, text, whole
from collectors.records import stamp
from collectors.samples import METRIC_NAMES
from lake.histogram import ZERO_INDEX, bucket_index, merge, quantile
from lake.store import conform
from lake.tables import QUEUE_SAMPLES
from sojourn.client.partial import LONGEST_PUBLISH

_SECOND = 1_000_000
_LONGEST = bucket_index(LONGEST_PUBLISH)
_TOLD_ALONE = "told by the application, which counts its publishes alone"
_ALL_FAILED = "none of the publishes was confirmed, or how long they took is not told"


@dataclass(frozen=True, slots=True)
class PublishCount:
    """Publishes to one (broker, queue) that were counted ``until`` then (microseconds), the ``errors`` among them, and
    the durations of others by bucket (:mod:`lake.histogram`)."""

    where: tuple[str, str]
    until: int
    publishes: int
    errors: int
    histogram: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Publish:
    """One publish that a span told of: it ended at ``at`` (microseconds) after ``seconds``, None where it failed, and
    stands for ``weight`` of them."""

    broker: str
    queue: str
    at: int
    seconds: float | None
    weight: int
    context: bytes


def publishes(entry: dict[str, Any]) -> PublishCount:
    """One entry of the client's list ``publishes``; Bad."""
    get = entry.get
    where = text(get("broker"), "broker"), text(get("queue"), "queue")
    until = whole(get("until"), "until", 0, LATEST_MICROS)
    ended, errors = count(get("publishes"), "publishes"), count(get("errors"), "errors")
    histogram: dict[int, int] = {}
    for index, number in pairs(get("seconds_histogram"), "seconds_histogram"):
        place = whole(index, "seconds_histogram", ZERO_INDEX, _LONGEST + 1)
        histogram[place] = histogram.get(place, 0) + count(number, "seconds_histogram")
    if errors + sum(histogram.values()) > ended:
        raise Bad("publishes: at least as many are expected as failed and took some time")
    return PublishCount(where, until, ended, errors, histogram)


def single(publish: Publish) -> PublishCount:
    """``publish`` as it is counted."""
    where, weight, seconds = (publish.broker, publish.queue), publish.weight, publish.seconds
    if seconds is None:
        return PublishCount(where, publish.at, weight, weight)
    return PublishCount(where, publish.at, weight, 0, {bucket_index(min(seconds, LONGEST_PUBLISH)): weight})


def publishes_table(counts: Iterable[PublishCount], now: int, source: str) -> pa.Table:
    """``counts`` as rows of ``queue_samples``, one a queue and second of their own time, none after ``now``.

    What was told late keeps its time: what a law reads must be of now.
    """
    merged: dict[tuple[str, str, int], list[PublishCount]] = {}
    for one in counts:
        until = min(one.until, now)
        merged.setdefault((*one.where, until // _SECOND), []).append(one)
    rows = [_row(*key[:2], min(now, max(one.until for one in told)), told) for key, told in merged.items()]
    names = ("broker", "queue", "sampled_at", "publishes", "publish_errors", "publish_latency_seconds", "unavailable")
    schema = QUEUE_SAMPLES.schema
    table = pa.Table.from_pylist(rows, schema=pa.schema([schema.field(name) for name in names]))
    for name, column in stamp(source, len(rows)).items():
        table = table.append_column(name, column)
    return conform(table, schema)


def _row(broker: str, queue: str, at: int, told: list[PublishCount]) -> dict[str, Any]:
    median = quantile(merge(one.histogram for one in told), 0.5)
    unavailable = dict.fromkeys(METRIC_NAMES, _TOLD_ALONE)
    if median is None:
        unavailable["publish_latency_seconds"] = _ALL_FAILED
    else:
        del unavailable["publish_latency_seconds"]
    return {
        "broker": broker,
        "queue": queue,
        "sampled_at": at,
        "publishes": sum(one.publishes for one in told),
        "publish_errors": sum(one.errors for one in told),
        "publish_latency_seconds": median,
        "unavailable": list(unavailable.items()),
    }
