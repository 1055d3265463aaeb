"""The tables of finished state: every metric, worked out, whenever it changed; any Delta reader reads them
(docs/state.md)."""

from __future__ import annotations

import pyarrow as pa

from lake.schema import HISTOGRAM, REQUIRED, TIMESTAMP, TableSpec, schema_of

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
    schema_of(
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
    schema_of(
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
    schema_of(
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
