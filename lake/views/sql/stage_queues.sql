-- The state of each queue and consumer at each second in which a tenant's state changed or a sample was taken.
WITH noisy_changes AS (
  SELECT
    broker, queue, subscriber, at_second, bucket_seconds, changed, backlog_change, in_flight_change,
    CASE WHEN noisy THEN 1 ELSE 0 END - LAG(CASE WHEN noisy THEN 1 ELSE 0 END, 1, 0) OVER (
      PARTITION BY broker, queue, subscriber, tenant ORDER BY at_second
    ) AS noisy_change,
    enqueued, finished, received, retries, dead_lettered
  FROM stage_noisy
),
keys AS (
  SELECT broker, queue, subscriber FROM noisy_changes
  UNION
  SELECT broker, queue, subscriber FROM stage_sampled
),
parts AS (
  SELECT *, 0 AS dead_letter_change, 0 AS dead_letter_known_change FROM noisy_changes
  UNION ALL
  SELECT broker, queue, subscriber, at_second, bucket_seconds, changed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  FROM stage_sampled
  UNION ALL
  SELECT k.broker, k.queue, k.subscriber, c.now_second, 1 AS bucket_seconds, 0 AS changed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  FROM keys AS k
  JOIN stage_clock AS c ON c.broker = k.broker
  UNION ALL
  SELECT
    k.broker, k.queue, k.subscriber, d.at_second, d.bucket_seconds, 0 AS changed, 0, 0, 0, 0, 0, 0, 0, 0, d.depth_change, d.known_change
  FROM keys AS k
  JOIN stage_dead_letters AS d ON d.broker = k.broker AND d.queue = k.queue
),
seconds AS (
  SELECT
    broker, queue, subscriber, at_second,
    MAX(bucket_seconds) AS bucket_seconds,
    MAX(changed) AS changed,
    SUM(backlog_change) AS backlog_change,
    SUM(in_flight_change) AS in_flight_change,
    SUM(noisy_change) AS noisy_change,
    SUM(enqueued) AS enqueued,
    SUM(finished) AS finished,
    SUM(received) AS received,
    SUM(retries) AS retries,
    SUM(dead_lettered) AS dead_lettered,
    SUM(dead_letter_change) AS dead_letter_change,
    SUM(dead_letter_known_change) AS dead_letter_known_change
  FROM parts
  GROUP BY broker, queue, subscriber, at_second
),
placed AS (
  SELECT
    s.*,
    CASE WHEN s.bucket_seconds = 1 THEN s.at_second ELSE s.at_second - $apart END AS window_second,
    CASE WHEN s.at_second > c.minutes_until THEN c.minutes_until ELSE -1 END AS level_starts_after,
    c.as_of_us, c.now_second
  FROM seconds AS s
  JOIN stage_levels AS c ON c.broker = s.broker
),
firsts AS (
  SELECT
    broker, queue, subscriber,
    MIN($first_second) AS own_first_second,
    MIN(MIN($first_second)) OVER (PARTITION BY broker, queue) AS first_second
  FROM stage_partials
  GROUP BY broker, queue, subscriber
)
SELECT
  s.broker, s.queue, s.subscriber, s.at_second, s.changed,
  CASE WHEN s.at_second = s.now_second THEN 1 ELSE 0 END AS is_now,
  LEAST((s.at_second + 1) * 1000000, s.as_of_us) AS as_of_us,
  COALESCE(f.own_first_second <= s.at_second, FALSE) AS has_events,
  CAST(GREATEST(1, $queue_window_seconds) AS BIGINT) AS window_seconds,
  CAST(SUM(s.backlog_change) OVER so_far AS BIGINT) AS backlog,
  CAST(SUM(s.in_flight_change) OVER so_far AS BIGINT) AS in_flight,
  CAST(SUM(s.noisy_change) OVER so_far AS BIGINT) AS noisy_tenants,
  CAST(SUM(s.enqueued) OVER lately AS DOUBLE) AS window_enqueued,
  CAST(SUM(s.finished) OVER lately AS DOUBLE) AS window_finished,
  CAST(SUM(s.received) OVER lately AS DOUBLE) AS window_received,
  CAST(SUM(s.retries) OVER lately AS DOUBLE) AS window_retries,
  CAST(SUM(s.dead_lettered) OVER lately AS BIGINT) AS window_dead_lettered,
  CASE
    WHEN SUM(s.dead_letter_known_change) OVER so_far > 0 THEN CAST(SUM(s.dead_letter_change) OVER so_far AS BIGINT)
  END AS dlq_depth,
  -- Where to find the newest sample, and the newest limit that any sample told.
  MAX(CASE WHEN n.sampled_us IS NOT NULL THEN s.at_second END) OVER so_far AS sample_second,
  MAX(CASE WHEN n.in_flight_limit IS NOT NULL THEN s.at_second END) OVER so_far AS limit_second,
  SUM(n.there_change) OVER lately AS there_change,
  SUM(n.there_us) OVER lately AS there_us,
  SUM(n.acked) OVER lately AS acked,
  SUM(n.lost) OVER lately AS lost,
  SUM(n.estimated) OVER lately AS estimated,
  SUM(n.polls) OVER lately AS polls,
  SUM(n.empty_polls) OVER lately AS empty_polls
FROM placed AS s
LEFT JOIN stage_sampled AS n
  ON n.broker = s.broker AND n.queue = s.queue AND n.subscriber = s.subscriber AND n.at_second = s.at_second
LEFT JOIN firsts AS f ON f.broker = s.broker AND f.queue = s.queue AND f.subscriber = s.subscriber
WINDOW
  so_far AS (
    PARTITION BY s.broker, s.queue, s.subscriber ORDER BY s.at_second ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ),
  lately AS (
    PARTITION BY s.broker, s.queue, s.subscriber ORDER BY s.window_second
    RANGE BETWEEN $window_before PRECEDING AND CURRENT ROW
  )
