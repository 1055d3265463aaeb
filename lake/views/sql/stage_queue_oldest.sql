-- Each queue's oldest enqueue second, over all tenants and over the quiet ones, at each second of the queue.
WITH spans AS (
  SELECT
    n.broker, n.queue, n.subscriber, n.tenant, n.noisy, o.oldest_second,
    n.at_second AS from_second,
    COALESCE(
      LEAD(n.at_second) OVER (PARTITION BY n.broker, n.queue, n.subscriber, n.tenant ORDER BY n.at_second) - 1,
      n.at_second
    ) AS last_second
  FROM stage_noisy AS n
  LEFT JOIN stage_oldest AS o
    ON o.broker = n.broker
    AND o.queue = n.queue
    AND o.subscriber = n.subscriber
    AND o.tenant = n.tenant
    AND o.at_second = n.at_second
),
-- As in stage_oldest, pieces of time are there for the join's sake.
measured AS (
  SELECT *, $piece_seconds AS piece_seconds
  FROM spans
  WHERE oldest_second IS NOT NULL
),
cut AS (
  SELECT m.*, piece
  FROM measured AS m
  LATERAL VIEW explode(sequence(from_second DIV piece_seconds, last_second DIV piece_seconds)) x AS piece
),
lengths AS (
  SELECT DISTINCT piece_seconds FROM measured
)
SELECT
  q.broker, q.queue, q.subscriber, q.at_second,
  MIN(c.oldest_second) AS oldest_second,
  MIN(CASE WHEN NOT c.noisy THEN c.oldest_second END) AS quiet_oldest_second
FROM stage_queues AS q
CROSS JOIN lengths AS l
JOIN cut AS c
  ON c.broker = q.broker
  AND c.queue = q.queue
  AND c.subscriber = q.subscriber
  AND c.piece_seconds = l.piece_seconds
  AND c.piece = q.at_second DIV l.piece_seconds
  AND c.from_second <= q.at_second
  AND c.last_second >= q.at_second
GROUP BY q.broker, q.queue, q.subscriber, q.at_second
