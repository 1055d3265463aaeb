-- What was sampled of each queue and consumer in each second: the newest reading of several, and the sums of changes.
SELECT
  broker, queue, subscriber, at_second,
  MAX(bucket_seconds) AS bucket_seconds,
  MAX(changed) AS changed,
  MAX(read_us) AS sampled_us,
  -- A struct, so that a value which the newest sample lacks is null in every engine, not an older one.
  MAX_BY(
    named_struct(
      'depth', depth, 'in_flight', in_flight, 'staleness', staleness_seconds, 'oldest_age', oldest_age_seconds,
      'serves', dead_letter_for, 'consumers', consumers, 'delayed', delayed, 'status', status,
      'retention_margin', retention_margin, 'prefetch', prefetch, 'visibility_timeout', visibility_timeout_seconds,
      'transactional_lag', transactional_lag, 'transactional_age', transactional_age_seconds
    ),
    read_us
  ) AS newest,
  MAX_BY(in_flight_limit, CASE WHEN in_flight_limit IS NOT NULL THEN sampled_us END) AS in_flight_limit,
  SUM(there_change) AS there_change,
  SUM(there_us) AS there_us,
  SUM(acked) AS acked,
  SUM(lost) AS lost,
  SUM(estimated) AS estimated,
  SUM(polls) AS polls,
  SUM(empty_polls) AS empty_polls
FROM $placed
GROUP BY broker, queue, subscriber, at_second
