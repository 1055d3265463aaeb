-- Partials as each consumer lives them: what is enqueued for no named subscriber is enqueued for all of them.
SELECT
  c.broker,
  c.queue,
  c.subscriber,
  p.tenant,
  unix_micros(p.bucket_start) DIV 1000000 + p.bucket_seconds - 1 AS at_second,
  p.bucket_seconds,
  c.subscriber = p.subscriber AS own,
  p.enqueued,
  CASE WHEN c.subscriber = p.subscriber THEN p.received ELSE 0 END AS received,
  CASE WHEN c.subscriber = p.subscriber THEN p.retries ELSE 0 END AS retries,
  CASE WHEN c.subscriber = p.subscriber THEN p.dead_lettered ELSE 0 END AS dead_lettered,
  CASE WHEN c.subscriber = p.subscriber THEN $finished ELSE 0 END AS finished,
  CASE WHEN c.subscriber = p.subscriber THEN $busy ELSE 0 END AS busy,
  CASE WHEN c.subscriber = p.subscriber THEN COALESCE(p.processing_count, 0) ELSE 0 END AS processing_count,
  CASE WHEN c.subscriber = p.subscriber THEN COALESCE(p.processing_sum, CAST(0 AS DOUBLE)) ELSE CAST(0 AS DOUBLE) END
    AS processing_sum,
  CASE WHEN c.subscriber = p.subscriber THEN p.processing_histogram END AS processing_histogram,
  p.backlog_cells
FROM partials AS p
JOIN stage_consumers AS c
  ON c.broker = p.broker
  AND c.queue = p.queue
  AND (c.subscriber = p.subscriber OR (p.subscriber = '' AND p.enqueued > 0))
