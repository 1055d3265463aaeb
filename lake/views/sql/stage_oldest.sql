-- The second in which each tenant's oldest message in the backlog was enqueued, at each instant asked for.
-- Leavers of unknown age are taken to have been the oldest: queues are mostly first in, first out.
-- Pieces of time make the join between instants and open cells one by equality: each cell is in the one or two pieces
-- that are about as long as it was open, each instant in one piece of every length. They change no result.
WITH measured AS (
  SELECT *, $piece_seconds AS piece_seconds
  FROM stage_open_cells
  WHERE open > 0 OR cell_second IS NULL
),
cells AS (
  SELECT m.*, piece
  FROM measured AS m
  LATERAL VIEW explode(sequence(from_second DIV piece_seconds, last_second DIV piece_seconds)) x AS piece
),
lengths AS (
  SELECT DISTINCT piece_seconds FROM measured
),
open_then AS (
  SELECT i.broker, i.queue, i.subscriber, i.tenant, i.at_second, c.cell_second, c.open
  FROM stage_noisy AS i
  CROSS JOIN lengths AS l
  JOIN cells AS c
    ON c.broker = i.broker
    AND c.queue = i.queue
    AND c.subscriber = i.subscriber
    AND c.tenant = i.tenant
    AND c.piece_seconds = l.piece_seconds
    AND c.piece = i.at_second DIV l.piece_seconds
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
