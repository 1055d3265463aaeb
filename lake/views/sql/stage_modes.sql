-- Queues with the age of their oldest message and the mode that follows from it. Unknown age, unknown mode. Where there
-- are no events, the broker's own word counts; where there are, its word is compared with what they said in that second.
WITH told AS (
  SELECT
    q.*,
    CASE WHEN b.has_events THEN b.backlog END AS backlog_when_sampled,
    n.sampled_us,
    n.newest.depth AS depth,
    n.newest.in_flight AS broker_in_flight,
    -- Where a broker does not count what is in flight apart, as Kafka's lag, its depth holds it.
    n.newest.depth + COALESCE(n.newest.in_flight, 0) AS there,
    n.newest.serves IS NOT NULL AS dead_letters,
    n.newest.serves AS dead_letter_for,
    n.newest.consumers AS consumers,
    n.newest.delayed AS broker_delayed,
    n.newest.status AS status,
    n.newest.retention_margin AS retention_margin,
    n.newest.prefetch AS prefetch,
    n.newest.visibility_timeout AS visibility_timeout_seconds,
    n.newest.transactional_lag AS transactional_lag,
    n.newest.transactional_age AS transactional_age_seconds,
    n.newest.oldest_age AS told_age_seconds,
    n.newest.staleness AS sample_staleness_seconds,
    o.oldest_second,
    o.quiet_oldest_second
  FROM stage_queues AS q
  LEFT JOIN stage_queue_oldest AS o
    ON o.broker = q.broker AND o.queue = q.queue AND o.subscriber = q.subscriber AND o.at_second = q.at_second
  LEFT JOIN stage_sampled AS n
    ON n.broker = q.broker AND n.queue = q.queue AND n.subscriber = q.subscriber AND n.at_second = q.sample_second
  LEFT JOIN stage_queues AS b
    ON b.broker = q.broker AND b.queue = q.queue AND b.subscriber = q.subscriber AND b.at_second = q.sample_second
  WHERE q.changed > 0 OR q.is_now = 1
),
aged AS (
  SELECT *, $queue_oldest_age AS oldest_age_seconds, $quiet_oldest_age AS quiet_oldest_age_seconds FROM told
),
moded AS (
  SELECT *, $mode AS mode FROM aged
),
turned AS (
  SELECT
    *,
    CASE WHEN mode IS DISTINCT FROM LAG(mode) OVER so_far THEN as_of_us END AS turned_us
  FROM moded
  WINDOW so_far AS (PARTITION BY broker, queue, subscriber ORDER BY at_second)
)
SELECT
  *,
  MAX(turned_us) OVER (
    PARTITION BY broker, queue, subscriber ORDER BY at_second ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS mode_since_us
FROM turned
