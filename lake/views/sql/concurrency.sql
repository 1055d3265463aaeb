WITH measured AS (
  SELECT
    i.as_of_us,
    i.broker,
    i.queue,
    i.subscriber,
    i.tenant,
    i.concurrency_limit,
    i.processing_bucket,
    CASE WHEN h.complete THEN i.in_flight END AS in_flight,
    i.window_received / i.window_seconds AS start_rate,
    CASE
      WHEN i.window_processing_count > 0 THEN i.window_processing_sum / CAST(i.window_processing_count AS DOUBLE)
    END AS mean_processing_seconds
  FROM $rows AS i
  CROSS JOIN stage_history AS h
)
SELECT
  timestamp_micros(as_of_us) AS as_of,
  broker,
  queue,
  subscriber,
  tenant,
  start_rate,
  mean_processing_seconds,
  $processing_p99 AS p99_processing_seconds,
  start_rate * mean_processing_seconds AS littles_law,
  in_flight,
  concurrency_limit,
  CASE
    WHEN concurrency_limit > 0 THEN start_rate * mean_processing_seconds / CAST(concurrency_limit AS DOUBLE)
  END AS saturation
FROM measured
