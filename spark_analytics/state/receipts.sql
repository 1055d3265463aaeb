-- Of each message that named subscribers received, its earliest first attempt over all of them, where its age is known. One
-- of which partials tell already ($newest: the newest fold they have reached) is left out.
WITH ranked AS (
  SELECT
    broker, queue, tenant, age_seconds, age_index, age_skewed, epoch_us(occurred_at) // 1000000 AS at_second,
    ROW_NUMBER() OVER (message ORDER BY occurred_at, age_seconds NULLS FIRST, subscriber) AS nth,
    BOOL_OR(COALESCE(fold <= $newest, FALSE)) OVER message AS folded
  FROM marks
  WHERE event_type = 'received' AND attempt = 1 AND subscriber <> ''
  WINDOW message AS (PARTITION BY broker, queue, message_id)
)
SELECT broker, queue, '' AS subscriber, tenant, at_second, age_seconds, age_index, COALESCE(age_skewed, FALSE) AS skewed
FROM ranked
WHERE nth = 1 AND NOT folded AND age_seconds IS NOT NULL
