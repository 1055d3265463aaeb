-- Noisy tenants by the rule that Amazon SQS fair queues publish, with a threshold that is fair to few tenants.
-- A tenant turns noisy on a large share while others wait, and stays so until its backlog is gone or it has sent nothing
-- for five minutes. A busy tenant always has some messages in flight: its backlog counts as gone, too, once none is left
-- to receive and it no longer takes more than its share.
WITH thresholds AS (
  SELECT
    *,
    GREATEST(CAST(0.1 AS DOUBLE), LEAST(CAST(0.6 AS DOUBLE), CAST(2 AS DOUBLE) / GREATEST(active_tenants, 1)))
      AS threshold
  FROM stage_shares
),
judged AS (
  SELECT
    *,
    queue_ready - ready > 0
      AND (
        (in_flight >= 30 AND in_flight > threshold * queue_in_flight)
        OR window_processing_sum > threshold * queue_processing_sum
      ) AS enters
  FROM thresholds
),
timed AS (
  SELECT
    *,
    CASE WHEN enters THEN at_second END AS entry_second,
    CASE
      WHEN backlog = 0 OR (ready = 0 AND NOT enters) OR at_second - COALESCE(last_arrival_second, 0) >= 300
        THEN at_second
    END AS quiet_second
  FROM judged
)
SELECT
  *,
  COALESCE(MAX(entry_second) OVER so_far > COALESCE(MAX(quiet_second) OVER so_far, -1), FALSE) AS noisy
FROM timed
WINDOW so_far AS (
  PARTITION BY broker, queue, subscriber, tenant ORDER BY at_second
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
