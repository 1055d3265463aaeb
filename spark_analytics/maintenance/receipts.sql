-- First attempts of named subscribers that are settled, message by message. `bounds` names by broker, in unix seconds:
-- `settled` (older marks change no more) and `remembered` (what was folded and is older need not be known any more).
CREATE OR REPLACE TEMP TABLE receipts AS
SELECT m.broker, m.queue, m.subscriber, m.message_id, m.occurred_at, m.fold, b.remembered
FROM marks AS m
JOIN bounds AS b ON b.broker = m.broker
WHERE m.event_type = 'received' AND m.attempt = 1 AND m.subscriber <> '' AND epoch_us(m.occurred_at) // 1000000 < b.settled;

CREATE OR REPLACE TEMP TABLE messages AS
SELECT
  broker, queue, message_id,
  MIN(occurred_at) AS earliest, BOOL_OR(fold IS NOT NULL) AS folded, BOOL_OR(fold IS NULL) AS pending
FROM receipts
GROUP BY ALL;

-- A failure of attempt 0 ends with a first attempt (`pauses.py` of the fold), which therefore stays.
CREATE OR REPLACE TEMP TABLE ending AS
SELECT DISTINCT broker, queue, subscriber, message_id FROM marks WHERE event_type = 'failed' AND attempt < 1;

-- By hour: how many attempts are to be numbered, and how many rows go.
CREATE OR REPLACE TEMP TABLE hours AS
SELECT
  epoch_us(r.occurred_at) // 3600000000 AS hour,
  COUNT(*) AS there,
  COUNT(*) FILTER (r.fold IS NULL) AS unfolded,
  COUNT(*) FILTER (
    e.message_id IS NULL AND CASE
      WHEN r.fold IS NULL THEN m.folded OR r.occurred_at > m.earliest
      ELSE NOT m.pending AND r.fold <= $newest AND epoch_us(r.occurred_at) // 1000000 < r.remembered
    END
  ) AS gone
FROM receipts AS r
JOIN messages AS m ON m.broker = r.broker AND m.queue = r.queue AND m.message_id = r.message_id
LEFT JOIN ending AS e
  ON e.broker = r.broker AND e.queue = r.queue AND e.subscriber = r.subscriber AND e.message_id = r.message_id
GROUP BY hour
