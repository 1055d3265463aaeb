WITH sampled AS (
  SELECT
    i.broker, i.queue, i.subscriber, i.at_second,
    MAX(s.sampled_us) AS sampled_us,
    -- A struct, so that a value which the newest sample lacks is null in every engine, not an older one.
    MAX_BY(
      named_struct('depth', s.depth, 'in_flight', s.in_flight, 'staleness', s.staleness_seconds), s.sampled_us
    ) AS newest,
    MAX_BY(s.in_flight_limit, CASE WHEN s.in_flight_limit IS NOT NULL THEN s.sampled_us END) AS in_flight_limit,
    SUM(CASE WHEN s.at_second > i.at_second - $window THEN s.polls END) AS polls,
    SUM(CASE WHEN s.at_second > i.at_second - $window THEN s.empty_polls END) AS empty_polls
  FROM stage_modes AS i
  JOIN stage_samples AS s
    ON s.broker = i.broker
    AND s.queue = i.queue
    AND s.subscriber = i.subscriber
    AND (s.at_second <= i.at_second OR i.is_now = 1)
  WHERE $instants
  GROUP BY i.broker, i.queue, i.subscriber, i.at_second
),
dead_letters AS (
  SELECT broker, queue, subscriber, at_second, SUM(newest.depth) AS dlq_depth
  FROM (
    SELECT
      i.broker, i.queue, i.subscriber, i.at_second, s.queue AS dlq, s.subscriber AS dlq_subscriber,
      MAX_BY(named_struct('depth', s.depth), s.sampled_us) AS newest
    FROM stage_modes AS i
    JOIN stage_samples AS s
      ON s.broker = i.broker AND s.dead_letter_for = i.queue AND (s.at_second <= i.at_second OR i.is_now = 1)
    WHERE $instants
    GROUP BY i.broker, i.queue, i.subscriber, i.at_second, s.queue, s.subscriber
  ) AS each_dlq
  GROUP BY broker, queue, subscriber, at_second
),
rates AS (
  SELECT
    i.*,
    s.newest.depth AS depth, s.newest.in_flight AS broker_in_flight, s.newest.staleness AS sample_staleness_seconds,
    s.in_flight_limit, s.sampled_us, s.polls, s.empty_polls,
    d.dlq_depth,
    i.window_enqueued / i.window_seconds AS arrival_rate,
    i.window_finished / i.window_seconds AS completion_rate
  FROM stage_modes AS i
  LEFT JOIN sampled AS s
    ON s.broker = i.broker AND s.queue = i.queue AND s.subscriber = i.subscriber AND s.at_second = i.at_second
  LEFT JOIN dead_letters AS d
    ON d.broker = i.broker AND d.queue = i.queue AND d.subscriber = i.subscriber AND d.at_second = i.at_second
  WHERE $instants
)
SELECT
  timestamp_micros(as_of_us) AS as_of,
  broker,
  queue,
  NULLIF(subscriber, '') AS subscriber,
  CAST(depth AS BIGINT) AS depth,
  CASE WHEN has_events THEN in_flight ELSE CAST(broker_in_flight AS BIGINT) END AS in_flight,
  CAST(in_flight_limit AS BIGINT) AS in_flight_limit,
  oldest_age_seconds,
  quiet_oldest_age_seconds,
  CASE WHEN has_events THEN noisy_tenants END AS noisy_tenants,
  CASE WHEN polls > 0 THEN CAST(empty_polls AS DOUBLE) / CAST(polls AS DOUBLE) END AS empty_poll_ratio,
  CASE WHEN window_received > 0 THEN window_retries / window_received END AS retry_ratio,
  CASE WHEN has_events THEN window_dead_lettered END AS dead_lettered,
  CAST(dlq_depth AS BIGINT) AS dlq_depth,
  mode,
  CASE WHEN mode IS NOT NULL THEN timestamp_micros(mode_since_us) END AS mode_since,
  CASE WHEN has_events THEN $drain_state END AS drain_state,
  CASE WHEN has_events THEN $drain_eta END AS drain_eta_seconds,
  CASE
    WHEN has_events AND depth + broker_in_flight > 0
      THEN CAST(backlog AS DOUBLE) / CAST(depth + broker_in_flight AS DOUBLE)
    WHEN has_events AND depth + broker_in_flight = 0 AND backlog = 0 THEN CAST(1 AS DOUBLE)
  END AS coverage,
  CASE
    WHEN sampled_us IS NOT NULL
      THEN GREATEST(CAST(0 AS DOUBLE), CAST(as_of_us - sampled_us AS DOUBLE) / CAST(1000000 AS DOUBLE))
        + COALESCE(sample_staleness_seconds, CAST(0 AS DOUBLE))
  END AS staleness_seconds
FROM rates
