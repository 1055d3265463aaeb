SELECT broker, queue, tenant, after AS rate, valid_until, decision, policy, rule, reason, action_id, at
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY broker, queue, tenant ORDER BY at DESC) AS age
  FROM actions
  WHERE outcome = 'applied' AND NOT dry_run
) AS ranked
WHERE age = 1 AND after IS NOT NULL AND valid_until > current_timestamp()
