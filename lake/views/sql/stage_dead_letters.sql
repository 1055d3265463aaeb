-- How the depth of each queue's dead-letter queues changed from sample to sample; unknown depths count for nothing.
WITH known AS (
  SELECT
    broker, dead_letter_for AS queue, at_second, bucket_seconds, depth,
    LAG(depth) OVER before AS depth_before
  FROM stage_samples
  WHERE dead_letter_for IS NOT NULL
  WINDOW before AS (PARTITION BY broker, queue, subscriber, dead_letter_for ORDER BY sampled_us)
)
SELECT
  broker, queue, at_second,
  MAX(bucket_seconds) AS bucket_seconds,
  SUM(COALESCE(depth, 0) - COALESCE(depth_before, 0)) AS depth_change,
  SUM(CASE WHEN depth IS NULL THEN 0 ELSE 1 END - CASE WHEN depth_before IS NULL THEN 0 ELSE 1 END) AS known_change
FROM known
GROUP BY broker, queue, at_second
