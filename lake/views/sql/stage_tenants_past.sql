-- Each tenant's rows of history.
SELECT
  now_us AS as_of_us,
  second AS at_second,
  broker,
  queue,
  COALESCE(subscriber, '') AS subscriber,
  tenant,
  backlog,
  in_flight,
  ready,
  window_seconds,
  window_enqueued,
  window_finished,
  queue_backlog,
  noisy,
  coverage,
  oldest_second
FROM tenant_state_past
