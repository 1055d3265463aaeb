"""The pages' questions in SQL (Spark's dialect), over the public views, and the sums over tenants that finished state
has; each answer is small, however many tenants there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import among, any_of, literal

_MOST = 300  # rows of a journal that a page can use
_MOST_NOISY = 50
#: Who was noisy for less than that is told as quiet: the shipped rule names nobody sooner than after two seconds.
NOISY_SECONDS = 3

HEALTH = "SELECT * FROM queue_health_now"
#: Sums over the tenants of each queue.
TOTALS = """
SELECT
  broker, queue, subscriber, tenants, backlog, in_flight, ready, arrival_rate, completion_rate
FROM stage_totals
"""
NOISY = f"""
SELECT broker, queue, subscriber, tenant, backlog, in_flight, ready, share, drain_state
FROM tenant_backlog_now
WHERE noisy
ORDER BY in_flight DESC, backlog DESC, tenant
LIMIT {_MOST_NOISY}
"""
ALERT_STATES = "SELECT * FROM alert_states"
LIMITS = "SELECT * FROM limits"
NEWEST_DELIVERIES = f"SELECT receiver, outcome, at FROM deliveries ORDER BY at DESC LIMIT {_MOST}"
OPEN_GAPS = "SELECT MIN(since) AS since, CAST(SUM(events) AS BIGINT) AS events FROM open_gaps HAVING COUNT(*) > 0"


def noisy_since(key: QueueKey, tenants: Sequence[str]) -> str:
    """Since when each of some noisy tenants of a queue has been so: the first instant after it was last quiet."""
    return f"""
    WITH runs AS (
      SELECT
        broker, queue, subscriber, tenant, as_of, noisy,
        MAX(CASE WHEN NOT noisy THEN as_of END) OVER (PARTITION BY broker, queue, subscriber, tenant) AS last_quiet
      FROM tenant_backlog
      WHERE {of_queue(key)} AND tenant IN ({any_of(sorted(tenants))})
    )
    SELECT broker, queue, subscriber, tenant, MIN(as_of) AS noisy_since
    FROM runs
    WHERE noisy AND (last_quiet IS NULL OR as_of > last_quiet)
    GROUP BY broker, queue, subscriber, tenant
    """


def tenants(key: QueueKey, top: int) -> str:
    """The tenants that matter most on one queue."""
    return f"""
    SELECT * FROM tenant_backlog_now WHERE {of_queue(key)}
    ORDER BY noisy DESC, backlog DESC, in_flight DESC, tenant LIMIT {int(top)}
    """


def beginning(key: QueueKey) -> str:
    """From when one queue's history goes."""
    return f"SELECT MIN(as_of) AS first FROM tenant_backlog WHERE {of_queue(key)}"


def concurrency_now(key: QueueKey) -> str:
    """Little's law over all tenants of one queue; null where no attempt ended in the window."""
    return f"""
    SELECT
      SUM(littles_law) AS littles_law, CAST(SUM(in_flight) AS BIGINT) AS in_flight,
      MAX(concurrency_limit) AS concurrency_limit
    FROM concurrency_now WHERE {of_queue(key)}
    """


def alert_transitions(since: datetime | None) -> str:
    """The newest transitions of alerts, from ``since`` on."""
    return f"SELECT * FROM alert_transitions WHERE {since_of('at', since)} ORDER BY at DESC LIMIT {_MOST}"


def deliveries(since: datetime) -> str:
    """The newest attempts to tell receivers, from ``since`` on."""
    return f"SELECT * FROM deliveries WHERE {since_of('at', since)} ORDER BY at DESC LIMIT {_MOST}"


def refused(since: datetime) -> str:
    """What collectors could not take, from ``since`` on, by source and reason."""
    return f"""
    SELECT source, reason, CAST(SUM(count) AS BIGINT) AS rows FROM rejected_records
    WHERE {since_of("received_at", since)} GROUP BY source, reason ORDER BY rows DESC, source, reason LIMIT 20
    """


def actions(since: datetime | None) -> str:
    """The newest rows of the journal of actions, from ``since`` on; those that held or skipped left out."""
    return f"""
    SELECT * FROM actions WHERE {since_of("at", since)} AND decision NOT IN ('hold', 'skip')
    ORDER BY at DESC LIMIT {_MOST}
    """


def last_decisions(since: datetime) -> str:
    """The newest row of the journal of each policy and subject, those that held included, from ``since`` on."""
    return f"""
    SELECT * EXCEPT (age) FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY policy, broker, queue, tenant ORDER BY at DESC) AS age
      FROM actions WHERE {since_of("at", since)} AND decision <> 'skip'
    ) AS ranked
    WHERE age = 1 ORDER BY at DESC LIMIT {_MOST}
    """


def backlog_changes(key: QueueKey, span: Span, top: int) -> str:
    """By how much each tenant's backlog changed in each bin; tenants beyond the ``top`` are summed as null."""
    return f"""
    WITH mine AS (
      SELECT {SECOND} AS at, as_of, tenant, backlog, noisy FROM tenant_backlog WHERE {of_queue(key)}
    ),
    peaks AS (
      SELECT tenant, MAX(CASE WHEN at >= {span.start} THEN backlog ELSE 0 END) AS peak, MAX(backlog) AS highest
      FROM mine GROUP BY tenant
    ),
    named AS (SELECT tenant AS name FROM peaks ORDER BY peak DESC, highest DESC, tenant LIMIT {int(top)}),
    changes AS (
      SELECT
        {bin_of("at", span)} AS at, tenant,
        backlog - LAG(backlog, 1, 0) OVER (PARTITION BY tenant ORDER BY as_of) AS backlog
      FROM mine
    )
    SELECT c.at AS at, n.name AS tenant, CAST(SUM(c.backlog) AS BIGINT) AS backlog
    FROM changes AS c LEFT JOIN named AS n ON n.name = c.tenant
    GROUP BY c.at, n.name
    """


def rate_changes(key: QueueKey, span: Span, window: int) -> str:
    """Changes of the queue's rates: a tenant's rate holds until its next row, and for one window at most."""
    return "WITH" + fading("tenant_backlog", ("arrival_rate", "completion_rate"), [key], span, window)


def rates_changes(keys: Sequence[QueueKey], span: Span, window: int) -> str:
    """The same of many queues."""
    return "WITH" + fading("tenant_backlog", ("arrival_rate", "completion_rate"), keys, span, window)


def backlogs_changes(keys: Sequence[QueueKey], span: Span) -> str:
    """By how much the backlog of each of ``keys`` changed in each bin."""
    return f"""
    WITH changes AS (
      SELECT
        {KEY}, {bin_of(SECOND, span)} AS at,
        backlog - LAG(backlog, 1, 0) OVER (PARTITION BY {KEY}, tenant ORDER BY as_of) AS backlog
      FROM tenant_backlog WHERE {of_any(keys)}
    )
    SELECT {KEY}, at, CAST(SUM(backlog) AS BIGINT) AS backlog FROM changes GROUP BY {KEY}, at
    """


def depths(keys: Sequence[QueueKey], span: Span) -> str:
    """The broker's own count of each of ``keys`` at the end of each bin, and before the span."""
    return f"""
    WITH mine AS (
      SELECT {KEY}, {bin_of(SECOND, span)} AS at, as_of, depth FROM queue_health WHERE {of_any(keys)}
    )
    SELECT {KEY}, at, MAX_BY(depth, as_of) AS depth FROM mine GROUP BY {KEY}, at
    """


def concurrency_changes(key: QueueKey, span: Span, window: int) -> str:
    """Changes of the queue's Little's-law concurrency, as :func:`rate_changes`."""
    return "WITH" + fading("concurrency", ("littles_law",), [key], span, window)


def concurrencies_changes(keys: Sequence[QueueKey], span: Span, window: int) -> str:
    """The same of many queues."""
    return "WITH" + fading("concurrency", ("littles_law",), keys, span, window)


def health_history(key: QueueKey, span: Span) -> str:
    """The last state of the queue in each bin, and the last one before the span."""
    return f"""
    WITH mine AS (
      SELECT {bin_of(SECOND, span)} AS at, as_of, in_flight, in_flight_limit, depth, delayed, empty_poll_ratio
      FROM queue_health WHERE {of_queue(key)}
    )
    SELECT
      at, MAX_BY(in_flight, as_of) AS in_flight, MAX_BY(in_flight_limit, as_of) AS in_flight_limit,
      MAX_BY(depth, as_of) AS depth, MAX_BY(delayed, as_of) AS delayed,
      MAX_BY(empty_poll_ratio, as_of) AS empty_poll_ratio
    FROM mine GROUP BY at
    """


def once_noisy(key: QueueKey, span: Span) -> str:
    """The tenants that were noisy for NOISY_SECONDS of the span in all, or are: a moment of it is chance, and no rule
    names anybody for that."""
    mine = f"{of_queue(key)} AND as_of >= {literal(span.instants[0])}"
    return f"""
    SELECT tenant FROM (
      SELECT
        tenant, noisy,
        unix_micros(LEAD(as_of) OVER (PARTITION BY tenant ORDER BY as_of)) - unix_micros(as_of) AS lasted
      FROM tenant_backlog
      WHERE {mine} AND tenant IN (SELECT tenant FROM tenant_backlog WHERE {mine} AND noisy)
    ) AS instants
    WHERE noisy
    GROUP BY tenant
    HAVING SUM(COALESCE(lasted, {NOISY_SECONDS * 1_000_000})) >= {NOISY_SECONDS * 1_000_000}
    ORDER BY tenant LIMIT {_MOST_NOISY}
    """


def first_attempt_cells(key: QueueKey, span: Span, noisy: Sequence[str]) -> str:
    """AgeOfFirstAttempt's histogram cells in each bin, quiet and noisy tenants apart."""
    who = f"CASE WHEN tenant IN ({any_of(noisy)}) THEN 'noisy' ELSE 'quiet' END" if noisy else "'quiet'"
    second = "(unix_micros(bucket_start) DIV 1000000 + bucket_seconds)"
    return f"""
    WITH mine AS (
      SELECT {bin_of(second, span)} AS at, {who} AS who, cell.index AS bucket, cell.count AS n
      FROM attempt_age LATERAL VIEW explode(histogram) x AS cell
      WHERE {of_queue(key)} AND kind = 'first_attempt' AND bucket_start >= {literal(span.instants[0])}
    )
    SELECT at, who, bucket AS index, CAST(SUM(n) AS BIGINT) AS count FROM mine GROUP BY at, who, bucket
    """


def _of_subscriber(subscriber: str) -> str:
    return f"subscriber = {literal(subscriber)}" if subscriber else "subscriber IS NULL"


#: What names a queue as one subscriber sees it.
KEY = "broker, queue, subscriber"
#: The unix second of a row of history.
SECOND = "(unix_micros(as_of) DIV 1000000)"


def fading(view: str, columns: Sequence[str], keys: Sequence[QueueKey], span: Span, window: int) -> str:
    """Changes of ``columns`` of ``view``, each value of which holds until its key's next row and for ``window`` seconds
    at most; the rest of a statement whose WITH may have begun already."""
    plus = ", ".join(f"COALESCE({column}, 0) AS {column}" for column in columns)
    minus = ", ".join(f"-COALESCE({column}, 0) AS {column}" for column in columns)
    sums = ", ".join(f"SUM({column}) AS {column}" for column in columns)
    return f"""
    mine AS (
      SELECT
        {KEY}, {SECOND} AS at,
        LEAD({SECOND}) OVER (PARTITION BY {KEY}, tenant ORDER BY as_of) AS next_at, {", ".join(columns)}
      FROM {view} WHERE ({of_any(keys)}) AND as_of >= {literal(span.ago(span.end - span.start + window))}
    ),
    effects AS (
      SELECT {KEY}, at, {plus} FROM mine
      UNION ALL
      SELECT {KEY}, LEAST(COALESCE(next_at, at + {window}), at + {window}) AS at, {minus} FROM mine
    ),
    binned AS (SELECT {KEY}, {bin_of("at", span)} AS at, {", ".join(columns)} FROM effects WHERE at <= {span.end})
    SELECT {KEY}, at, {sums} FROM binned GROUP BY {KEY}, at
    """


def bin_of(second: str, span: Span) -> str:
    """The unix second at which the bin that holds ``second`` ends; what was before the span is its start."""
    return f"({span.start} + (GREATEST({second} - {span.start}, 0) + {span.step - 1}) DIV {span.step} * {span.step})"


def of_queue(key: QueueKey) -> str:
    """The condition under which a row is about ``key``."""
    return f"broker = {literal(key.broker)} AND queue = {literal(key.queue)} AND {_of_subscriber(key.subscriber)}"


def of_any(keys: Iterable[QueueKey], of_subscriber: Callable[[str], str] = _of_subscriber) -> str:
    """The condition under which a row is about one of ``keys``."""
    return among(
        "queue", ((f"broker = {literal(key.broker)} AND {of_subscriber(key.subscriber)}", key.queue) for key in keys)
    )


def since_of(column: str, since: datetime | None) -> str:
    """The condition under which ``column`` is not before ``since``."""
    return "TRUE" if since is None else f"{column} >= {literal(since)}"


#: What a page says of now, and on which tables each of it rests: it is asked anew when one of those has changed. Of
#: finished state no more is shown than `queue_state`, which is committed last, has come to. LIMITS depends on the clock
#: besides: who reads them leaves out what is over.
_FINISHED = ("queue_state", "gaps")
RESTS_ON = {
    HEALTH: _FINISHED,
    TOTALS: _FINISHED,
    NOISY: _FINISHED,
    ALERT_STATES: ("alert_transitions",),
    alert_transitions(None): ("alert_transitions",),
    LIMITS: ("actions",),
    actions(None): ("actions",),
    NEWEST_DELIVERIES: ("deliveries",),
    OPEN_GAPS: ("gaps",),
}
#: What pages can do without: they say what they do not know. Without finished state there is nothing to show.
JOURNALS = ("alert_transitions", "actions", "deliveries")
#: Read together, so that its parts agree.
PRESENT = tuple(RESTS_ON)
