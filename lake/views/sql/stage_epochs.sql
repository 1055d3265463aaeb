-- From which second on later epochs supersede each epoch of finished state, and how far `queue_state` goes, which is
-- committed last.
SELECT
  broker,
  epoch,
  MIN(first_second) OVER (
    PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  ) AS superseded_from,
  MAX(newest_revision) OVER () AS newest_revision
FROM (
  SELECT
    broker,
    epoch,
    MIN(CASE WHEN corrects IS NULL THEN second END) AS first_second,
    MAX(revision) AS newest_revision
  FROM queue_state
  GROUP BY broker, epoch
) AS epochs
