-- What each tenant's newest row says of its attempts.
SELECT
  q.now_us AS as_of_us,
  t.broker,
  t.queue,
  COALESCE(t.subscriber, '') AS subscriber,
  t.tenant,
  t.in_flight,
  q.window_seconds,
  t.window_received,
  t.window_processing_count,
  t.window_processing_sum,
  t.processing_bucket AS bucket,
  q.in_flight_limit AS concurrency_limit
FROM tenant_state_now AS t
JOIN queue_state_now AS q ON q.key = t.queue_key
