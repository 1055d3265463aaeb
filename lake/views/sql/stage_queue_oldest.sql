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
cut AS (
  SELECT s.*, at_minute
  FROM spans AS s
  LATERAL VIEW explode(sequence(from_second DIV 60, last_second DIV 60)) m AS at_minute
  WHERE s.oldest_second IS NOT NULL
)
SELECT
  q.broker, q.queue, q.subscriber, q.at_second,
  MIN(c.oldest_second) AS oldest_second,
  MIN(CASE WHEN NOT c.noisy THEN c.oldest_second END) AS quiet_oldest_second
FROM stage_queues AS q
JOIN cut AS c
  ON c.broker = q.broker
  AND c.queue = q.queue
  AND c.subscriber = q.subscriber
  AND c.at_minute = q.at_second DIV 60
  AND c.from_second <= q.at_second
  AND c.last_second >= q.at_second
GROUP BY q.broker, q.queue, q.subscriber, q.at_second
