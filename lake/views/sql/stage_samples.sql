-- Samples with the broker's counters turned into what was polled since the sample before. A fall is a restart.
-- A sample that is newer than the newest event tells about that event's second.
SELECT
  s.broker, s.queue, COALESCE(s.subscriber, '') AS subscriber,
  unix_micros(s.sampled_at) AS sampled_us,
  LEAST(unix_micros(s.sampled_at) DIV 1000000, c.now_second) AS at_second,
  CASE WHEN unix_micros(s.sampled_at) DIV 1000000 <= c.now_second THEN 1 ELSE 0 END AS changed,
  s.depth, s.in_flight, s.in_flight_limit, s.dead_letter_for, s.staleness_seconds,
  CASE
    WHEN s.polls_total >= LAG(s.polls_total) OVER before AND s.empty_polls_total >= LAG(s.empty_polls_total) OVER before
      THEN s.polls_total - LAG(s.polls_total) OVER before
  END AS polls,
  CASE
    WHEN s.polls_total >= LAG(s.polls_total) OVER before AND s.empty_polls_total >= LAG(s.empty_polls_total) OVER before
      THEN s.empty_polls_total - LAG(s.empty_polls_total) OVER before
  END AS empty_polls
FROM queue_samples AS s
JOIN stage_clock AS c ON c.broker = s.broker
WINDOW before AS (PARTITION BY s.broker, s.queue, COALESCE(s.subscriber, '') ORDER BY s.sampled_at)
