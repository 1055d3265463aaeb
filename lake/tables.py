"""Every Delta table of the lake, declared once: name, place, columns, partitions.

Bronze holds records as collectors wrote them, gold what Spark made of them, alerts what was decided.
Timestamps are UTC in microseconds, seconds are floats, a column is nullable unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.catalogue import SAMPLE_METRICS

TIMESTAMP = pa.timestamp("us", tz="UTC")
#: Buckets of :mod:`lake.histogram`, in any order; an index may repeat, counts add up.
HISTOGRAM = pa.list_(pa.struct([pa.field("index", pa.int32()), pa.field("count", pa.int64())]))
#: Messages added to (+) or taken from (−) the backlog, by the unix second in which they were enqueued.
#: ``second`` is null where the leaving message's enqueue time is unknown.
BACKLOG_CELLS = pa.list_(pa.struct([pa.field("second", pa.int64()), pa.field("net", pa.int64())]))
LABELS = pa.map_(pa.string(), pa.string())
#: What one reading tells of each tenant in one queue; the counts mean what those of the whole queue do.
TENANT_SHARES = pa.list_(
    pa.struct({"tenant": pa.string(), "depth": pa.int64(), "in_flight": pa.int64(), "delayed": pa.int64(),
               "oldest_age_seconds": pa.float64()})
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table: where it stands below the lake's root, its Arrow schema and its partition columns.

    ``folder``: the name of its folder, where a view has the table's own.
    """

    name: str
    layer: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    folder: str | None = None

    @property
    def path(self) -> str:
        """The table's place, relative to the lake's root."""
        return f"{self.layer}/{self.folder or self.name}"


def _schema(*columns: tuple[Any, ...]) -> pa.Schema:
    """A schema of ``(name, type)`` and ``(name, type, REQUIRED)`` columns."""
    return pa.schema([pa.field(name, kind, nullable=not required) for name, kind, *required in columns])


REQUIRED = "required"  # marks a column that must be there

EVENT_TYPES = ("enqueued", "received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed")
#: What every event of a message's life says: what happened, to whom, and when.
OF_A_LIFE = (
    "event_type", "broker", "queue", "subscriber", "tenant", "message_id", "attempt", "enqueued_at", "occurred_at",
)  # fmt: skip
#: A message with one of these is gone from the backlog for good.
FINISHING_TYPES = ("completed", "dead_lettered", "expired", "sidelined")

MESSAGE_EVENTS = TableSpec(
    "message_events",
    "bronze",
    _schema(
        ("event_id", pa.string(), REQUIRED),
        ("event_type", pa.string(), REQUIRED),
        ("broker", pa.string(), REQUIRED),
        ("queue", pa.string(), REQUIRED),
        ("subscriber", pa.string()),
        ("tenant", pa.string()),
        ("message_id", pa.string(), REQUIRED),
        ("attempt", pa.int32()),
        ("enqueued_at", TIMESTAMP),
        ("occurred_at", TIMESTAMP, REQUIRED),
        ("processing_seconds", pa.float64()),
        ("priority", pa.int32()),
        ("worker", pa.string()),
        ("trace_id", pa.string()),
        ("reason", pa.string()),
        ("clock", pa.string(), REQUIRED),
        ("source", pa.string(), REQUIRED),
        ("ingested_at", TIMESTAMP, REQUIRED),
        ("ingest_date", pa.date32(), REQUIRED),
    ),
    ("ingest_date",),
)

QUEUE_SAMPLES = TableSpec(
    "queue_samples",
    "bronze",
    _schema(
        ("sampled_at", TIMESTAMP, REQUIRED),
        ("broker", pa.string(), REQUIRED),
        ("queue", pa.string(), REQUIRED),
        ("subscriber", pa.string()),
        *((metric.name, metric.type) for metric in SAMPLE_METRICS),
        ("unavailable", LABELS),
        # Set on the receiver's reports, which tell no more: of events that sampled traces stood for, and of publishes.
        *((name, pa.int64()) for name in ("estimated", "publishes", "publish_errors")),
        # Null where no tenant is asked for, or not every message was looked into: `unavailable` then says so.
        ("tenants", TENANT_SHARES),
        ("sample_interval_seconds", pa.float64()),  # from one reading to the next, as the sampler means it
        ("source", pa.string(), REQUIRED),
        ("ingested_at", TIMESTAMP, REQUIRED),
        ("ingest_date", pa.date32(), REQUIRED),
    ),
    ("ingest_date",),
)

_PARTIAL_KEY = (
    ("broker", pa.string(), REQUIRED),
    ("queue", pa.string(), REQUIRED),
    ("subscriber", pa.string(), REQUIRED),  # '' = the queue's only consumer
    ("tenant", pa.string(), REQUIRED),  # 'unknown' where the event named none
    ("bucket_start", TIMESTAMP, REQUIRED),
    ("bucket_seconds", pa.int32(), REQUIRED),
)


def _age_columns(kind: str) -> tuple[tuple[Any, ...], ...]:
    return (
        (f"{kind}_age_count", pa.int64()),
        (f"{kind}_age_sum", pa.float64()),
        (f"{kind}_age_max", pa.float64()),
        (f"{kind}_age_skewed", pa.int64()),
        (f"{kind}_age_histogram", HISTOGRAM),
    )


AGE_KINDS = ("first_attempt", "retry", "completion")

_PARTIAL_MEASURES = (
    ("newest_occurred_at", TIMESTAMP, REQUIRED),
    *((event_type, pa.int64(), REQUIRED) for event_type in EVENT_TYPES),
    ("started", pa.int64(), REQUIRED),  # messages whose first attempt began (attempt 1, or not numbered)
    ("retries", pa.int64(), REQUIRED),  # attempts ≥ 2 that began
    ("finished_unreceived", pa.int64(), REQUIRED),  # finished without ever having been received
    *(column for kind in AGE_KINDS for column in _age_columns(kind)),
    ("processing_count", pa.int64()),
    ("processing_sum", pa.float64()),
    ("processing_max", pa.float64()),
    ("processing_histogram", HISTOGRAM),
    ("backlog_cells", BACKLOG_CELLS),
)

#: A message's first attempt over all named subscribers of its queue. Which one that is shows only across events, so
#: maintenance puts it here from `marks` once it is settled, at the subscriber who was first.
FOLDED_KIND = "first_subscriber_first_attempt"

#: What one micro-batch added to one (queue, subscriber, tenant, second): summing rows is always right.
PARTIALS = TableSpec(
    "partials",
    "gold",
    _schema(
        *_PARTIAL_KEY,
        *_PARTIAL_MEASURES,
        *_age_columns(FOLDED_KIND),
        (f"{FOLDED_KIND}_age_fold", pa.int64()),  # the newest fold that put something here
    ),
)

#: A partial that a collector made itself, because its buffer was full; Spark only adds it up.
EVENT_SUMMARIES = TableSpec(
    "event_summaries",
    "bronze",
    _schema(
        *_PARTIAL_KEY,
        *_PARTIAL_MEASURES,
        ("source", pa.string(), REQUIRED),
        ("ingested_at", TIMESTAMP, REQUIRED),
        ("ingest_date", pa.date32(), REQUIRED),
    ),
    ("ingest_date",),
)

#: The few events that must be remembered one by one: failures, retries, delays, endings that are not a plain first
#: completion, and first attempts on queues with named subscribers. Everything else is additive.
MARKS = TableSpec(
    "marks",
    "gold",
    _schema(
        ("broker", pa.string(), REQUIRED),
        ("queue", pa.string(), REQUIRED),
        ("subscriber", pa.string(), REQUIRED),
        ("tenant", pa.string(), REQUIRED),
        ("message_id", pa.string(), REQUIRED),
        ("event_type", pa.string(), REQUIRED),
        ("attempt", pa.int32()),
        ("occurred_at", TIMESTAMP, REQUIRED),
        ("age_seconds", pa.float64()),  # on `received`: occurred_at − enqueued_at, at least 0
        ("age_index", pa.int32()),  # its histogram bucket
        ("age_skewed", pa.bool_()),
        # On a first attempt: the number of the fold that puts it into `partials`; 0: another's is the message's first.
        ("fold", pa.int64()),
    ),
)

#: Stretches of message_events that the analysis left out for now, to read the newest first. A gap is open from its row
#: with ``open`` until there is one without: as long, sums over all that ever happened lack what is in it.
GAPS = TableSpec(
    "gaps",
    "gold",
    _schema(
        ("gap_id", pa.string(), REQUIRED),
        ("at", TIMESTAMP, REQUIRED),  # wall clock
        ("open", pa.bool_(), REQUIRED),
        ("first_version", pa.int64(), REQUIRED),  # versions of message_events, both of them in the gap
        ("last_version", pa.int64(), REQUIRED),
        ("events", pa.int64()),  # rows in it, where the log tells
    ),
)

#: What every row of finished state begins with. The present is the newest row of each key among those of the newest
#: epoch, which begins with a row for every key there is; a revision is one look at the data.
_STATE_ROW = (
    ("epoch", pa.int64(), REQUIRED),  # the revision with which it began
    ("revision", pa.int64(), REQUIRED),
    ("key", pa.int64(), REQUIRED),  # a number for the names below, the same throughout an epoch
    ("as_of", TIMESTAMP, REQUIRED),  # data time: the end of the second, or as far as events go in the newest one
    ("second", pa.int64()),  # the unix second for which the row holds
    ("broker", pa.string(), REQUIRED),
    ("queue", pa.string(), REQUIRED),
    ("subscriber", pa.string()),
)

#: A tenant's backlog and concurrency whenever they changed; rates and sums over the window that ended then.
TENANT_STATE = TableSpec(
    "tenant_state",
    "gold",
    _schema(
        *_STATE_ROW,
        ("tenant", pa.string(), REQUIRED),
        ("queue_key", pa.int64(), REQUIRED),  # of the row of `queue_state`
        ("backlog", pa.int64()),
        ("in_flight", pa.int64()),
        ("ready", pa.int64()),
        ("oldest_second", pa.int64()),  # unix second in which the oldest message of the backlog was enqueued
        ("oldest_age_seconds", pa.float64()),
        ("arrival_rate", pa.float64()),
        ("completion_rate", pa.float64()),
        ("share", pa.float64()),
        ("noisy", pa.bool_()),
        ("drain_state", pa.string()),
        ("drain_eta_seconds", pa.float64()),
        ("coverage", pa.float64()),
        ("reconciled_backlog", pa.int64()),
        ("start_rate", pa.float64()),
        ("mean_processing_seconds", pa.float64()),
        ("p99_processing_seconds", pa.float64()),
        ("littles_law", pa.float64()),
        ("concurrency_limit", pa.int64()),
        ("saturation", pa.float64()),
        ("window_seconds", pa.int64(), REQUIRED),
        ("window_enqueued", pa.float64(), REQUIRED),
        ("window_finished", pa.float64(), REQUIRED),
        ("window_received", pa.float64(), REQUIRED),
        ("window_processing_count", pa.int64(), REQUIRED),
        ("window_processing_sum", pa.float64(), REQUIRED),
        ("processing_bucket", pa.int64()),  # of the histogram, that of the 99th percentile
        ("corrects", pa.int64()),  # as in `queue_state`, as is `happened`
        ("happened", pa.bool_()),
        ("queue_backlog", pa.int64()),
    ),
)

#: A queue's and consumer's health whenever it changed: what events say beside what its broker says.
QUEUE_STATE = TableSpec(
    "queue_state",
    "gold",
    _schema(
        *_STATE_ROW,
        ("newest_event_at", TIMESTAMP),  # of the broker, as are the next
        ("newest_sample_at", TIMESTAMP),
        ("has_events", pa.bool_(), REQUIRED),
        ("depth", pa.int64()),
        ("in_flight", pa.int64()),  # from events, or the broker's count where there are none
        ("in_flight_limit", pa.int64()),
        ("oldest_age_seconds", pa.float64()),
        ("quiet_oldest_age_seconds", pa.float64()),
        ("noisy_tenants", pa.int64()),
        ("empty_poll_ratio", pa.float64()),
        ("retry_ratio", pa.float64()),
        ("dead_lettered", pa.int64()),
        ("dlq_depth", pa.int64()),
        ("mode", pa.string()),
        ("mode_since", TIMESTAMP),
        ("drain_state", pa.string()),
        ("drain_eta_seconds", pa.float64()),
        ("coverage", pa.float64()),
        ("staleness_seconds", pa.float64()),
        ("consumers", pa.int64()),
        ("delayed", pa.int64()),
        ("acked", pa.int64()),
        ("status", pa.string()),
        ("retention_margin", pa.int64()),
        ("prefetch", pa.int64()),
        ("visibility_timeout_seconds", pa.float64()),
        ("dead_letter_for", pa.string()),
        ("lost", pa.int64()),
        ("transactional_lag", pa.int64()),
        ("transactional_age_seconds", pa.float64()),
        ("estimated", pa.int64()),
        # What a reader needs to bring the row to a later data time of its broker.
        ("backlog", pa.int64(), REQUIRED),
        ("events_in_flight", pa.int64(), REQUIRED),
        ("broker_in_flight", pa.int64()),
        ("oldest_second", pa.int64()),
        ("quiet_oldest_second", pa.int64()),
        ("window_seconds", pa.int64(), REQUIRED),
        ("window_enqueued", pa.float64(), REQUIRED),
        ("window_finished", pa.float64(), REQUIRED),
        ("window_received", pa.float64(), REQUIRED),
        ("window_retries", pa.float64(), REQUIRED),
        *((name, pa.int64()) for name in ("there", "there_change", "there_us", "polls", "empty_polls")),
        ("backlog_when_sampled", pa.int64()),
        ("sampled_us", pa.int64()),
        ("told_age_seconds", pa.float64()),
        ("sample_staleness_seconds", pa.float64()),
        # Of a correction: from this unix second on no earlier revision counts any more for this broker and queue.
        ("corrects", pa.int64()),
        ("happened", pa.bool_()),  # whether an event or a sample tells of this second, minute or hour, not time alone
        ("ready", pa.int64()),  # summed over its tenants, and how many those are; null: an earlier version wrote it
        ("tenants", pa.int64()),
        ("sample_interval_seconds", pa.float64()),
    ),
)

#: Ages, a row for each bucket of time whenever it changed: all of it, so the newest revision counts (docs/state.md).
AGE_STATE = TableSpec(
    "age_state",
    "gold",
    _schema(
        *_STATE_ROW,
        ("tenant", pa.string(), REQUIRED),
        ("kind", pa.string(), REQUIRED),
        ("bucket_start", TIMESTAMP, REQUIRED),
        ("bucket_seconds", pa.int32(), REQUIRED),
        ("count", pa.int64(), REQUIRED),  # 0: nothing is left of the bucket, and `second` is −1
        ("mean_seconds", pa.float64()),
        ("p50_seconds", pa.float64()),
        ("p90_seconds", pa.float64()),
        ("p99_seconds", pa.float64()),
        ("max_seconds", pa.float64()),
        ("skewed", pa.int64()),
        ("total_seconds", pa.float64()),
        *((quantile, pa.int64()) for quantile in ("p50", "p90", "p99")),  # the histogram's buckets that hold them
        ("histogram", HISTOGRAM),
        ("happened", pa.bool_()),  # false: repeats what an earlier revision told, for readers of this epoch alone
    ),
    folder="attempt_age",
)

REJECTED_RECORDS = TableSpec(
    "rejected_records",
    "bronze",
    _schema(
        ("received_at", TIMESTAMP, REQUIRED),
        ("source", pa.string(), REQUIRED),
        ("reason", pa.string(), REQUIRED),
        ("raw", pa.string(), REQUIRED),  # at most 64 KiB
        ("count", pa.int64(), REQUIRED),
        ("ingested_at", TIMESTAMP, REQUIRED),
        ("ingest_date", pa.date32(), REQUIRED),
    ),
    ("ingest_date",),
)

ALERT_TRANSITIONS = TableSpec(
    "alert_transitions",
    "alerts",
    _schema(
        ("at", TIMESTAMP, REQUIRED),  # wall clock of the decision
        ("data_as_of", TIMESTAMP),  # data time that the evaluation saw
        ("rule_group", pa.string(), REQUIRED),
        ("rule", pa.string(), REQUIRED),
        ("fingerprint", pa.string(), REQUIRED),
        ("labels", LABELS, REQUIRED),
        ("annotations", LABELS),
        ("from_state", pa.string(), REQUIRED),  # inactive, pending, firing, keep_firing
        ("to_state", pa.string(), REQUIRED),
        ("value", pa.float64()),
        ("reason", pa.string(), REQUIRED),
        ("inputs", LABELS),  # what else the rule's row said, its `threshold` among it; null: nobody told
    ),
)

DELIVERIES = TableSpec(
    "deliveries",
    "alerts",
    _schema(
        ("at", TIMESTAMP, REQUIRED),
        ("delivery_id", pa.string(), REQUIRED),  # the webhook-id: the same for every attempt
        ("receiver", pa.string(), REQUIRED),
        ("group_key", pa.string(), REQUIRED),
        ("status", pa.string(), REQUIRED),  # firing or resolved
        ("alerts", pa.int32(), REQUIRED),
        ("attempt", pa.int32(), REQUIRED),
        ("outcome", pa.string(), REQUIRED),  # delivered, retry, failed, refused
        ("status_code", pa.int32()),
        ("error", pa.string()),
        ("duration_seconds", pa.float64()),
        ("data_as_of", TIMESTAMP),
    ),
)

ACTIONS = TableSpec(
    "actions",
    "alerts",
    _schema(
        ("at", TIMESTAMP, REQUIRED),
        ("action_id", pa.string(), REQUIRED),
        ("idempotency_key", pa.string(), REQUIRED),
        ("rule", pa.string(), REQUIRED),
        ("policy", pa.string(), REQUIRED),
        ("actuator", pa.string(), REQUIRED),
        ("broker", pa.string(), REQUIRED),
        ("queue", pa.string(), REQUIRED),
        ("tenant", pa.string()),
        ("decision", pa.string(), REQUIRED),  # throttle, approve, hold, relax, release, skip, revoke, expire, …
        ("dry_run", pa.bool_(), REQUIRED),
        ("before", pa.float64()),  # messages/s; null = no limit
        ("after", pa.float64()),
        ("valid_until", TIMESTAMP),
        ("inputs", LABELS, REQUIRED),
        ("reason", pa.string(), REQUIRED),
        ("outcome", pa.string(), REQUIRED),  # applied, proposed, dry_run, refused, failed, told
    ),
)

TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        MESSAGE_EVENTS,
        QUEUE_SAMPLES,
        EVENT_SUMMARIES,
        REJECTED_RECORDS,
        PARTIALS,
        MARKS,
        GAPS,
        TENANT_STATE,
        QUEUE_STATE,
        AGE_STATE,
        ALERT_TRANSITIONS,
        DELIVERIES,
        ACTIONS,
    )
}
