SELECT i.*, l.in_flight_limit
FROM stage_modes AS i
LEFT JOIN stage_sampled AS l
  ON l.broker = i.broker AND l.queue = i.queue AND l.subscriber = i.subscriber AND l.at_second = i.limit_second
WHERE $instants
