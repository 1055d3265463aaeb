SELECT rule_group, rule, fingerprint, labels, annotations, to_state AS state, value, at AS since, data_as_of, reason, inputs
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY rule_group, rule, fingerprint ORDER BY at DESC) AS age
  FROM alert_transitions
) AS ranked
WHERE age = 1
