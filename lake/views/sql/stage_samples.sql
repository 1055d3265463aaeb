-- Samples with the broker's counters turned into what was polled since the sample before. A fall is a restart.
-- A sample that is newer than the newest event tells about that event's second; where partials were rolled up, samples
-- tell about their buckets. Several sources may tell of one queue: each one's counters are its own, and a report of polls
-- alone, as applications send it, is no reading of the broker, nor is one of events that were estimated.
-- A depth beside which partitions are unknown is that of the others: nothing is reckoned with it.
-- Where events name no consumer and samples name one alone, that one is meant.
WITH named AS (
  SELECT broker, queue
  FROM $samples
  WHERE subscriber IS NOT NULL
  GROUP BY broker, queue
  HAVING MIN(subscriber) = MAX(subscriber)
),
unnamed AS (
  SELECT c.broker, c.queue
  FROM stage_consumers AS c
  JOIN named AS n ON n.broker = c.broker AND n.queue = c.queue
  GROUP BY c.broker, c.queue
  HAVING MAX(c.subscriber) = ''
),
placed AS (
  SELECT
    q.*, l.now_second,
    CASE WHEN u.queue IS NULL THEN COALESCE(q.subscriber, '') ELSE '' END AS consumer,
    LEAST(unix_micros(q.sampled_at) DIV 1000000, l.now_second) AS at_second,
    unix_micros(q.sampled_at) AS sampled_us,
    CASE WHEN COALESCE(q.unknown_partitions, 0) = 0 THEN q.depth END AS whole_depth,
    CASE WHEN COALESCE(q.unknown_partitions, 0) = 0 THEN q.depth + COALESCE(q.in_flight, 0) END AS there
  FROM $samples AS q
  JOIN stage_levels AS l ON l.broker = q.broker
  LEFT JOIN unnamed AS u ON u.broker = q.broker AND u.queue = q.queue
)
SELECT
  s.broker, s.queue, s.consumer AS subscriber,
  s.sampled_us,
  $sample_second AS at_second,
  CASE WHEN s.at_second <= l.hours_until THEN 3600 WHEN s.at_second <= l.minutes_until THEN 60 ELSE 1 END
    AS bucket_seconds,
  CASE WHEN s.at_second <= l.opened_until THEN 2 WHEN s.sampled_us DIV 1000000 <= s.now_second THEN 1 ELSE 0 END AS changed,
  CASE WHEN s.depth IS NOT NULL OR s.in_flight IS NOT NULL OR (s.polls_total IS NULL AND s.estimated IS NULL) THEN s.sampled_us END
    AS read_us,
  s.whole_depth AS depth, s.in_flight, s.in_flight_limit, s.dead_letter_for, s.staleness_seconds, s.oldest_age_seconds,
  s.consumers, s.delayed, s.status, s.retention_margin, s.prefetch, s.visibility_timeout_seconds,
  s.transactional_lag, s.transactional_age_seconds, s.estimated,
  s.there - LAG(s.there) OVER before AS there_change,
  CASE WHEN s.there IS NOT NULL AND LAG(s.there) OVER before IS NOT NULL THEN s.sampled_us - LAG(s.sampled_us) OVER before END
    AS there_us,
  CASE WHEN s.acked_total >= LAG(s.acked_total) OVER before THEN s.acked_total - LAG(s.acked_total) OVER before END AS acked,
  CASE WHEN s.lost_total >= LAG(s.lost_total) OVER before THEN s.lost_total - LAG(s.lost_total) OVER before END AS lost,
  CASE
    WHEN s.polls_total >= LAG(s.polls_total) OVER before AND s.empty_polls_total >= LAG(s.empty_polls_total) OVER before
      THEN s.polls_total - LAG(s.polls_total) OVER before
  END AS polls,
  CASE
    WHEN s.polls_total >= LAG(s.polls_total) OVER before AND s.empty_polls_total >= LAG(s.empty_polls_total) OVER before
      THEN s.empty_polls_total - LAG(s.empty_polls_total) OVER before
  END AS empty_polls
FROM placed AS s
JOIN stage_levels AS l ON l.broker = s.broker
WINDOW before AS (PARTITION BY s.broker, s.queue, COALESCE(s.subscriber, ''), s.source ORDER BY s.sampled_us)
