-- Each tenant's newest row at its broker's data time, beside what the newest row of its queue says.
SELECT
  q.as_of_us,
  t.broker,
  t.queue,
  t.subscriber,
  t.tenant,
  t.backlog,
  t.in_flight,
  t.ready,
  t.noisy,
  t.oldest_second,
  q.window_seconds,
  t.window_enqueued,
  t.window_finished,
  t.window_received,
  t.window_processing_count,
  t.window_processing_sum,
  t.processing_bucket,
  q.in_flight_limit AS concurrency_limit,
  q.backlog AS queue_backlog,
  $coverage AS coverage
FROM tenant_state_now AS t
JOIN queue_state_now AS q ON q.key = t.queue_key
