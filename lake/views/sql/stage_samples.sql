-- Samples with the broker's counters turned into what was polled since the sample before. A fall is a restart.
-- A sample that is newer than the newest event tells about that event's second; where partials were rolled up, samples
-- tell about their buckets. Several sources may tell of one queue: each one's counters are its own, and a report of polls
-- alone, as applications send it, is no reading of the broker.
WITH placed AS (
  SELECT
    q.*, l.now_second,
    LEAST(unix_micros(q.sampled_at) DIV 1000000, l.now_second) AS at_second,
    unix_micros(q.sampled_at) AS sampled_us,
    q.depth + q.in_flight AS there
  FROM queue_samples AS q
  JOIN stage_levels AS l ON l.broker = q.broker
)
SELECT
  s.broker, s.queue, COALESCE(s.subscriber, '') AS subscriber,
  s.sampled_us,
  $sample_second AS at_second,
  CASE WHEN s.at_second <= l.hours_until THEN 3600 WHEN s.at_second <= l.minutes_until THEN 60 ELSE 1 END
    AS bucket_seconds,
  CASE WHEN s.sampled_us DIV 1000000 <= s.now_second THEN 1 ELSE 0 END AS changed,
  CASE WHEN s.depth IS NOT NULL OR s.in_flight IS NOT NULL OR s.polls_total IS NULL THEN s.sampled_us END AS read_us,
  s.depth, s.in_flight, s.in_flight_limit, s.dead_letter_for, s.staleness_seconds, s.oldest_age_seconds,
  s.there - LAG(s.there) OVER before AS there_change,
  CASE WHEN s.there IS NOT NULL AND LAG(s.there) OVER before IS NOT NULL THEN s.sampled_us - LAG(s.sampled_us) OVER before END
    AS there_us,
  CASE WHEN s.acked_total >= LAG(s.acked_total) OVER before THEN s.acked_total - LAG(s.acked_total) OVER before END AS acked,
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
