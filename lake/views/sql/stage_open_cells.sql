-- How many messages of each enqueue second were in the backlog, and from which second to which last one.
-- A null cell holds (negative) the leavers whose enqueue time is unknown.
WITH cells AS (
  SELECT p.broker, p.queue, p.subscriber, p.tenant, p.at_second, cell.second AS cell_second, SUM(cell.net) AS net
  FROM stage_partials AS p
  LATERAL VIEW explode(p.backlog_cells) x AS cell
  WHERE p.own OR cell.net > 0
  GROUP BY p.broker, p.queue, p.subscriber, p.tenant, p.at_second, cell.second
),
summed AS (
  SELECT
    broker, queue, subscriber, tenant, cell_second,
    at_second AS from_second,
    LEAD(at_second) OVER so_far AS next_second,
    SUM(net) OVER so_far AS open
  FROM cells
  WINDOW so_far AS (PARTITION BY broker, queue, subscriber, tenant, cell_second ORDER BY at_second)
)
SELECT
  s.broker, s.queue, s.subscriber, s.tenant, s.cell_second, s.from_second, s.open,
  COALESCE(s.next_second - 1, c.now_second) AS last_second
FROM summed AS s
JOIN stage_clock AS c ON c.broker = s.broker
