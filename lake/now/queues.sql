-- What the folds say of each consumer (`folded_queues`) beside its samples: `stage_queues_now` without its windows over
-- the past.
WITH lately AS (
  SELECT
    s.broker, s.queue, s.subscriber,
    MAX_BY(s.newest, CASE WHEN s.sampled_us IS NOT NULL THEN s.at_second END) AS newest,
    MAX_BY(s.sampled_us, CASE WHEN s.sampled_us IS NOT NULL THEN s.at_second END) AS sampled_us,
    MAX_BY(s.in_flight_limit, CASE WHEN s.in_flight_limit IS NOT NULL THEN s.at_second END) AS in_flight_limit,
    SUM(CASE WHEN s.bucket_seconds = 1 AND s.at_second > l.now_second - $window THEN s.there_change END) AS there_change,
    SUM(CASE WHEN s.bucket_seconds = 1 AND s.at_second > l.now_second - $window THEN s.there_us END) AS there_us,
    SUM(CASE WHEN s.bucket_seconds = 1 AND s.at_second > l.now_second - $window THEN s.acked END) AS acked,
    SUM(CASE WHEN s.bucket_seconds = 1 AND s.at_second > l.now_second - $window THEN s.polls END) AS polls,
    SUM(CASE WHEN s.bucket_seconds = 1 AND s.at_second > l.now_second - $window THEN s.empty_polls END) AS empty_polls
  FROM stage_sampled_now AS s
  JOIN stage_levels AS l ON l.broker = s.broker
  GROUP BY s.broker, s.queue, s.subscriber
),
dead AS (
  SELECT broker, queue, SUM(depth_change) AS depth, SUM(known_change) AS known
  FROM stage_dead_letters_now
  GROUP BY broker, queue
)
SELECT
  q.broker,
  q.queue,
  q.subscriber,
  q.as_of_us,
  q.at_second,
  q.has_events,
  CAST(GREATEST(1, $now_window_seconds) AS BIGINT) AS window_seconds,
  q.backlog,
  q.in_flight,
  q.noisy_tenants,
  q.window_enqueued,
  q.window_finished,
  q.window_received,
  q.window_retries,
  CAST(q.window_dead_lettered AS BIGINT) AS window_dead_lettered,
  CASE WHEN d.known > 0 THEN CAST(d.depth AS BIGINT) END AS dlq_depth,
  s.there_change,
  s.there_us,
  s.acked,
  s.polls,
  s.empty_polls,
  q.backlog_when_sampled,
  s.sampled_us,
  s.newest.depth AS depth,
  s.newest.in_flight AS broker_in_flight,
  s.newest.depth + COALESCE(s.newest.in_flight, 0) AS there,
  s.newest.serves IS NOT NULL AS dead_letters,
  s.newest.serves AS dead_letter_for,
  s.newest.consumers AS consumers,
  s.newest.delayed AS broker_delayed,
  s.newest.status AS status,
  s.newest.retention_margin AS retention_margin,
  s.newest.prefetch AS prefetch,
  s.newest.visibility_timeout AS visibility_timeout_seconds,
  s.newest.staleness AS sample_staleness_seconds,
  q.oldest_age_seconds,
  $quiet_oldest_age AS quiet_oldest_age_seconds,
  q.oldest_second,
  q.quiet_oldest_second,
  s.newest.oldest_age AS told_age_seconds,
  q.mode,
  q.mode_since_us,
  s.in_flight_limit
FROM folded_queues AS q
LEFT JOIN lately AS s ON s.broker = q.broker AND s.queue = q.queue AND s.subscriber = q.subscriber
LEFT JOIN dead AS d ON d.broker = q.broker AND d.queue = q.queue
WHERE q.told OR s.broker IS NOT NULL
