"""The columns of the public views, with their units: what docs, dashboards and rule authors rely on."""

from __future__ import annotations

from lake.views.model import Column

_AS_OF = Column("as_of", "TIMESTAMP", "", "data time of the row: everything up to it is in, nothing after it")
_QUEUE = (
    Column("broker", "STRING", "", "the broker, as the collector names it"),
    Column("queue", "STRING", "", "queue, topic or stream"),
    Column(
        "subscriber", "STRING", "", "consumer group, subscription or durable name; null = the queue's only consumer"
    ),
)
_TENANT = Column("tenant", "STRING", "", "the tenant, `unknown` where messages name none")
_DRAIN = (
    Column(
        "drain_state", "STRING", "", "`idle`, `draining`, `stalled` (nothing leaves) or `growing` (arrivals ≥ leavers)"
    ),
    Column("drain_eta_seconds", "DOUBLE", "s", "backlog ÷ (completion rate − arrival rate) while draining"),
)

ATTEMPT_AGE = (
    Column("bucket_start", "TIMESTAMP", "", "start of the bucket, by the time of the event"),
    Column("bucket_seconds", "INT", "s", "length of the bucket"),
    *_QUEUE,
    _TENANT,
    Column(
        "kind",
        "STRING",
        "",
        "`first_attempt`, `first_subscriber_first_attempt` (the earliest over its subscribers), `retry`, `completion`",
    ),
    Column("count", "BIGINT", "events", "events with a known age"),
    Column("mean_seconds", "DOUBLE", "s", "mean age"),
    Column("p50_seconds", "DOUBLE", "s", "median age, within 0.54 %"),
    Column("p90_seconds", "DOUBLE", "s", "90th percentile, within 0.54 %"),
    Column("p99_seconds", "DOUBLE", "s", "99th percentile, within 0.54 %"),
    Column("max_seconds", "DOUBLE", "s", "largest age, exact"),
    Column("skewed", "BIGINT", "events", "events whose age was below zero (clock skew); they count as 0"),
    Column(
        "histogram",
        "ARRAY<STRUCT<index: INT, count: BIGINT>>",
        "",
        "base-2 exponential histogram, scale 6; merge, then read quantiles",
    ),
)

TENANT_BACKLOG = (
    _AS_OF,
    *_QUEUE,
    _TENANT,
    Column("backlog", "BIGINT", "messages", "enqueued and not yet completed, dead-lettered, expired or sidelined"),
    Column("in_flight", "BIGINT", "messages", "received and not yet ended"),
    Column("ready", "BIGINT", "messages", "backlog − in flight − delayed"),
    Column(
        "oldest_age_seconds",
        "DOUBLE",
        "s",
        "age of the oldest message in the backlog, exact to the second; null = none, or unknown",
    ),
    Column("arrival_rate", "DOUBLE", "messages/s", "enqueued in the window ÷ window"),
    Column("completion_rate", "DOUBLE", "messages/s", "messages that left the backlog in the window ÷ window"),
    Column("share", "DOUBLE", "", "part of the queue's backlog that is this tenant's"),
    Column("noisy", "BOOLEAN", "", "takes more than its fair share while others wait (the rule of SQS fair queues)"),
    *_DRAIN,
    Column(
        "coverage", "DOUBLE", "", "the queue's: how far its events can be trusted; null = the broker's depth is unknown"
    ),
    Column(
        "reconciled_backlog",
        "BIGINT",
        "messages",
        "backlog ÷ coverage where coverage is below 1, so that tenants together have the broker's depth; else backlog",
    ),
)

CONCURRENCY = (
    _AS_OF,
    *_QUEUE,
    _TENANT,
    Column("start_rate", "DOUBLE", "attempts/s", "attempts started in the window ÷ window"),
    Column("mean_processing_seconds", "DOUBLE", "s", "mean processing time of attempts that ended in the window"),
    Column("p99_processing_seconds", "DOUBLE", "s", "its 99th percentile, within 0.54 %"),
    Column("littles_law", "DOUBLE", "attempts", "concurrency by Little's law: start rate × mean processing time"),
    Column(
        "in_flight", "BIGINT", "messages", "measured concurrency; a gap to littles_law means leaked or stuck messages"
    ),
    Column("concurrency_limit", "BIGINT", "messages", "the broker's in-flight limit of the queue's consumer"),
    Column("saturation", "DOUBLE", "", "littles_law ÷ concurrency_limit"),
)

QUEUE_HEALTH = (
    _AS_OF,
    *_QUEUE,
    Column("depth", "BIGINT", "messages", "the broker's own count of messages not yet delivered; null = unknown"),
    Column(
        "in_flight",
        "BIGINT",
        "messages",
        "received and not yet ended, from events; the broker's count where there are none",
    ),
    Column("in_flight_limit", "BIGINT", "messages", "the broker's limit"),
    Column("oldest_age_seconds", "DOUBLE", "s", "of the backlog, from events; the broker's word where there are none"),
    Column("quiet_oldest_age_seconds", "DOUBLE", "s", "age of the oldest message of tenants that are not noisy"),
    Column("noisy_tenants", "BIGINT", "tenants", "how many tenants are noisy"),
    Column(
        "empty_poll_ratio",
        "DOUBLE",
        "",
        "empty polls ÷ polls; 0 for long = no headroom; null = the broker does not count them",
    ),
    Column("retry_ratio", "DOUBLE", "", "attempts ≥ 2 ÷ attempts, in the window"),
    Column("dead_lettered", "BIGINT", "messages", "dead-lettered in the window"),
    Column("dlq_depth", "BIGINT", "messages", "depth of the queue's dead-letter queues"),
    Column("mode", "STRING", "", "`fast` or `backlogged`: oldest age against the queue's target"),
    Column("mode_since", "TIMESTAMP", "", "when the queue entered that mode"),
    *_DRAIN,
    Column(
        "coverage",
        "DOUBLE",
        "",
        "backlog from events ÷ the broker's depth + in flight (0 where its depth holds them), both when it was sampled",
    ),
    Column("staleness_seconds", "DOUBLE", "s", "age of the newest sample at as_of"),
    Column("consumers", "BIGINT", "consumers", "consumers attached, as the broker counts them"),
    Column("delayed", "BIGINT", "messages", "messages that may not be received yet, by the broker's count"),
    Column(
        "acked",
        "BIGINT",
        "messages",
        "acknowledged between the samples of the window; null = the broker tells no count",
    ),
    Column(
        "status", "STRING", "", "the collector's judgement of the consumer: `OK`, `STALL`, `STOP`, `LOST` …, `PAUSED`"
    ),
    Column(
        "retention_margin", "BIGINT", "messages", "from the oldest unread message to the broker's retention deleting it"
    ),
    Column("prefetch", "BIGINT", "messages", "handed to a consumer ahead of its acknowledgements"),
    Column("visibility_timeout_seconds", "DOUBLE", "s", "after which an unacknowledged message is delivered again"),
    Column("dead_letter_for", "STRING", "", "set on a dead-letter queue: the queue, or queues, that it serves"),
    Column(
        "lost",
        "BIGINT",
        "messages",
        "deleted by the broker's retention before the subscriber had acknowledged them, between the samples of the "
        "window; null = the broker tells no count",
    ),
    Column(
        "transactional_lag",
        "BIGINT",
        "messages",
        "behind an open transaction: who reads committed messages alone waits for it",
    ),
    Column("transactional_age_seconds", "DOUBLE", "s", "of the first message of the oldest open transaction"),
    Column(
        "estimated",
        "BIGINT",
        "events",
        "events of the window that are estimates, because sampled traces stood for them: so are rates, ages and "
        "backlog of the queue and its tenants; null = none",
    ),
    Column(
        "sample_interval_seconds", "DOUBLE", "s", "from one reading of the broker to the next; null = it is not sampled"
    ),
)

ALERT_STATES = (
    Column("rule_group", "STRING", "", "the rule's group"),
    Column("rule", "STRING", "", "the rule's name"),
    Column("fingerprint", "STRING", "", "Alertmanager's fingerprint of the labels"),
    Column("labels", "MAP<STRING, STRING>", "", "the alert's labels"),
    Column("annotations", "MAP<STRING, STRING>", "", "the alert's annotations"),
    Column("state", "STRING", "", "`inactive`, `pending`, `firing` or `keep_firing`"),
    Column("value", "DOUBLE", "", "the expression's value at the transition"),
    Column("since", "TIMESTAMP", "", "when it entered the state (wall clock)"),
    Column("data_as_of", "TIMESTAMP", "", "the newest event that the evaluation saw"),
    Column("reason", "STRING", "", "why it changed"),
    Column("inputs", "MAP<STRING, STRING>", "", "the other columns of the rule's row then, `threshold` among them"),
)

LIMITS = (
    Column("broker", "STRING", "", "broker"),
    Column("queue", "STRING", "", "queue"),
    Column("tenant", "STRING", "", "the tenant that is limited"),
    Column("rate", "DOUBLE", "messages/s", "the rate in force"),
    Column("valid_until", "TIMESTAMP", "", "the lease's end: pass-through if nobody renews it"),
    Column("decision", "STRING", "", "the newest decision"),
    Column("policy", "STRING", "", "the policy that decided"),
    Column("rule", "STRING", "", "the rule that asked for it"),
    Column("reason", "STRING", "", "why"),
    Column("action_id", "STRING", "", "the journal's row"),
    Column("at", "TIMESTAMP", "", "when it was decided"),
)

OPEN_GAPS = (
    Column("gap_id", "STRING", "", "one interval of events that the analysis deferred, to read the newest first"),
    Column(
        "since", "TIMESTAMP", "", "when it was deferred; until it is read, levels – backlog, in flight … – are null"
    ),
    Column("events", "BIGINT", "events", "how many are in it; null = unknown"),
)
