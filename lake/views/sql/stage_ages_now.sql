-- The newest bucket of each kind of age of each key.
SELECT a.*
FROM stage_ages AS a
JOIN (
  SELECT broker, queue, subscriber, tenant, kind, MAX(start_second) AS newest_second
  FROM stage_ages
  GROUP BY broker, queue, subscriber, tenant, kind
) AS newest
  ON newest.broker = a.broker
  AND newest.queue = a.queue
  AND newest.subscriber = a.subscriber
  AND newest.tenant = a.tenant
  AND newest.kind = a.kind
  AND newest.newest_second = a.start_second
