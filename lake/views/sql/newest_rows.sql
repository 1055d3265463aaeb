-- Of each key the newest row of the newest epoch, as far as `queue_state` goes, which is committed last. Beside it the data
-- time of its broker, as far as this table tells.
SELECT * EXCEPT (nth, newest_epoch, newest_revision), MAX(unix_micros(as_of)) OVER (PARTITION BY broker) AS as_of_us
FROM (
  SELECT
    s.*, n.newest_epoch, n.newest_revision,
    ROW_NUMBER() OVER (PARTITION BY key ORDER BY $newest_first) AS nth
  FROM $table AS s
  CROSS JOIN (SELECT MAX(epoch) AS newest_epoch, MAX(revision) AS newest_revision FROM queue_state) AS n
  WHERE s.epoch = n.newest_epoch AND s.revision <= n.newest_revision
) AS told
WHERE nth = 1
