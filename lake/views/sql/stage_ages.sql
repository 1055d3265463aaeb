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
  UNION ALL
  SELECT
    bucket_start, bucket_seconds, broker, queue, '' AS subscriber, tenant, 'first_subscriber_first_attempt' AS kind,
    first_subscriber_first_attempt_age_count, first_subscriber_first_attempt_age_sum,
    first_subscriber_first_attempt_age_max, first_subscriber_first_attempt_age_skewed,
    first_subscriber_first_attempt_age_histogram
  FROM partials
) AS stored
WHERE n > 0
UNION ALL
SELECT
  start_second, bucket_seconds, broker, queue, '', tenant, 'first_subscriber_first_attempt',
  SUM(n), SUM(total_seconds), MAX(max_seconds), SUM(skewed),
  collect_list(named_struct('index', age_index, 'count', CAST(n AS BIGINT)))
FROM (
  SELECT
    start_second, bucket_seconds, broker, queue, tenant, age_index,
    COUNT(*) AS n, SUM(age_seconds) AS total_seconds, MAX(age_seconds) AS max_seconds,
    SUM(CASE WHEN age_skewed THEN 1 ELSE 0 END) AS skewed
  FROM stage_first_receipts
  GROUP BY start_second, bucket_seconds, broker, queue, tenant, age_index
) AS single
GROUP BY start_second, bucket_seconds, broker, queue, tenant
