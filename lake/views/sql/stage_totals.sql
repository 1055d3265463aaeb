-- What the rows of each queue's tenants sum to, without reading them: `queue_state` has it. Of queues of which an earlier
-- version wrote nobody knows how many tenants they have.
SELECT
  q.broker,
  q.queue,
  q.subscriber,
  q.tenants,
  CASE WHEN h.complete THEN q.backlog END AS backlog,
  CASE WHEN h.complete THEN q.events_in_flight END AS in_flight,
  CASE WHEN h.complete THEN q.ready END AS ready,
  q.window_enqueued / q.window_seconds AS arrival_rate,
  q.window_finished / q.window_seconds AS completion_rate
FROM queue_state_now AS q
CROSS JOIN stage_history AS h
WHERE q.has_events AND COALESCE(q.tenants, 1) > 0
