WITH summed AS (
  SELECT
    start_second, bucket_seconds, broker, queue, subscriber, tenant, kind,
    SUM(n) AS n, SUM(total_seconds) AS total_seconds, MAX(max_seconds) AS max_seconds, SUM(skewed) AS skewed
  FROM $ages
  GROUP BY start_second, bucket_seconds, broker, queue, subscriber, tenant, kind
),
cells AS (
  SELECT
    start_second, bucket_seconds, broker, queue, subscriber, tenant, kind,
    cell.index AS bucket, SUM(cell.count) AS n
  FROM $ages
  LATERAL VIEW explode(histogram) x AS cell
  GROUP BY start_second, bucket_seconds, broker, queue, subscriber, tenant, kind, cell.index
),
ranked AS (
  SELECT
    *,
    SUM(n) OVER (
      PARTITION BY start_second, bucket_seconds, broker, queue, subscriber, tenant, kind ORDER BY bucket
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS so_far,
    SUM(n) OVER (PARTITION BY start_second, bucket_seconds, broker, queue, subscriber, tenant, kind) AS total
  FROM cells
),
read AS (
  SELECT
    start_second, bucket_seconds, broker, queue, subscriber, tenant, kind,
    MIN(CASE WHEN so_far * 100 >= total * 50 THEN bucket END) AS p50,
    MIN(CASE WHEN so_far * 100 >= total * 90 THEN bucket END) AS p90,
    MIN(CASE WHEN so_far * 100 >= total * 99 THEN bucket END) AS p99,
    array_sort(collect_list(named_struct('index', CAST(bucket AS INT), 'count', CAST(n AS BIGINT)))) AS histogram
  FROM ranked
  GROUP BY start_second, bucket_seconds, broker, queue, subscriber, tenant, kind
)
SELECT s.*, r.p50, r.p90, r.p99, r.histogram
FROM summed AS s
LEFT JOIN read AS r
  ON r.start_second = s.start_second
  AND r.bucket_seconds = s.bucket_seconds
  AND r.broker = s.broker
  AND r.queue = s.queue
  AND r.subscriber = s.subscriber
  AND r.tenant = s.tenant
  AND r.kind = s.kind
