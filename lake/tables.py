"""Every Delta table of the lake, declared once: name, place, columns, partitions.

Bronze holds records as collectors wrote them, gold what Spark made of them and what that comes to
(:mod:`lake.finished`), alerts what was decided.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lake.catalogue import SAMPLE_METRICS
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.schema import BACKLOG_CELLS, HISTOGRAM, LABELS, REQUIRED, TENANT_SHARES, TIMESTAMP, TableSpec, schema_of

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
    schema_of(
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
    schema_of(
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
    schema_of(
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
    schema_of(
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
    schema_of(
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
    schema_of(
        ("gap_id", pa.string(), REQUIRED),
        ("at", TIMESTAMP, REQUIRED),  # wall clock
        ("open", pa.bool_(), REQUIRED),
        ("first_version", pa.int64(), REQUIRED),  # versions of message_events, both of them in the gap
        ("last_version", pa.int64(), REQUIRED),
        ("events", pa.int64()),  # rows in it, where the log tells
    ),
)

REJECTED_RECORDS = TableSpec(
    "rejected_records",
    "bronze",
    schema_of(
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
    schema_of(
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
    schema_of(
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
    schema_of(
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
