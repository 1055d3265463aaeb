-- Ages of a lake that nobody has finished, worked out from partials and marks.
SELECT
  timestamp_micros(start_second * 1000000) AS bucket_start,
  CAST(bucket_seconds AS INT) AS bucket_seconds,
  broker,
  queue,
  NULLIF(subscriber, '') AS subscriber,
  tenant,
  kind,
  CAST(n AS BIGINT) AS count,
  total_seconds / CAST(n AS DOUBLE) AS mean_seconds,
  $p50_value AS p50_seconds,
  $p90_value AS p90_seconds,
  $p99_value AS p99_seconds,
  max_seconds,
  CAST(skewed AS BIGINT) AS skewed,
  histogram
FROM ($rows) AS s
