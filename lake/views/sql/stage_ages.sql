-- Every kind of age in one shape: counts and sums by bucket, and the histograms as rows.
SELECT
  unix_micros(bucket_start) DIV 1000000 AS start_second, bucket_seconds, broker, queue, subscriber, tenant, kind,
  n, total_seconds, max_seconds, skewed, histogram
FROM (
  SELECT
    bucket_start, bucket_seconds, broker, queue, subscriber, tenant, 'first_attempt' AS kind,
    first_attempt_age_count AS n, first_attempt_age_sum AS total_seconds, first_attempt_age_max AS max_seconds,
    first_attempt_age_skewed AS skewed, first_attempt_age_histogram AS histogram
  FROM partials
  UNION ALL
  SELECT
    bucket_start, bucket_seconds, broker, queue, subscriber, tenant, 'retry' AS kind,
    retry_age_count, retry_age_sum, retry_age_max, retry_age_skewed, retry_age_histogram
  FROM partials
  UNION ALL
  SELECT
    bucket_start, bucket_seconds, broker, queue, subscriber, tenant, 'completion' AS kind,
    completion_age_count, completion_age_sum, completion_age_max, completion_age_skewed, completion_age_histogram
  FROM partials
  UNION ALL
  SELECT
    bucket_start, bucket_seconds, broker, queue, subscriber, tenant, 'first_subscriber_first_attempt' AS kind,
    first_attempt_age_count, first_attempt_age_sum, first_attempt_age_max, first_attempt_age_skewed,
    first_attempt_age_histogram
  FROM partials
  WHERE subscriber = ''
) AS stored
WHERE n > 0
UNION ALL
SELECT
  at_second, 1, broker, queue, '', tenant, 'first_subscriber_first_attempt',
  COUNT(*), SUM(age_seconds), MAX(age_seconds), SUM(CASE WHEN age_skewed THEN 1 ELSE 0 END),
  collect_list(named_struct('index', age_index, 'count', CAST(1 AS BIGINT)))
FROM stage_first_receipts
GROUP BY at_second, broker, queue, tenant
