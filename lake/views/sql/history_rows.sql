-- Every row of history: of each key and second what was told of it last, as far as `queue_state` goes, which is committed
-- last. An epoch supersedes those before it from its first second on, a correction what was told of its queue.
WITH corrections AS (
  SELECT broker, queue, revision, MIN(corrects) AS corrects
  FROM queue_state
  WHERE corrects IS NOT NULL
  GROUP BY broker, queue, revision
),
told AS (
  SELECT s.*, ROW_NUMBER() OVER (PARTITION BY $names, s.second ORDER BY s.epoch DESC, s.revision DESC) AS nth
  FROM $table AS s
  JOIN stage_epochs AS e ON e.broker = s.broker AND e.epoch = s.epoch
  WHERE s.happened
    AND s.revision <= e.newest_revision
    AND (e.superseded_from IS NULL OR s.second < e.superseded_from)
    AND NOT EXISTS (
      SELECT 1 FROM corrections AS c
      WHERE c.broker = s.broker AND c.queue = s.queue AND c.revision > s.revision AND c.corrects <= s.second
    )
)
SELECT * EXCEPT (nth), unix_micros(as_of) AS as_of_us FROM told WHERE nth = 1
