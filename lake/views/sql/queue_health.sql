WITH rates AS (
  SELECT
    i.*,
    i.window_enqueued / i.window_seconds AS arrival_rate,
    i.window_finished / i.window_seconds AS completion_rate
  FROM ($states) AS i
)
SELECT
  timestamp_micros(as_of_us) AS as_of,
  broker,
  queue,
  NULLIF(subscriber, '') AS subscriber,
  CAST(depth AS BIGINT) AS depth,
  CASE WHEN has_events THEN in_flight ELSE CAST(broker_in_flight AS BIGINT) END AS in_flight,
  CAST(in_flight_limit AS BIGINT) AS in_flight_limit,
  oldest_age_seconds,
  quiet_oldest_age_seconds,
  CASE WHEN has_events THEN noisy_tenants END AS noisy_tenants,
  CASE WHEN polls > 0 THEN CAST(empty_polls AS DOUBLE) / CAST(polls AS DOUBLE) END AS empty_poll_ratio,
  CASE WHEN window_received > 0 THEN window_retries / window_received END AS retry_ratio,
  CASE WHEN has_events THEN window_dead_lettered END AS dead_lettered,
  dlq_depth,
  mode,
  CASE WHEN mode IS NOT NULL THEN timestamp_micros(mode_since_us) END AS mode_since,
  CASE WHEN has_events THEN $drain_state WHEN NOT dead_letters THEN $sampled_drain_state END AS drain_state,
  CASE WHEN has_events THEN $drain_eta WHEN NOT dead_letters THEN $sampled_drain_eta END AS drain_eta_seconds,
  CASE
    WHEN there > 0 THEN CAST(backlog_when_sampled AS DOUBLE) / CAST(there AS DOUBLE)
    WHEN there = 0 AND backlog_when_sampled = 0 THEN CAST(1 AS DOUBLE)
  END AS coverage,
  CASE
    WHEN sampled_us IS NOT NULL
      THEN GREATEST(CAST(0 AS DOUBLE), CAST(as_of_us - sampled_us AS DOUBLE) / CAST(1000000 AS DOUBLE))
        + COALESCE(sample_staleness_seconds, CAST(0 AS DOUBLE))
  END AS staleness_seconds
FROM rates
