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
  tenant,
  backlog,
  in_flight,
  ready,
  CASE
    WHEN backlog > 0
      THEN GREATEST(CAST(0 AS DOUBLE), CAST(as_of_us - oldest_second * 1000000 AS DOUBLE) / CAST(1000000 AS DOUBLE))
  END AS oldest_age_seconds,
  arrival_rate,
  completion_rate,
  CASE WHEN queue_backlog > 0 THEN CAST(backlog AS DOUBLE) / CAST(queue_backlog AS DOUBLE) END AS share,
  noisy,
  $drain_state AS drain_state,
  $drain_eta AS drain_eta_seconds
FROM rates
