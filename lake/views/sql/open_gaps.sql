-- Intervals of events that were deferred, and not read since.
SELECT gap_id, MIN(at) AS since, MAX(events) AS events
FROM gaps
GROUP BY gap_id
HAVING MIN(CASE WHEN open THEN 1 ELSE 0 END) = 1
