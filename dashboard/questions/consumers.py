"""What consumers do and could do: one page of them, whoever is judged worst by the rules first."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.queries import KEY, concurrencies_changes, of_any
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import literal


def _told(find: str) -> str:
    named = "TRUE"
    if find:
        text = literal(find)
        named = f"(contains(lower(queue), lower({text})) OR contains(lower(COALESCE(subscriber, '')), lower({text})))"
    return f"""
    WITH mine AS (SELECT * FROM queue_health_now WHERE dead_letter_for IS NULL AND {named}),
    work AS (
      SELECT
        {KEY}, CASE WHEN COUNT(littles_law) = COUNT(*) THEN SUM(littles_law) END AS littles_law,
        SUM(start_rate * mean_processing_seconds) / NULLIF(SUM(CASE WHEN mean_processing_seconds IS NOT NULL
          THEN start_rate END), 0) AS mean_processing_seconds,
        MAX(p99_processing_seconds) AS p99_processing_seconds, CAST(SUM(in_flight) AS BIGINT) AS events_in_flight
      FROM concurrency_now GROUP BY {KEY}
    )"""


def counted(find: str) -> str:
    """How many consumers there are."""
    return f"""{_told(find)}
    SELECT COUNT(*) AS consumers FROM mine"""


def ranked(find: str, judged: Sequence[QueueKey], rows: int, page: int) -> str:
    """The ``page``-th (from 1) ``rows`` consumers: those ``judged`` first, then by the part of their limit in use."""
    loud = f"CASE WHEN {of_any(judged)} THEN 0 ELSE 1 END" if judged else "0"
    return f"""{_told(find)},
    told AS (
      SELECT m.*, w.littles_law, w.mean_processing_seconds, w.p99_processing_seconds, w.events_in_flight
      FROM mine AS m LEFT JOIN work AS w
        ON w.broker = m.broker AND w.queue = m.queue AND w.subscriber IS NOT DISTINCT FROM m.subscriber
    )
    SELECT *, {loud} AS loud FROM told
    ORDER BY loud, in_flight / NULLIF(in_flight_limit, 0) DESC NULLS LAST, empty_poll_ratio NULLS LAST,
      littles_law DESC NULLS LAST, broker, queue, subscriber
    LIMIT {int(rows)} OFFSET {int(rows) * (max(1, int(page)) - 1)}"""


def work(keys: Sequence[QueueKey], span: Span, window: int) -> str:
    """Changes of the Little's-law concurrency of each of ``keys``."""
    return concurrencies_changes(keys, span, window)
