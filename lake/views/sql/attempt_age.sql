SELECT
  bucket_start, bucket_seconds, broker, queue, subscriber, tenant, kind,
  count, mean_seconds, p50_seconds, p90_seconds, p99_seconds, max_seconds, skewed, histogram
FROM ($rows) AS told
