-- Noisy tenants by the rule that Amazon SQS fair queues publish, with a threshold that is fair to few tenants.
-- A tenant turns noisy on a large share while others wait, and stays so until its backlog is gone or it has sent nothing
-- for five minutes. A busy tenant always has some messages in flight: its backlog counts as gone, too, once none is left
-- to receive and it no longer takes more than its share.
WITH thresholds AS (
  SELECT
    *,
    $threshold AS threshold
  FROM stage_shares
),
judged AS (
  SELECT
    *,
    $enters AS enters
  FROM thresholds
),
timed AS (
  SELECT
    *,
    CASE WHEN enters THEN at_second END AS entry_second,
    CASE WHEN $turns_quiet THEN at_second END AS quiet_second
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
