WITH histograms AS (
  SELECT
    broker, queue, subscriber, tenant,
    CASE WHEN bucket_seconds = 1 THEN at_second ELSE at_second - $apart END AS window_second,
    cell.index AS bucket, SUM(cell.count) AS n
  FROM stage_partials
  LATERAL VIEW explode(processing_histogram) x AS cell
  GROUP BY broker, queue, subscriber, tenant, at_second, bucket_seconds, cell.index
),
merged AS (
  SELECT i.broker, i.queue, i.subscriber, i.tenant, i.at_second, h.bucket, SUM(h.n) AS n
  FROM stage_tenants AS i
  JOIN histograms AS h
    ON h.broker = i.broker
    AND h.queue = i.queue
    AND h.subscriber = i.subscriber
    AND h.tenant = i.tenant
    AND h.window_second <= i.window_second
    AND h.window_second > i.window_second - $window
  WHERE $instants
  GROUP BY i.broker, i.queue, i.subscriber, i.tenant, i.at_second, h.bucket
),
ranked AS (
  SELECT
    *,
    SUM(n) OVER (
      PARTITION BY broker, queue, subscriber, tenant, at_second ORDER BY bucket
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS so_far,
    SUM(n) OVER (PARTITION BY broker, queue, subscriber, tenant, at_second) AS total
  FROM merged
),
p99 AS (
  SELECT
    broker, queue, subscriber, tenant, at_second,
    MIN(CASE WHEN so_far * 100 >= total * 99 THEN bucket END) AS bucket
  FROM ranked
  GROUP BY broker, queue, subscriber, tenant, at_second
)
SELECT i.*, p.bucket, l.in_flight_limit AS concurrency_limit
FROM stage_tenants AS i
LEFT JOIN p99 AS p
  ON p.broker = i.broker
  AND p.queue = i.queue
  AND p.subscriber = i.subscriber
  AND p.tenant = i.tenant
  AND p.at_second = i.at_second
LEFT JOIN stage_queues AS q
  ON q.broker = i.broker AND q.queue = i.queue AND q.subscriber = i.subscriber AND q.at_second = i.at_second
LEFT JOIN stage_sampled AS l
  ON l.broker = i.broker AND l.queue = i.queue AND l.subscriber = i.subscriber AND l.at_second = q.limit_second
WHERE $instants
