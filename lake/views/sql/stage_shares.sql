-- Each tenant beside its whole queue. The queue's totals add up the changes of every tenant's (clamped) state.
WITH changes AS (
  SELECT
    *,
    backlog - LAG(backlog, 1, 0) OVER tenant_so_far AS backlog_change,
    in_flight - LAG(in_flight, 1, 0) OVER tenant_so_far AS in_flight_change,
    delayed - LAG(delayed, 1, 0) OVER tenant_so_far AS delayed_change,
    ready - LAG(ready, 1, 0) OVER tenant_so_far AS ready_change,
    CASE WHEN backlog > 0 THEN 1 ELSE 0 END
      - LAG(CASE WHEN backlog > 0 THEN 1 ELSE 0 END, 1, 0) OVER tenant_so_far AS active_change
  FROM stage_tenants
  WINDOW tenant_so_far AS (PARTITION BY broker, queue, subscriber, tenant ORDER BY at_second)
)
SELECT
  *,
  SUM(backlog_change) OVER queue_so_far AS queue_backlog,
  SUM(in_flight_change) OVER queue_so_far AS queue_in_flight,
  SUM(ready_change) OVER queue_so_far AS queue_ready,
  SUM(active_change) OVER queue_so_far AS active_tenants,
  SUM(processing_sum) OVER (
    PARTITION BY broker, queue, subscriber ORDER BY window_second
    RANGE BETWEEN $window_before PRECEDING AND CURRENT ROW
  ) AS queue_processing_sum
FROM changes
WINDOW queue_so_far AS (
  PARTITION BY broker, queue, subscriber ORDER BY at_second RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
