-- Of each message on a queue with named subscribers, its earliest first attempt over all of them, and the bucket that
-- holds it where partials were rolled up. A message of which an attempt was folded into partials is told there.
WITH folds AS (
  SELECT COALESCE(MAX(first_subscriber_first_attempt_age_fold), 0) AS newest FROM partials
),
ranked AS (
  SELECT
    m.broker, m.queue, m.tenant, m.message_id, m.age_seconds, m.age_index, m.age_skewed,
    unix_micros(m.occurred_at) DIV 1000000 AS at_second,
    ROW_NUMBER() OVER (
      PARTITION BY m.broker, m.queue, m.message_id ORDER BY m.occurred_at, m.age_seconds, m.subscriber
    ) AS receipt,
    MAX(CASE WHEN m.fold <= f.newest THEN 1 ELSE 0 END) OVER (
      PARTITION BY m.broker, m.queue, m.message_id
    ) AS folded
  FROM marks AS m
  CROSS JOIN folds AS f
  WHERE m.event_type = 'received' AND m.attempt = 1 AND m.subscriber <> ''
),
placed AS (
  SELECT
    r.*,
    CASE WHEN r.at_second <= l.hours_until THEN 3600 WHEN r.at_second <= l.minutes_until THEN 60 ELSE 1 END
      AS bucket_seconds
  FROM ranked AS r
  JOIN stage_levels AS l ON l.broker = r.broker
  WHERE r.receipt = 1 AND r.folded = 0 AND r.age_seconds IS NOT NULL
)
SELECT *, at_second DIV bucket_seconds * bucket_seconds AS start_second FROM placed
