WITH covered AS (
  SELECT broker, queue, subscriber, at_second, $coverage AS coverage
  FROM $queues
)
SELECT i.*, o.oldest_second, c.coverage
FROM stage_noisy AS i
LEFT JOIN $oldest AS o
  ON o.broker = i.broker
  AND o.queue = i.queue
  AND o.subscriber = i.subscriber
  AND o.tenant = i.tenant
  AND o.at_second = i.at_second
LEFT JOIN covered AS c
  ON c.broker = i.broker AND c.queue = i.queue AND c.subscriber = i.subscriber AND c.at_second = i.at_second
WHERE $instants
