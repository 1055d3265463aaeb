-- The newest event and the newest sample of each broker.
SELECT broker, MAX(newest_event_at) AS as_of, MAX(newest_sample_at) AS sampled_at FROM queue_state_now GROUP BY broker
