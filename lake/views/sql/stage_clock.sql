-- Data time of each broker: its newest event, or its newest sample where it has no event at all.
SELECT
  broker,
  COALESCE(MAX(event_us), MAX(sample_us)) AS as_of_us,
  COALESCE(MAX(event_us), MAX(sample_us)) DIV 1000000 AS now_second
FROM (
  SELECT broker, unix_micros(newest_occurred_at) AS event_us, CAST(NULL AS BIGINT) AS sample_us FROM partials
  UNION ALL
  SELECT broker, CAST(NULL AS BIGINT) AS event_us, unix_micros(sampled_at) AS sample_us FROM queue_samples
) AS records
GROUP BY broker
