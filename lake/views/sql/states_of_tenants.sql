SELECT i.*, o.oldest_second
FROM stage_noisy AS i
LEFT JOIN $oldest AS o
  ON o.broker = i.broker
  AND o.queue = i.queue
  AND o.subscriber = i.subscriber
  AND o.tenant = i.tenant
  AND o.at_second = i.at_second
WHERE $instants
