-- Who consumes each queue. A queue that nobody has consumed from yet has its unnamed consumer.
WITH seen AS (
  SELECT
    broker,
    queue,
    subscriber,
    MAX(CASE
      WHEN subscriber <> '' OR received + completed + failed + dead_lettered + expired + sidelined + delayed > 0 THEN 1
      ELSE 0
    END) AS consumes
  FROM partials
  GROUP BY broker, queue, subscriber
),
judged AS (
  SELECT broker, queue, subscriber, consumes, MAX(consumes) OVER (PARTITION BY broker, queue) AS any_consumes
  FROM seen
)
SELECT broker, queue, subscriber FROM judged WHERE consumes = 1 OR any_consumes = 0
