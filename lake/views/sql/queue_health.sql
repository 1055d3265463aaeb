-- Ages as they are at their broker's data time, or were then.
WITH rates AS (
  SELECT
    i.* EXCEPT (oldest_age_seconds, quiet_oldest_age_seconds, mode, backlog_when_sampled),
    i.has_events AND h.complete AS levels_known,
    CASE WHEN h.complete OR NOT i.has_events THEN $queue_oldest_age END AS oldest_age_seconds,
    CASE WHEN h.complete OR NOT i.has_events THEN $quiet_oldest_age END AS quiet_oldest_age_seconds,
    CASE WHEN h.complete OR NOT i.has_events THEN i.mode END AS mode,
    CASE WHEN h.complete THEN i.backlog_when_sampled END AS backlog_when_sampled,
    i.window_enqueued / i.window_seconds AS arrival_rate,
    i.window_finished / i.window_seconds AS completion_rate
  FROM $rows AS i
  CROSS JOIN stage_history AS h
)
SELECT
  timestamp_micros(as_of_us) AS as_of,
  broker,
  queue,
  subscriber,
  depth,
  CASE WHEN levels_known THEN events_in_flight ELSE broker_in_flight END AS in_flight,
  in_flight_limit,
  oldest_age_seconds,
  quiet_oldest_age_seconds,
  CASE WHEN levels_known THEN noisy_tenants END AS noisy_tenants,
  CASE WHEN polls > 0 THEN CAST(empty_polls AS DOUBLE) / CAST(polls AS DOUBLE) END AS empty_poll_ratio,
  CASE WHEN window_received > 0 THEN window_retries / window_received END AS retry_ratio,
  CASE WHEN has_events THEN dead_lettered END AS dead_lettered,
  dlq_depth,
  mode,
  CASE WHEN mode IS NOT NULL THEN mode_since END AS mode_since,
  CASE WHEN levels_known THEN $drain_state WHEN dead_letter_for IS NULL THEN $sampled_drain_state END AS drain_state,
  CASE WHEN levels_known THEN $drain_eta WHEN dead_letter_for IS NULL THEN $sampled_drain_eta END AS drain_eta_seconds,
  $coverage AS coverage,
  CASE
    WHEN sampled_us IS NOT NULL
      THEN GREATEST(CAST(0 AS DOUBLE), CAST(as_of_us - sampled_us AS DOUBLE) / CAST(1000000 AS DOUBLE))
        + COALESCE(sample_staleness_seconds, CAST(0 AS DOUBLE))
  END AS staleness_seconds,
  consumers,
  delayed,
  acked,
  status,
  retention_margin,
  prefetch,
  visibility_timeout_seconds,
  dead_letter_for,
  lost,
  transactional_lag,
  transactional_age_seconds,
  estimated,
  sample_interval_seconds
FROM rates
