-- What each tenant's rows of history say of its attempts.
SELECT
  now_us AS as_of_us,
  broker,
  queue,
  COALESCE(subscriber, '') AS subscriber,
  tenant,
  in_flight,
  window_seconds,
  window_received,
  window_processing_count,
  window_processing_sum,
  processing_bucket AS bucket,
  concurrency_limit
FROM tenant_state_past
