-- The newest ages of each kind.
SELECT
  unix_micros(bucket_start) DIV 1000000 AS start_second,
  bucket_seconds,
  broker,
  queue,
  COALESCE(subscriber, '') AS subscriber,
  tenant,
  kind,
  count AS n,
  total_seconds,
  max_seconds,
  skewed,
  p50,
  p90,
  p99,
  histogram
FROM age_state_now
