"""The metric catalogue: every number that collectors read or keep, declared once with name, unit, type and meaning.

The columns of ``queue_samples``, the Prometheus exposition and docs/metrics.md all derive from this one table. Names
follow the Prometheus practice: base units, ``_seconds`` and ``_ratio`` where there is a unit, ``_total`` on counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

#: gauge: may rise and fall; counter: rises, and a fall is a restart; text: a fact that is not a number;
#: histogram: durations in buckets (of our own work alone).
Kind = Literal["gauge", "counter", "text", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: ``unit`` is empty where ``kind`` is text, ``labels`` are those beside the family's own."""

    name: str
    kind: Kind
    unit: str
    help: str
    type: pa.DataType
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _count(name: str, help: str, unit: str = "messages") -> Metric:
    return Metric(name, "gauge", unit, help, pa.int64())


def _total(name: str, help: str, unit: str = "messages") -> Metric:
    return Metric(name, "counter", unit, help, pa.int64())


def _seconds(name: str, help: str) -> Metric:
    return Metric(name, "gauge", "seconds", help, pa.float64())


def _ratio(name: str, help: str) -> Metric:
    return Metric(name, "gauge", "ratio", help, pa.float64())


def _text(name: str, help: str) -> Metric:
    return Metric(name, "text", "", help, pa.string())


#: The status of a queue that somebody has paused: nothing of it is taken, and nothing is broken.
PAUSED = "PAUSED"

#: What one reading of one queue may tell. Exposed as ``sojourn_queue_<name>{broker, queue, subscriber}``; a text as a
#: label of ``sojourn_queue_info``. Each is null where the broker does not tell, with the reason in ``unavailable``.
SAMPLE_METRICS: tuple[Metric, ...] = (
    _count("depth", "Messages that wait to be received"),
    _count("in_flight", "Messages received and not yet acknowledged"),
    _count("delayed", "Messages that may not be received yet"),
    _seconds(
        "oldest_age_seconds", "Age of the oldest message that is due and not acknowledged; `delayed` are left out"
    ),
    _count("retrying", "Messages that failed and wait for another attempt; counted in `depth` and `delayed`, too"),
    _seconds(
        "oldest_first_attempt_age_seconds",
        "Age of the oldest message that is due and was never attempted; retries are left out",
    ),
    _seconds("oldest_in_flight_age_seconds", "Time since the oldest attempt that has not ended began"),
    _count("consumers", "Consumers attached", "consumers"),
    _total("polls_total", "Polls made by consumers", "polls"),
    _total("empty_polls_total", "Polls that brought nothing, weighted by how long they waited", "polls"),
    _total("published_total", "Messages enqueued"),
    _total("delivered_total", "Deliveries, first and repeated", "deliveries"),
    _total("acked_total", "Messages acknowledged"),
    _total("redelivered_total", "Deliveries of messages that had been delivered before", "deliveries"),
    _text("dead_letter_for", "Set on a dead-letter queue: the queue it serves, or several with commas between"),
    _count("in_flight_limit", "The most messages that may be in flight at once"),
    _count("prefetch", "Messages handed to a consumer ahead of its acknowledgements"),
    _seconds("visibility_timeout_seconds", "Time after which an unacknowledged message is delivered again"),
    _seconds("staleness_seconds", "Age of the broker's own statistic when it was read"),
    _ratio("consumer_utilisation_ratio", "Share of the time in which consumers could take a message at once"),
    _seconds("publish_latency_seconds", "Time from a publish to the broker's confirmation of it: rises at congestion"),
    _count("retention_margin", "Messages between the oldest unread one and the broker's retention deleting it"),
    _text("queue_type", "The broker's kind of queue: quorum, classic, stream, fifo, list …"),
    _text("state", "The broker's own word for the state of the queue or consumer group"),
    _text(
        "status",
        "Judgement of the consumer over a window of its commits: OK, WARN, REWIND, STALL, BLOCKED, STOP or LOST; of a "
        "queue that somebody has paused: " + PAUSED,
    ),
    _total("lost_total", "Messages that the broker's retention deleted before the subscriber acknowledged them"),
    _count(
        "unknown_partitions",
        "Partitions of which what waits is not known: depth, age and margin are those of the others",
        "partitions",
    ),
    _count("transactional_lag", "Messages behind an open transaction: who reads committed messages alone waits for it"),
    _seconds("transactional_age_seconds", "Age of the first message of the oldest open transaction"),
)


def _own(
    name: str,
    kind: Kind,
    unit: str,
    help: str,
    *,
    labels: tuple[str, ...] = ("collector",),
    buckets: tuple[float, ...] = (),
) -> Metric:
    return Metric(name, kind, unit, help, pa.float64(), labels, buckets)


#: What the collectors say of themselves, under these very names.
OWN_METRICS: tuple[Metric, ...] = (
    _own(
        "sojourn_collector_step_seconds",
        "histogram",
        "seconds",
        "How long a collector's cycle took",
        buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    ),
    _own(
        "sojourn_collector_interval_seconds",
        "gauge",
        "seconds",
        "From one cycle of a sampler to the next, as it is now",
    ),
    _own("sojourn_collector_success", "gauge", "", "1 if the collector's last cycle succeeded"),
    _own("sojourn_collector_records_total", "counter", "records", "Records written to the lake"),
    _own("sojourn_collector_buffered", "gauge", "events", "Events read and not yet in the lake"),
    _own("sojourn_collector_conflated_total", "counter", "events", "Events rolled up because a buffer was full"),
    _own("sojourn_collector_rejected_total", "counter", "records", "Records that could not be read"),
    _own("sojourn_collector_skewed_total", "counter", "events", "Events whose age was below zero: a clock is off"),
    _own(
        "sojourn_collector_ahead_total",
        "counter",
        "records",
        "Records refused because they lie more than 5 s ahead of the collector's clock",
    ),
    _own("sojourn_collector_duplicates_total", "counter", "events", "Events that came again and were dropped"),
    _own("sojourn_collector_ignored_total", "counter", "spans", "Spans received that tell of no message"),
    _own("sojourn_collector_lost_total", "counter", "records", "Records that the source discarded unread"),
    _own("sojourn_collector_unmatched", "gauge", "events", "Ends of messages that were not known"),
    _own(
        "sojourn_collector_forgotten",
        "gauge",
        "messages",
        "Unfinished messages that are followed no more: there were more of them than a tap may remember",
    ),
    _own("sojourn_collector_queues", "gauge", "queues", "Queues and subscribers in the last reading"),
    _own("sojourn_collector_unread_queues", "gauge", "queues", "Queues that the last reading could not read"),
    _own("sojourn_collector_skipped_cycles_total", "counter", "cycles", "Cycles left out because one took too long"),
    _own(
        "sojourn_collector_commit_seconds",
        "histogram",
        "seconds",
        "How long a commit to the lake took",
        buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    ),
    _own(
        "sojourn_collector_commit_lag_seconds",
        "gauge",
        "seconds",
        "Age of the newest event in the last commit, on the broker's clock against ours",
    ),
    _own(
        "sojourn_messages_total",
        "counter",
        "events",
        "Lifecycle events seen; tenants beyond the cap are counted as the tenant 'other'",
        labels=("broker", "queue", "subscriber", "tenant", "event_type"),
    ),
)
