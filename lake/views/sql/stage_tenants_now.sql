-- Each tenant's newest row at its broker's data time, beside its whole queue.
SELECT
  q.now_us AS as_of_us,
  q.now_us DIV 1000000 AS at_second,
  t.broker,
  t.queue,
  COALESCE(t.subscriber, '') AS subscriber,
  t.tenant,
  t.backlog,
  t.in_flight,
  t.ready,
  q.window_seconds,
  t.window_enqueued,
  t.window_finished,
  q.backlog AS queue_backlog,
  t.noisy,
  $coverage AS coverage,
  t.oldest_second
FROM tenant_state_now AS t
JOIN queue_state_now AS q ON q.key = t.queue_key
