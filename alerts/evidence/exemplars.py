"""Messages that waited longest, by id and trace, among the newest events of bronze."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from alerts.evidence.newest import NewestEvents
from alerts.models import RuleEvaluation
from lake.clock import ZERO
from lake.errors import first_line
from lake.reader import connect

log = logging.getLogger(__name__)

#: Ids that one page shows.
MOST = 5
#: A reading serves all pages of its queues for so long (seconds).
GOOD_FOR = 5.0
#: So many queues are looked for by name; where pages are about more of them, all that were read are looked through.
MOST_QUEUES = 100
#: Who has not been asked for so long (seconds) lets go of what was read.
KEPT_FOR = 60.0
_MEMORY_MB = 500
Key = tuple[str, str]

#: Messages that nobody has taken yet, aged at their broker's newest event, beside first attempts, aged when they began.
_LONGEST = f"""
WITH touched AS (SELECT DISTINCT broker, queue, message_id FROM events WHERE event_type NOT IN ('enqueued', 'delayed')),
waiting AS (
  SELECT e.broker, e.queue, CAST(NULL AS VARCHAR) AS subscriber, e.tenant, e.message_id, e.trace_id,
         date_diff('millisecond', COALESCE(e.enqueued_at, e.occurred_at), n.at) / 1000.0 AS waited, TRUE AS waits
  FROM events AS e JOIN newest AS n ON n.broker = e.broker
  ANTI JOIN touched AS t ON t.broker = e.broker AND t.queue = e.queue AND t.message_id = e.message_id
  WHERE e.event_type = 'enqueued'
), taken AS (
  SELECT broker, queue, subscriber, tenant, message_id, trace_id,
         date_diff('millisecond', enqueued_at, occurred_at) / 1000.0 AS waited, FALSE AS waits
  FROM events WHERE event_type = 'received' AND COALESCE(attempt, 1) <= 1 AND enqueued_at IS NOT NULL
)
SELECT * FROM (SELECT * FROM waiting UNION ALL SELECT * FROM taken)
WHERE waited >= 0
QUALIFY row_number() OVER (
  PARTITION BY broker, queue, subscriber, tenant ORDER BY waited DESC, message_id) <= {MOST}
ORDER BY waited DESC, message_id
"""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One message: for how long (seconds) it ``waits``, or waited until its first attempt."""

    message_id: str
    trace_id: str | None
    seconds: float
    waits: bool
    subscriber: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at the events brought. ``since``: events before it were not read; None = all were.

    It tells of ``queues`` alone; None = of all.
    """

    longest: Mapping[Key, tuple[Exemplar, ...]] = field(default_factory=dict)
    since: datetime | None = None
    newest: datetime | None = None
    problem: str | None = None
    queues: frozenset[Key] | None = None

    def of(self, labels: Mapping[str, str]) -> tuple[Exemplar, ...]:
        """Those that the alert with ``labels`` is about, the longest wait first."""
        subscriber, tenant = labels.get("subscriber"), labels.get("tenant")
        found = [
            one
            for one in self.longest.get((labels.get("broker", ""), labels.get("queue", "")), ())
            if (subscriber is None or one.waits or one.subscriber == subscriber)
            and (tenant is None or (one.tenant or "unknown") == tenant)
        ]
        best: dict[str, Exemplar] = {}
        for one in found:
            best.setdefault(one.message_id, one)
        return tuple(best.values())[:MOST]

    def tells_of(self, queues: Collection[Key]) -> bool:
        """Whether all of ``queues`` were looked for."""
        return self.queues is None or self.queues.issuperset(queues)

    def why_not(self, labels: Mapping[str, str]) -> str:
        """Why there is none for the alert with ``labels``."""
        if self.problem is not None:
            return self.problem
        where = "of this tenant " if "tenant" in labels else ""
        read = "there are no events" if self.newest is None else f"none {where}waits in the events that were read"
        return read if self.since is None else f"{read}, those since {self.since:%H:%M:%S} UTC"


class _Asked:
    """A reading that was asked for: until it begins, more queues may be added to those it will tell of."""

    def __init__(self) -> None:
        self.queues: set[Key] = set()
        self.begun: frozenset[Key] | None = None
        self.at = monotonic()
        self.reading: Future[Reading]

    def tells_of(self, queues: Collection[Key]) -> bool:
        if not self.reading.done():
            return self.begun is not None and self.begun.issuperset(queues)
        return monotonic() - self.at <= GOOD_FOR and self.reading.result().tells_of(queues)


class Exemplars:
    """Reads when asked, in a thread of its own; one reading serves all who ask of its queues within :data:`GOOD_FOR`,
    and those who ask while another is under way share the next one."""

    def __init__(self, root: Path) -> None:
        self._newest = NewestEvents(root)
        self._database: duckdb.DuckDBPyConnection | None = None  # to open one takes as long as to ask it
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="alert-evidence")
        self._lock = threading.Lock()
        self._asked: tuple[_Asked, ...] = ()  # the newest two: one that has begun, one that has not
        self.last: Reading | None = None

    def expect(self, evaluations: Iterable[RuleEvaluation], holds: Mapping[Key, timedelta], now: datetime) -> None:
        """Read ahead what pages will ask for at once, where an alert is about to fire: its ``for``, by group and rule
        in ``holds``, ends before a reading would be too old."""
        soon: set[Key] = set()
        for evaluation in evaluations:
            fires_in = holds.get((evaluation.group, evaluation.rule), ZERO) - timedelta(seconds=GOOD_FOR)
            if evaluation.pending_since is not None and now - evaluation.pending_since >= fires_in:
                soon |= queues_of(alert.labels for alert in evaluation.alerts)
        if soon:
            self.reading(soon)
        elif self._asked and monotonic() - self._asked[-1].at > KEPT_FOR:
            self._asked = ()
            self._pool.submit(self._forget)

    def reading(self, queues: Collection[Key]) -> Future[Reading]:
        """The newest reading that tells of ``queues``, under way or done; never fails."""
        with self._lock:
            for asked in self._asked:
                if asked.tells_of(queues):
                    return asked.reading
            waiting = next((asked for asked in self._asked if asked.begun is None), None)
            if waiting is None:
                waiting = _Asked()
                waiting.reading = self._pool.submit(self._read, waiting)
                self._asked = (*self._asked[-1:], waiting)
            waiting.queues |= set(queues)
            return waiting.reading

    def close(self) -> None:
        """Nothing more is read."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, asked: _Asked) -> Reading:
        with self._lock:
            asked.begun, asked.at = frozenset(asked.queues), monotonic()
        queues = asked.begun if len(asked.begun) <= MOST_QUEUES else None
        try:
            self._database = self._database or connect(_MEMORY_MB)
            self.last = read(self._newest, self._database, datetime.now(UTC), queues)
        except Exception as error:  # whatever is wrong with the events must not hold back a page
            log.warning("what waited longest cannot be read: %s", first_line(error))
            self.last, self._database = Reading(problem="the events cannot be read"), None
        return self.last

    def _forget(self) -> None:
        self._newest.forget()
        if self._database is not None:
            self._database.close()
            self._database = None


def queues_of(labels: Iterable[Mapping[str, str]]) -> set[Key]:
    """The brokers and queues that alerts with ``labels`` are about."""
    return {(one.get("broker", ""), one["queue"]) for one in labels if "queue" in one}


def read(
    newest: NewestEvents,
    database: duckdb.DuckDBPyConnection,
    now: datetime,
    queues: frozenset[Key] | None = None,
) -> Reading:
    """The longest waits in the ``newest`` events of a lake, as ``database``, which holds nothing else, finds them.

    Of ``queues`` alone, where they are given: looking through those of all takes longer than reading them.
    """
    found = newest.read(now)
    if found is None:
        return Reading()
    events = found.rows
    if events is None:
        return Reading(newest=found.newest, since=found.since, queues=queues)
    ends = events.group_by("broker").aggregate([("occurred_at", "max")]).rename_columns(["broker", "at"])
    if queues is not None:  # another broker's queue of the same name is looked through in vain
        events = events.filter(pc.is_in(events["queue"], pa.array({queue for _, queue in queues}, pa.string())))
    database.register("newest", ends)
    database.register("events", events)
    try:
        rows = database.sql(_LONGEST).to_arrow_table().to_pylist()
    finally:
        for name in ("newest", "events"):
            database.unregister(name)
    longest: dict[Key, list[Exemplar]] = {}
    for row in rows:
        one = Exemplar(
            row["message_id"], row["trace_id"], row["waited"], row["waits"], row["subscriber"], row["tenant"]
        )
        longest.setdefault((row["broker"], row["queue"]), []).append(one)
    return Reading({key: tuple(ones) for key, ones in longest.items()}, found.since, found.newest, queues=queues)
