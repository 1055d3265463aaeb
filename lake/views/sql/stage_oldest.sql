-- The second in which each tenant's oldest message in the backlog was enqueued, at each instant asked for.
-- Leavers of unknown age are taken to have been the oldest: queues are mostly first in, first out.
-- Minutes cut the join between instants and open cells into small pieces; they change no result.
WITH cells AS (
  SELECT c.*, at_minute
  FROM stage_open_cells AS c
  LATERAL VIEW explode(sequence(from_second DIV 60, last_second DIV 60)) m AS at_minute
  WHERE c.open > 0 OR c.cell_second IS NULL
),
open_then AS (
  SELECT i.broker, i.queue, i.subscriber, i.tenant, i.at_second, c.cell_second, c.open
  FROM stage_noisy AS i
  JOIN cells AS c
    ON c.broker = i.broker
    AND c.queue = i.queue
    AND c.subscriber = i.subscriber
    AND c.tenant = i.tenant
    AND c.at_minute = i.at_second DIV 60
    AND c.from_second <= i.at_second
    AND c.last_second >= i.at_second
  WHERE ($instants) AND i.backlog > 0
),
ranked AS (
  SELECT
    *,
    SUM(CASE WHEN cell_second IS NULL THEN 0 ELSE open END) OVER (
      PARTITION BY broker, queue, subscriber, tenant, at_second ORDER BY cell_second
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS open_so_far,
    -SUM(CASE WHEN cell_second IS NULL THEN open ELSE 0 END) OVER (
      PARTITION BY broker, queue, subscriber, tenant, at_second
    ) AS unknown_leavers
  FROM open_then
)
SELECT
  broker, queue, subscriber, tenant, at_second,
  MIN(CASE WHEN cell_second IS NOT NULL AND open_so_far > unknown_leavers THEN cell_second END) AS oldest_second
FROM ranked
GROUP BY broker, queue, subscriber, tenant, at_second
