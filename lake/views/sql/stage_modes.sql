-- Queues with the age of their oldest message and the mode that follows from it. Unknown age, unknown mode.
WITH aged AS (
  SELECT
    q.*,
    $oldest_age AS oldest_age_seconds,
    $quiet_oldest_age AS quiet_oldest_age_seconds
  FROM stage_queues AS q
  LEFT JOIN stage_queue_oldest AS o
    ON o.broker = q.broker AND o.queue = q.queue AND o.subscriber = q.subscriber AND o.at_second = q.at_second
  WHERE q.changed = 1 OR q.is_now = 1
),
moded AS (
  SELECT
    *,
    CASE
      WHEN NOT has_events OR (backlog > 0 AND oldest_age_seconds IS NULL) THEN NULL
      WHEN oldest_age_seconds > $target THEN 'backlogged'
      ELSE 'fast'
    END AS mode
  FROM aged
),
turned AS (
  SELECT
    *,
    CASE WHEN mode IS DISTINCT FROM LAG(mode) OVER so_far THEN as_of_us END AS turned_us
  FROM moded
  WINDOW so_far AS (PARTITION BY broker, queue, subscriber ORDER BY at_second)
)
SELECT
  *,
  MAX(turned_us) OVER (
    PARTITION BY broker, queue, subscriber ORDER BY at_second ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS mode_since_us
FROM turned
