-- Every bucket of ages: of each what was told of it last. A longer bucket supersedes what was told before of shorter ones
-- within it.
WITH longer AS (
  SELECT broker, queue, subscriber, tenant, kind, bucket_start, bucket_seconds, MAX(revision) AS revision
  FROM age_state
  WHERE bucket_seconds > 1
  GROUP BY broker, queue, subscriber, tenant, kind, bucket_start, bucket_seconds
),
latest AS (
  SELECT
    *,
    ROW_NUMBER() OVER (
      PARTITION BY broker, queue, subscriber, tenant, kind, bucket_start, bucket_seconds ORDER BY revision DESC
    ) AS nth
  FROM age_state
)
SELECT t.* EXCEPT (nth)
FROM latest AS t
LEFT JOIN longer AS m
  ON m.bucket_seconds = 60
  AND m.bucket_start = timestamp_micros(unix_micros(t.bucket_start) DIV 60000000 * 60000000)
  AND m.broker = t.broker
  AND m.queue = t.queue
  AND m.subscriber IS NOT DISTINCT FROM t.subscriber
  AND m.tenant = t.tenant
  AND m.kind = t.kind
LEFT JOIN longer AS h
  ON h.bucket_seconds = 3600
  AND h.bucket_start = timestamp_micros(unix_micros(t.bucket_start) DIV 3600000000 * 3600000000)
  AND h.broker = t.broker
  AND h.queue = t.queue
  AND h.subscriber IS NOT DISTINCT FROM t.subscriber
  AND h.tenant = t.tenant
  AND h.kind = t.kind
WHERE t.nth = 1
  AND (t.bucket_seconds >= 60 OR m.revision IS NULL OR m.revision < t.revision)
  AND (t.bucket_seconds >= 3600 OR h.revision IS NULL OR h.revision < t.revision)
