-- Messages that wait for a retry, or are delayed: from the failure until the next attempt or the end.
-- Where partials were rolled up, a pause begins and ends with their buckets.
WITH paused AS (
  SELECT
    broker, queue, subscriber, tenant, message_id, event_type,
    COALESCE(attempt, 1) AS attempt,
    unix_micros(occurred_at) DIV 1000000 AS from_second
  FROM marks
  WHERE event_type = 'failed' OR (event_type = 'delayed' AND attempt >= 1)
),
spans AS (
  SELECT
    p.broker, p.queue, p.subscriber, p.tenant, p.message_id, p.event_type, p.attempt, p.from_second,
    MIN(unix_micros(o.occurred_at) DIV 1000000) AS until_second
  FROM paused AS p
  LEFT JOIN marks AS o
    ON o.broker = p.broker
    AND o.queue = p.queue
    AND o.subscriber = p.subscriber
    AND o.message_id = p.message_id
    AND (
      o.event_type IN ('completed', 'dead_lettered', 'expired', 'sidelined')
      OR ((o.event_type = 'received' OR o.event_type = p.event_type) AND o.attempt > p.attempt)
    )
  GROUP BY p.broker, p.queue, p.subscriber, p.tenant, p.message_id, p.event_type, p.attempt, p.from_second
),
edges AS (
  SELECT broker, queue, subscriber, tenant, event_type, from_second AS at_second, 1 AS step
  FROM spans
  WHERE until_second IS NULL OR until_second > from_second
  UNION ALL
  SELECT broker, queue, subscriber, tenant, event_type, until_second AS at_second, -1 AS step
  FROM spans
  WHERE until_second > from_second
),
placed AS (
  SELECT e.*, $level_second AS level_second
  FROM edges AS e
  JOIN stage_levels AS l ON l.broker = e.broker
)
SELECT
  broker, queue, subscriber, tenant, level_second AS at_second,
  SUM(CASE WHEN event_type = 'failed' THEN step ELSE 0 END) AS waiting,
  SUM(CASE WHEN event_type = 'delayed' THEN step ELSE 0 END) AS delayed
FROM placed
GROUP BY broker, queue, subscriber, tenant, level_second
