-- Every row of history: of each key and second what was told of it last, as far as `queue_state` goes, which is committed
-- last. An epoch supersedes those before it from its first second on, a correction what was told of its queue.
WITH begins AS (
  SELECT broker, epoch, MIN(second) AS first_second
  FROM queue_state
  WHERE corrects IS NULL
  GROUP BY broker, epoch
),
ends AS (
  SELECT
    broker, epoch,
    MIN(first_second) OVER (
      PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS superseded_from
  FROM begins
),
corrections AS (
  SELECT broker, queue, revision, MIN(corrects) AS corrects
  FROM queue_state
  WHERE corrects IS NOT NULL
  GROUP BY broker, queue, revision
),
told AS (
  SELECT s.*, ROW_NUMBER() OVER (PARTITION BY $names, s.second ORDER BY s.epoch DESC, s.revision DESC) AS nth
  FROM $table AS s
  JOIN ends AS e ON e.broker = s.broker AND e.epoch = s.epoch
  CROSS JOIN (SELECT MAX(revision) AS newest_revision FROM queue_state) AS n
  WHERE s.happened
    AND s.revision <= n.newest_revision
    AND (e.superseded_from IS NULL OR s.second < e.superseded_from)
    AND NOT EXISTS (
      SELECT 1 FROM corrections AS c
      WHERE c.broker = s.broker AND c.queue = s.queue AND c.revision > s.revision AND c.corrects <= s.second
    )
)
SELECT * EXCEPT (nth), unix_micros(as_of) AS now_us FROM told WHERE nth = 1
