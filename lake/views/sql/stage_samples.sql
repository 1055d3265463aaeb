-- Samples with the broker's counters turned into what was polled since the sample before. A fall is a restart.
SELECT
  broker, queue, COALESCE(subscriber, '') AS subscriber,
  unix_micros(sampled_at) AS sampled_us,
  unix_micros(sampled_at) DIV 1000000 AS at_second,
  depth, in_flight, in_flight_limit, dead_letter_for, staleness_seconds,
  CASE
    WHEN polls_total >= LAG(polls_total) OVER before AND empty_polls_total >= LAG(empty_polls_total) OVER before
      THEN polls_total - LAG(polls_total) OVER before
  END AS polls,
  CASE
    WHEN polls_total >= LAG(polls_total) OVER before AND empty_polls_total >= LAG(empty_polls_total) OVER before
      THEN empty_polls_total - LAG(empty_polls_total) OVER before
  END AS empty_polls
FROM queue_samples
WINDOW before AS (PARTITION BY broker, queue, COALESCE(subscriber, '') ORDER BY sampled_at)
