-- The state of each tenant at each of its seconds, and its sums over the window that ends there.
-- Rolled-up buckets have windows of their own: the bucket itself.
WITH placed AS (
  SELECT
    *,
    CASE WHEN bucket_seconds = 1 THEN at_second ELSE at_second - $apart END AS window_second,
    MIN(CASE WHEN changed > 0 THEN $first_second END) OVER (PARTITION BY broker, queue) AS first_second
  FROM stage_steps
),
summed AS (
  SELECT
    s.*,
    CASE WHEN s.at_second = c.now_second THEN 1 ELSE 0 END AS is_now,
    LEAST((s.at_second + 1) * 1000000, c.as_of_us) AS as_of_us,
    CASE WHEN s.at_second > c.minutes_until THEN c.minutes_until ELSE -1 END AS level_starts_after,
    SUM(s.enqueued - s.finished) OVER so_far AS backlog_sum,
    SUM(s.busy) OVER so_far AS in_flight_sum,
    SUM(s.delayed) OVER so_far AS delayed_sum,
    MAX(CASE WHEN s.enqueued > 0 THEN s.at_second END) OVER so_far AS last_arrival_second,
    SUM(s.enqueued) OVER lately AS window_enqueued,
    SUM(s.finished) OVER lately AS window_finished,
    SUM(s.received) OVER lately AS window_received,
    SUM(s.retries) OVER lately AS window_retries,
    SUM(s.dead_lettered) OVER lately AS window_dead_lettered,
    SUM(s.processing_count) OVER lately AS window_processing_count,
    SUM(s.processing_sum) OVER lately AS window_processing_sum
  FROM placed AS s
  JOIN stage_levels AS c ON c.broker = s.broker
  WINDOW
    so_far AS (
      PARTITION BY s.broker, s.queue, s.subscriber, s.tenant ORDER BY s.at_second
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ),
    lately AS (
      PARTITION BY s.broker, s.queue, s.subscriber, s.tenant ORDER BY s.window_second
      RANGE BETWEEN $window_before PRECEDING AND CURRENT ROW
    )
)
SELECT
  broker, queue, subscriber, tenant, at_second, window_second, bucket_seconds, changed, is_now, as_of_us, last_arrival_second,
  enqueued, finished, received, retries, dead_lettered, processing_count, processing_sum,
  CAST($window_seconds AS BIGINT) AS window_seconds,
  CAST($backlog AS BIGINT) AS backlog,
  CAST($in_flight AS BIGINT) AS in_flight,
  CAST($delayed AS BIGINT) AS delayed,
  CAST($ready AS BIGINT) AS ready,
  CAST(window_enqueued AS DOUBLE) AS window_enqueued,
  CAST(window_finished AS DOUBLE) AS window_finished,
  CAST(window_received AS DOUBLE) AS window_received,
  CAST(window_processing_count AS BIGINT) AS window_processing_count,
  window_processing_sum
FROM summed
