"""One reading of one queue, and its shape in ``queue_samples``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from collectors.records import stamp
from lake.catalogue import PAUSED, SAMPLE_METRICS
from lake.tables import QUEUE_SAMPLES


@dataclass(frozen=True, slots=True)
class TenantShare:
    """What one reading told of one tenant in a queue; None is unknown, for the reason that the queue's own is."""

    tenant: str
    depth: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    oldest_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What the broker said of one queue, or of one subscriber of it.

    ``sampled_at`` is in microseconds since 1970, on the broker's clock where it tells one. The other fields are the
    catalogue's (:data:`lake.catalogue.SAMPLE_METRICS`); None is unknown, and ``unavailable`` says why. It says as well
    why those of ``unknown_partitions`` are unknown. ``tenants`` is None where no tenant is asked for; where one is and
    not every message was looked into, ``unavailable`` has the reason under "tenants".
    """

    queue: str
    sampled_at: int
    subscriber: str | None = None
    depth: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    oldest_age_seconds: float | None = None
    retrying: int | None = None
    oldest_first_attempt_age_seconds: float | None = None
    oldest_in_flight_age_seconds: float | None = None
    consumers: int | None = None
    polls_total: int | None = None
    empty_polls_total: int | None = None
    published_total: int | None = None
    delivered_total: int | None = None
    acked_total: int | None = None
    redelivered_total: int | None = None
    dead_letter_for: str | None = None
    in_flight_limit: int | None = None
    prefetch: int | None = None
    visibility_timeout_seconds: float | None = None
    staleness_seconds: float | None = 0.0
    consumer_utilisation_ratio: float | None = None
    publish_latency_seconds: float | None = None
    retention_margin: int | None = None
    queue_type: str | None = None
    state: str | None = None
    status: str | None = None
    lost_total: int | None = None
    unknown_partitions: int | None = None
    transactional_lag: int | None = None
    transactional_age_seconds: float | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    tenants: tuple[TenantShare, ...] | None = None


def status_of(state: str | None, missing: dict[str, str]) -> str | None:
    """The status of a queue whose broker's own word is ``state``; its reason is taken from what is ``missing`` where
    that is known."""
    if state != "paused":
        return None
    missing.pop("status", None)
    return PAUSED


_NO_TRANSACTIONS = "no transaction of this broker hides messages from readers"
#: What a log in partitions alone can tell, and why a queue does not.
NO_LOG = {
    "unknown_partitions": "the queue has no partitions",
    "transactional_lag": _NO_TRANSACTIONS,
    "transactional_age_seconds": _NO_TRANSACTIONS,
}
_NO_ATTEMPTS = "this broker does not tell first attempts from repeated ones"
#: What a store that keeps each message's attempts alone can tell.
UNSPLIT = {
    "retrying": _NO_ATTEMPTS,
    "oldest_first_attempt_age_seconds": _NO_ATTEMPTS,
    "oldest_in_flight_age_seconds": "when each attempt began is not told",
}
METRIC_NAMES = tuple(metric.name for metric in SAMPLE_METRICS)


def unread(
    queue: str, sampled_at: int, reason: str, *, subscriber: str | None = None, dead_letter_for: str | None = None
) -> Sample:
    """A queue that is there and could not be read: everything is unknown, for ``reason``, but whose letters it holds,
    where that is known all the same."""
    missing = dict.fromkeys(METRIC_NAMES, reason)
    if dead_letter_for is not None:
        del missing["dead_letter_for"]
    return Sample(
        queue, sampled_at, subscriber, dead_letter_for=dead_letter_for, staleness_seconds=None, unavailable=missing
    )


def was_read(sample: Sample) -> bool:
    """Whether the broker told anything of this queue: whose dead letters it holds is known without it."""
    return any(getattr(sample, name) is not None for name in METRIC_NAMES if name != "dead_letter_for")


def samples_table(samples: Sequence[Sample], broker: str, source: str, interval: float | None = None) -> pa.Table:
    """``samples`` as rows of ``queue_samples``; ``interval`` seconds from one reading to the next, if that is meant."""
    columns: dict[str, Any] = {}
    for name in ("queue", "sampled_at", "subscriber", *METRIC_NAMES):
        values = [getattr(sample, name) for sample in samples]
        columns[name] = pa.array(values, type=QUEUE_SAMPLES.schema.field(name).type)
    columns["tenants"] = _tenants(samples)
    columns["unavailable"] = _reasons([sample.unavailable for sample in samples])
    columns["broker"] = pa.repeat(pa.scalar(broker), len(samples))
    columns["sample_interval_seconds"] = pa.repeat(pa.scalar(interval, pa.float64()), len(samples))
    return pa.table(columns | stamp(source, len(samples)))


def _reasons(maps: Sequence[Mapping[str, str]]) -> pa.Array:
    """The column ``unavailable``. Thousands of queues lack the same for the same reasons: each set is made once."""
    places: dict[tuple[tuple[str, str], ...], int] = {}
    taken = [places.setdefault(tuple(reasons.items()), len(places)) for reasons in maps]
    distinct = pa.array([list(pairs) for pairs in places], type=QUEUE_SAMPLES.schema.field("unavailable").type)
    return distinct.take(pa.array(taken, type=pa.int64()))


def _tenants(samples: Sequence[Sample]) -> pa.Array:
    kind = QUEUE_SAMPLES.schema.field("tenants").type
    if all(sample.tenants is None for sample in samples):
        return pa.nulls(len(samples), kind)
    shares = [None if sample.tenants is None else [asdict(share) for share in sample.tenants] for sample in samples]
    return pa.array(shares, type=kind)
