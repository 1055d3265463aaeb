-- Marks that no view can miss; $ placeholders name a table of bounds by broker, in unix seconds: `opened` (history before
-- it is one opening balance), `coarse` (until there partials are told by the hour), `settled` (older marks change no more).
CREATE OR REPLACE TEMP TABLE told AS
SELECT
  broker, queue, subscriber, tenant, message_id, event_type, attempt, epoch_us(occurred_at) // 1000000 AS second
FROM marks
WHERE event_type <> 'received' OR attempt IS DISTINCT FROM 1;

-- Pauses as the views count them (`pauses.py` of the fold): from a failure or a delay until the next attempt or the end.
CREATE OR REPLACE TEMP TABLE spans AS
SELECT p.broker, p.queue, p.subscriber, p.message_id, p.event_type, p.number, p.second, MIN(o.second) AS until
FROM (
  SELECT *, COALESCE(attempt, 1) AS number
  FROM told
  WHERE event_type = 'failed' OR (event_type = 'delayed' AND attempt >= 1)
) AS p
LEFT JOIN told AS o
  ON o.broker = p.broker
  AND o.queue = p.queue
  AND o.subscriber = p.subscriber
  AND o.message_id = p.message_id
  AND (
    o.event_type IN ('completed', 'dead_lettered', 'expired', 'sidelined')
    OR ((o.event_type = 'received' OR o.event_type = p.event_type) AND o.attempt > p.number)
  )
GROUP BY ALL;

-- Messages with a pause that still tells something: it has not ended, or begins and ends in different buckets of history.
-- A failure of attempt 0 would end with a first attempt, which is not among these rows.
CREATE OR REPLACE TEMP TABLE telling AS
SELECT DISTINCT s.broker, s.queue, s.subscriber, s.message_id
FROM spans AS s
JOIN bounds AS b ON b.broker = s.broker
WHERE s.until IS NULL
  OR s.number < 1
  OR (
    s.until > s.second
    AND s.until >= b.opened
    AND (s.second // 3600 <> s.until // 3600 OR (s.until // 3600 + 1) * 3600 > b.coarse)
  );

CREATE OR REPLACE TEMP TABLE dropped AS
SELECT t.broker, t.queue, t.subscriber, t.message_id
FROM told AS t
JOIN bounds AS b ON b.broker = t.broker
ANTI JOIN telling AS k
  ON k.broker = t.broker AND k.queue = t.queue AND k.subscriber = t.subscriber AND k.message_id = t.message_id
GROUP BY ALL
HAVING MAX(t.second) < MAX(b.settled);

CREATE OR REPLACE TEMP TABLE savings AS
SELECT t.second // 3600 AS hour, COUNT(d.message_id) AS saved, COUNT(*) AS there
FROM told AS t
LEFT JOIN dropped AS d
  ON d.broker = t.broker AND d.queue = t.queue AND d.subscriber = t.subscriber AND d.message_id = t.message_id
GROUP BY ALL
