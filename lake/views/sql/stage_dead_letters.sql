-- How the depth of each queue's dead-letter queues changed from sample to sample; unknown depths count for nothing.
-- One that serves several queues, as SQS allows, counts for each of them.
WITH serving AS (
  SELECT s.broker, s.queue AS holder, s.subscriber, s.sampled_us, s.at_second, s.bucket_seconds, s.depth, served
  FROM $placed AS s
  LATERAL VIEW explode(split(s.dead_letter_for, ',')) x AS served
),
known AS (
  SELECT
    broker, served AS queue, at_second, bucket_seconds, depth,
    LAG(depth) OVER before AS depth_before
  FROM serving
  WINDOW before AS (PARTITION BY broker, holder, subscriber, served ORDER BY sampled_us)
)
SELECT
  broker, queue, at_second,
  MAX(bucket_seconds) AS bucket_seconds,
  SUM(COALESCE(depth, 0) - COALESCE(depth_before, 0)) AS depth_change,
  SUM(CASE WHEN depth IS NULL THEN 0 ELSE 1 END - CASE WHEN depth_before IS NULL THEN 0 ELSE 1 END) AS known_change
FROM known
GROUP BY broker, queue, at_second
