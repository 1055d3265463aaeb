"""Puts standing entitlements on the board, and says which queues are congested: see :mod:`alerts.laws.entitlement`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.control import entries
from alerts.control.board import Board, Congestion, Entitlement
from alerts.control.observe import literal, of_queues, recent
from alerts.control.settings import EntitlementSettings
from alerts.control.standing import Entry
from alerts.laws.entitlement import Habits, Seen, State, entitlements, step
from lake.clock import TOLERANCE, ZERO, age
from lake.errors import SojournError

log = logging.getLogger(__name__)

Query = Callable[[str], pa.Table]
Place = tuple[str, str]  # broker, queue

LOOK_EVERY = timedelta(seconds=1)
RECENT_SECONDS = 2
#: Tenants of a queue that are told what they are entitled to by name: those who send the most; the others are anybody.
MOST_NAMED = 1_000
#: A rate is told again once it differs by so much: more while nothing binds, when it may wait.
TOLD_CONGESTED, TOLD_CALM = 0.03, 0.25


@dataclass(slots=True)
class _Queue:
    """One queue with entitlements: what the law remembers of it, and what clients were told."""

    settings: list[EntitlementSettings]
    state: State = field(default_factory=State)
    habits: Habits = field(default_factory=Habits)
    rates: dict[str, float] = field(default_factory=dict)
    told: dict[str, Entitlement] = field(default_factory=dict)
    congestion: Congestion | None = None
    action_id: str = ""


class Entitler:
    """Looks at the queues that have entitlements once a second. :meth:`step` belongs to one thread.

    ``journal`` takes rows; while ``paused`` says so, nothing binds.
    """

    def __init__(
        self,
        settings: Sequence[EntitlementSettings],
        board: Board,
        journal: Callable[[list[Entry]], None],
        paused: Callable[[], bool],
    ) -> None:
        self._queues: dict[Place, _Queue] = {}
        for one in settings:
            self._queues.setdefault((one.broker, one.queue), _Queue([])).settings.append(one)
        self._board, self._journal, self._paused = board, journal, paused
        self._looked_at: datetime | None = None
        self._publish()

    def step(self, now: datetime, query: Query, ahead: timedelta = ZERO) -> None:
        """One look at ``now`` of the clock, at most one a second. What cannot be seen is left to its lease."""
        if not self._queues or (self._looked_at is not None and now - self._looked_at < LOOK_EVERY):
            return
        self._looked_at = now
        rows: list[Entry] = []
        try:
            looks = look(query, self._queues, now, ahead)
        except SojournError as error:
            log.warning("queues with entitlements cannot be seen, what binds is left to its lease: %s", error)
            looks = {}
        for place, queue in self._queues.items():
            before = queue.congestion
            if self._paused():
                queue.congestion, queue.state = None, State(queue.state.capacity)
            elif place in looks:
                self._judge(place, queue, looks[place], now)
            if queue.congestion is not None and queue.congestion.valid_until <= now:
                queue.congestion, queue.state = None, State(queue.state.capacity)
            if (before is None) != (queue.congestion is None):
                rows.append(self._row(place, queue, before, now))
        if rows:
            self._journal(rows)
        self._publish()

    def _judge(self, place: Place, queue: _Queue, seen: Seen, now: datetime) -> None:
        terms = queue.settings[0].terms()
        queue.state, reason = step(terms, seen, queue.state, now.timestamp(), queue.rates)
        queue.habits.look(seen.arrivals, congested=queue.state.congested)
        queue.rates, anybody = entitlements(terms, seen, queue.state, queue.habits.usual)
        queue.rates = _named(queue.rates, seen.arrivals) | {"*": anybody}
        for one in queue.settings:
            if one.rate is not None:
                queue.rates[one.tenant] = one.rate
        lease, before = timedelta(seconds=terms.lease_seconds), queue.congestion
        if not queue.state.congested:
            queue.congestion = None
        elif before is None or before.valid_until - now <= lease / 2:  # each renewal wakes every client
            queue.congestion = Congestion(*place, now + lease, reason)

    def _row(self, place: Place, queue: _Queue, before: Congestion | None, now: datetime) -> Entry:
        began = queue.congestion or before
        if before is None or not queue.action_id:
            queue.action_id = entries.fresh_id()
        return entries.of_congestion(
            *place, queue.action_id, now, queue.congestion, began.reason if began else "", len(queue.rates)
        )

    def _publish(self) -> None:
        """Tell what differs by so much that it matters: each word wakes every client."""
        told: list[Entitlement] = []
        for (broker, name), queue in self._queues.items():
            apart = TOLD_CONGESTED if queue.congestion is not None else TOLD_CALM
            burst = queue.settings[0].burst_seconds
            queue.told = {
                tenant: known
                if (known := queue.told.get(tenant)) is not None and abs(known.rate - rate) <= apart * known.rate
                else Entitlement(broker, name, tenant, rate, max(1.0, rate * burst))
                for tenant, rate in queue.rates.items()
            }
            told += queue.told.values()
        self._board.publish_entitlements(told)
        self._board.publish_congestion(queue.congestion for queue in self._queues.values() if queue.congestion)


def look(query: Query, places: Iterable[Place], now: datetime, ahead: timedelta = ZERO) -> dict[Place, Seen]:
    """What is seen of each of ``places`` on fresh data; of several subscribers, the one that is the furthest behind."""
    wanted = {place for place in places if literal(place[0]) is not None}
    only = of_queues({queue for _, queue in wanted})
    as_of: dict[Place, datetime] = {}
    waiting: dict[Place, float] = {}
    for row in _rows(query, wanted, _WAITING.format(only=only)):
        place = (row["broker"], row["queue"])
        if row["ready"] is not None and -TOLERANCE <= age(row["as_of"], now, ahead) <= MOST_OLD:
            as_of[place] = max(as_of.get(place, row["as_of"]), row["as_of"])
            waiting[place] = max(waiting.get(place, 0.0), float(row["ready"]))
    if not waiting:
        return {}
    newest: dict[str, datetime] = {}
    for (broker, _), instant in as_of.items():
        newest[broker] = max(newest.get(broker, instant), instant)
    arrivals: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    finished: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in _rows(query, wanted, _FLOWS.format(only=only, recent=recent(newest, RECENT_SECONDS))):
        place = (row["broker"], row["queue"])
        if row["enqueued"] > 0:
            arrivals[place][row["tenant"]] += row["enqueued"] / RECENT_SECONDS
        finished[place][row["subscriber"]] += row["finished"] / RECENT_SECONDS
    return {
        place: Seen(
            waiting[place],
            min((rate for rate in finished[place].values() if rate > 0), default=0.0),
            dict(arrivals[place]),
        )
        for place in waiting
    }


#: Older data says nothing of now.
MOST_OLD = timedelta(seconds=15)
_WAITING = """
    SELECT broker, queue, subscriber, MAX(as_of) AS as_of, CAST(SUM(ready) AS DOUBLE) AS ready
    FROM tenant_backlog_now {only} GROUP BY broker, queue, subscriber"""
_FLOWS = """
    SELECT broker, queue, subscriber, tenant, CAST(SUM(enqueued) AS DOUBLE) AS enqueued,
      CAST(SUM(completed + dead_lettered + expired + sidelined) AS DOUBLE) AS finished
    FROM partials {only} WHERE {recent} GROUP BY broker, queue, subscriber, tenant"""


def _rows(query: Query, wanted: set[Place], sql: str) -> list[dict[str, Any]]:
    return [row for row in query(sql).to_pylist() if (row["broker"], row["queue"]) in wanted]


def _named(rates: Mapping[str, float], arrivals: Mapping[str, float]) -> dict[str, float]:
    if len(rates) <= MOST_NAMED:
        return dict(rates)
    largest = sorted(rates, key=lambda tenant: arrivals.get(tenant, 0.0), reverse=True)[:MOST_NAMED]
    return {tenant: rates[tenant] for tenant in largest}
