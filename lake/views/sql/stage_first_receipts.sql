-- Of each message on a queue with named subscribers, its earliest first attempt over all of them.
WITH ranked AS (
  SELECT
    broker, queue, tenant, message_id, age_seconds, age_index, age_skewed,
    unix_micros(occurred_at) DIV 1000000 AS at_second,
    ROW_NUMBER() OVER (
      PARTITION BY broker, queue, message_id ORDER BY occurred_at, age_seconds, subscriber
    ) AS receipt
  FROM marks
  WHERE event_type = 'received' AND attempt = 1 AND subscriber <> ''
)
SELECT * FROM ranked WHERE receipt = 1 AND age_seconds IS NOT NULL
