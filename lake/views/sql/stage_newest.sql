-- The newest event and the newest sample of each broker, and how far apart its samples are meant to be.
SELECT
  broker,
  MAX(newest_event_at) AS as_of,
  MAX(newest_sample_at) AS sampled_at,
  MAX_BY(sample_interval_seconds, CASE WHEN sample_interval_seconds IS NOT NULL THEN sampled_us END)
    AS sample_interval_seconds
FROM queue_state_now
GROUP BY broker
