-- Up to which second each broker's partials were rolled up to minutes, to hours, and to an opening balance; −1 where they
-- were not yet.
SELECT
  c.broker, c.as_of_us, c.now_second,
  COALESCE(MAX(CASE WHEN p.bucket_seconds >= 60 THEN p.last_second END), -1) AS minutes_until,
  COALESCE(MAX(CASE WHEN p.bucket_seconds >= 3600 THEN p.last_second END), -1) AS hours_until,
  COALESCE(MAX(CASE WHEN $opening THEN p.last_second END), -1) AS opened_until
FROM stage_clock AS c
LEFT JOIN (
  SELECT broker, bucket_seconds, unix_micros(bucket_start) DIV 1000000 + bucket_seconds - 1 AS last_second FROM partials
) AS p
  ON p.broker = c.broker
GROUP BY c.broker, c.as_of_us, c.now_second
