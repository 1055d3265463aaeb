-- Ages: the newest bucket of each kind, or every one.
SELECT
  bucket_start, bucket_seconds, broker, queue, subscriber, tenant, kind,
  count, mean_seconds, p50_seconds, p90_seconds, p99_seconds, max_seconds, skewed, histogram
FROM age_state_$tense
WHERE count > 0
