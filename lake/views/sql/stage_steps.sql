-- What changed for each consumer and tenant in each second, and a step without change at the broker's data time.
WITH parts AS (
  SELECT
    broker, queue, subscriber, tenant, at_second, bucket_seconds, CASE WHEN $opening THEN 2 ELSE 1 END AS changed,
    enqueued, received, retries, dead_lettered, finished, busy, 0 AS delayed, processing_count, processing_sum
  FROM stage_partials
  UNION ALL
  SELECT
    broker, queue, subscriber, tenant, at_second, 1 AS bucket_seconds, 0 AS changed,
    0, 0, 0, 0, 0, -waiting AS busy, delayed, 0, CAST(0 AS DOUBLE)
  FROM stage_pauses
  UNION ALL
  SELECT DISTINCT
    p.broker, p.queue, p.subscriber, p.tenant, c.now_second, 1 AS bucket_seconds, 0 AS changed,
    0, 0, 0, 0, 0, 0 AS busy, 0, 0, CAST(0 AS DOUBLE)
  FROM stage_partials AS p
  JOIN stage_clock AS c ON c.broker = p.broker
)
SELECT
  broker, queue, subscriber, tenant, at_second,
  MAX(bucket_seconds) AS bucket_seconds,
  MAX(changed) AS changed,
  CAST(SUM(enqueued) AS BIGINT) AS enqueued,
  CAST(SUM(received) AS BIGINT) AS received,
  CAST(SUM(retries) AS BIGINT) AS retries,
  CAST(SUM(dead_lettered) AS BIGINT) AS dead_lettered,
  CAST(SUM(finished) AS BIGINT) AS finished,
  CAST(SUM(busy) AS BIGINT) AS busy,
  CAST(SUM(delayed) AS BIGINT) AS delayed,
  CAST(SUM(processing_count) AS BIGINT) AS processing_count,
  SUM(processing_sum) AS processing_sum
FROM parts
GROUP BY broker, queue, subscriber, tenant, at_second
