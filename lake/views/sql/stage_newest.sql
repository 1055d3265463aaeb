-- Of each broker the newest event that gold holds, and the newest sample; null where there is none. Reports of events that
-- were estimated are no samples: nobody reads the broker.
SELECT broker, MAX(as_of) AS as_of, MAX(sampled_at) AS sampled_at
FROM (
  SELECT broker, newest_occurred_at AS as_of, CAST(NULL AS TIMESTAMP) AS sampled_at FROM partials
  UNION ALL
  SELECT broker, CAST(NULL AS TIMESTAMP) AS as_of, sampled_at FROM queue_samples WHERE estimated IS NULL
) AS newest
GROUP BY broker
