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
SELECT
  timestamp_micros(s.start_second * 1000000) AS bucket_start,
  CAST(s.bucket_seconds AS INT) AS bucket_seconds,
  s.broker,
  s.queue,
  NULLIF(s.subscriber, '') AS subscriber,
  s.tenant,
  s.kind,
  CAST(s.n AS BIGINT) AS count,
  s.total_seconds / CAST(s.n AS DOUBLE) AS mean_seconds,
  $p50_value AS p50_seconds,
  $p90_value AS p90_seconds,
  $p99_value AS p99_seconds,
  s.max_seconds,
  CAST(s.skewed AS BIGINT) AS skewed,
  r.histogram
FROM summed AS s
LEFT JOIN read AS r
  ON r.start_second = s.start_second
  AND r.bucket_seconds = s.bucket_seconds
  AND r.broker = s.broker
  AND r.queue = s.queue
  AND r.subscriber = s.subscriber
  AND r.tenant = s.tenant
  AND r.kind = s.kind
