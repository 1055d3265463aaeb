WITH rates AS (
  SELECT
    i.as_of_us,
    i.broker,
    i.queue,
    i.subscriber,
    i.tenant,
    i.queue_backlog,
    i.oldest_second,
    CASE WHEN h.complete THEN i.backlog END AS backlog,
    CASE WHEN h.complete THEN i.in_flight END AS in_flight,
    CASE WHEN h.complete THEN i.ready END AS ready,
    CASE WHEN h.complete THEN i.noisy END AS noisy,
    CASE WHEN h.complete THEN i.coverage END AS coverage,
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
  $drain_eta AS drain_eta_seconds,
  coverage,
  -- Nobody knows whose the rest is: each tenant's part is taken to be seen as well as any other's.
  CASE
    WHEN coverage >= 1 THEN backlog
    WHEN coverage > 0 THEN CAST(FLOOR(CAST(backlog AS DOUBLE) / coverage + CAST(0.5 AS DOUBLE)) AS BIGINT)
  END AS reconciled_backlog
FROM rates
