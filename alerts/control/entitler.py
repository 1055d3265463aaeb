"""Puts standing entitlements on the board, and says which queues are congested: see :mod:`alerts.laws.entitlement`."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from alerts.control import entries
from alerts.control.active_limit import Entry
from alerts.control.allowed import Allowed
from alerts.control.board import Board, Congestion, Entitlement
from alerts.control.held_back import bound, who_was_held_back, with_the_silent
from alerts.control.settings import EntitlementSettings
from alerts.control.statements import literal, of_queues, since_second
from alerts.laws.entitled_queue import EntitledQueue, Look
from alerts.laws.entitlement import LOOK_SECONDS
from alerts.laws.glanced import GlancedTerms
from lake.clock import TOLERANCE, ZERO, age
from lake.errors import SojournError
from sojourn.client.groups import Patterns, is_pattern

log = logging.getLogger(__name__)

Query = Callable[[str], pa.Table]
Place = tuple[str, str]  # broker, queue
_BySubscriber = dict[str | None, dict[str, float]]  # then by tenant

LOOK_EVERY = timedelta(seconds=LOOK_SECONDS)
#: Tenants of a queue that are told what they are entitled to by name: those who send the most; the others are anybody.
MOST_NAMED = 1_000
#: A rate is told again once it differs by so much: more while nothing binds, when it may wait.
TOLD_CONGESTED, TOLD_CALM = 0.03, 0.25


@dataclass(slots=True)
class _Queue:
    """One queue with entitlements: what the law remembers of it, and what clients were told."""

    law: EntitledQueue
    burst_seconds: float
    arrivals: Mapping[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    told: dict[str, Entitlement] = field(default_factory=dict)
    congestion: Congestion | None = None
    action_id: str = ""
    allowed: Allowed = field(default_factory=Allowed)
    sent: dict[str, float] = field(default_factory=dict)
    #: What each sent lately before it was presumed that somebody floods.
    usual: dict[str, float] = field(default_factory=dict)


class Entitler:
    """Looks at the queues that have entitlements twice a second. :meth:`step` belongs to one thread.

    ``journal`` takes rows; while ``paused`` says so, nothing binds. What brokers tell in between comes by
    :meth:`glance`, from any thread.
    """

    def __init__(
        self,
        settings: Sequence[EntitlementSettings],
        board: Board,
        journal: Callable[[list[Entry]], None],
        paused: Callable[[], bool],
    ) -> None:
        self._queues: dict[Place, _Queue] = {}
        of_queues: dict[Place, list[EntitlementSettings]] = defaultdict(list)
        for one in settings:
            of_queues[one.broker, one.queue].append(one)
        for place, ones in of_queues.items():
            agreed = {one.tenant: one.rate for one in ones if one.rate is not None}
            patterns = Patterns(one.tenant for one in ones if is_pattern(one.tenant))
            law = EntitledQueue(GlancedTerms.of(ones[0].terms()), agreed, patterns)
            self._queues[place] = _Queue(law, ones[0].burst_seconds)
        self._board, self._journal, self._paused = board, journal, paused
        self._looked_at: datetime | None = None
        self._lock = threading.RLock()  # over what is known of the queues
        self._rows: list[Entry] = []
        self._publish()

    @property
    def places(self) -> list[Place]:
        """The queues with entitlements."""
        return list(self._queues)

    def hurried(self, place: Place) -> bool:
        """Whether how long messages wait there matters from one moment to the next."""
        queue = self._queues.get(place)
        return queue is not None and queue.law.hurried

    def counts(self, place: Place, now: datetime) -> bool:
        """Whether what the broker tells of that queue is believed at ``now``."""
        queue = self._queues.get(place)
        return queue is not None and queue.law.confirmed(now.timestamp())

    def step(self, now: datetime, query: Query, ahead: timedelta = ZERO) -> None:
        """One look at ``now`` of the clock, at most two a second. What cannot be seen is left to its lease."""
        if not self._queues or (self._looked_at is not None and now - self._looked_at < LOOK_EVERY):
            return
        self._looked_at = now
        try:
            looks = look(query, self._queues, now, ahead)
        except SojournError as error:
            log.warning("queues with entitlements cannot be seen, what binds is left to its lease: %s", error)
            looks = {}
        with self._lock:
            for place, queue in self._queues.items():
                law = None
                if (one := looks.get(place)) is not None:
                    queue.arrivals = one.arrivals
                    one = self._compared(queue, one, now)
                    law = partial(queue.law.look, one, until=one.end.timestamp())
                self._judge(place, queue, now, law)
            rows, self._rows = self._rows, []
            self._publish()
        if rows:
            self._journal(rows)

    def glance(self, place: Place, waiting: float, now: datetime) -> None:
        """The broker tells that ``waiting`` messages are in the queue at ``now`` of the clock and in nobody's hands."""
        queue = self._queues.get(place)
        if queue is None:
            return
        with self._lock:
            congested = queue.congestion
            self._judge(place, queue, now, partial(queue.law.glance, waiting))
            if congested is not None or queue.congestion is not None:
                self._publish()

    def _judge(self, place: Place, queue: _Queue, now: datetime, law: Callable[[float], str | None] | None) -> None:
        """Let ``law`` look at what is new, if anything is, and tell what follows from it."""
        before = queue.congestion
        if self._paused():
            queue.congestion = None
            queue.law.let_go()
        elif law is not None and (reason := law(now.timestamp())) is not None:
            self._tell(place, queue, reason, now)
        if queue.congestion is not None and queue.congestion.valid_until <= now:
            queue.congestion = None
            queue.law.let_go()
        queue.allowed.told(bound(queue.law) if queue.congestion is not None else {}, now.timestamp())
        if (before is None) != (queue.congestion is None):
            self._rows.append(self._row(place, queue, before, now))

    def _compared(self, queue: _Queue, one: TimedLook, now: datetime) -> TimedLook:
        """Hold what came against what might come then, and not against what may now."""
        law, start, end = queue.law, one.start.timestamp(), one.end.timestamp()
        allowed = queue.allowed.between(start, end)
        if law.state.presumed_since is None:
            queue.usual = dict(law.lately)
        elif asked := who_was_held_back(law, one, allowed, queue.usual, end - start):
            law.state = replace(law.state, asked=asked, presumed_since=None)
        law.may |= {unit: share for unit, (share, _) in allowed.items()}
        return replace(one, arrivals=with_the_silent(law, one.arrivals, allowed, queue.sent, now.timestamp()))

    def _tell(self, place: Place, queue: _Queue, reason: str, now: datetime) -> None:
        law = queue.law
        queue.rates = {"*": law.anybody} | _named(law.rates, queue.arrivals) | dict(law.agreed)
        lease, before = timedelta(seconds=law.terms.lease_seconds), queue.congestion
        if not law.state.congested:
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
            burst = queue.burst_seconds
            queue.told = {
                tenant: known
                if (known := queue.told.get(tenant)) is not None and abs(known.rate - rate) <= apart * known.rate
                else Entitlement(broker, name, tenant, rate, max(1.0, rate * burst))
                for tenant, rate in queue.rates.items()
            }
            told += queue.told.values()
        self._board.publish_entitlements(told)
        self._board.publish_congestion(queue.congestion for queue in self._queues.values() if queue.congestion)


@dataclass(frozen=True, slots=True)
class TimedLook(Look):
    """A look, and from when until when its rates are counted, on the clock of who looked."""

    start: datetime
    end: datetime


def look(query: Query, places: Iterable[Place], now: datetime, ahead: timedelta = ZERO) -> dict[Place, TimedLook]:
    """What is seen of each of ``places`` on fresh data; of several subscribers, the one that is the furthest behind."""
    wanted = {place for place in places if literal(place[0]) is not None}
    only = of_queues({queue for _, queue in wanted})
    newest: dict[str, datetime] = {}
    waiting: dict[Place, _BySubscriber] = defaultdict(lambda: defaultdict(dict))
    for row in _rows(query, wanted, _WAITING.format(only=only)):
        if row["ready"] is not None and -TOLERANCE <= age(row["as_of"], now, ahead) <= MOST_OLD:
            newest[row["broker"]] = max(newest.get(row["broker"], row["as_of"]), row["as_of"])
            waiting[row["broker"], row["queue"]][row["subscriber"]][row["tenant"]] = float(row["ready"])
    if not waiting:
        return {}
    arrivals: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    finished: dict[Place, _BySubscriber] = defaultdict(lambda: defaultdict(dict))
    work: dict[Place, _BySubscriber] = defaultdict(lambda: defaultdict(dict))
    rows = _rows(query, wanted, _FLOWS.format(only=only, recent=since_second(newest, 1)))
    spans = windows(rows, newest)
    for row in rows:
        place, subscriber, tenant = (row["broker"], row["queue"]), row["subscriber"], row["tenant"]
        start, until = spans[row["broker"]]
        if row["bucket_start"] < start:
            continue
        span = (until - start) / _SECOND
        arrivals[place][tenant] += row["enqueued"] / span
        for counts, count in ((finished, row["finished"]), (work, row["work"] or 0.0)):
            of_tenant = counts[place][subscriber]
            of_tenant[tenant] = of_tenant.get(tenant, 0.0) + count / span
    found = {}
    for place, of_subscribers in waiting.items():
        done = {name: sum(counts.values()) for name, counts in finished[place].items()}
        slowest = min((name for name in done if done[name] > 0), key=lambda name: done[name], default=None)
        start, until = spans[place[0]]
        found[place] = TimedLook(
            max(of_subscribers.values(), key=lambda counts: sum(counts.values())),
            {} if slowest is None else finished[place][slowest],
            {name: rate for name, rate in arrivals[place].items() if rate > 0},
            {} if slowest is None else work[place][slowest],
            (until - start) / _SECOND,
            start - ahead,
            until - ahead,
        )
    return found


_SECOND = timedelta(seconds=1)
#: Older data says nothing of now.
MOST_OLD = timedelta(seconds=15)
_WAITING = """
    SELECT broker, queue, subscriber, tenant, MAX(as_of) AS as_of, CAST(SUM(ready) AS DOUBLE) AS ready
    FROM tenant_backlog_now {only} GROUP BY broker, queue, subscriber, tenant"""
_FLOWS = """
    SELECT broker, queue, subscriber, tenant, bucket_start, CAST(SUM(enqueued) AS DOUBLE) AS enqueued,
      CAST(SUM(completed + dead_lettered + expired + sidelined) AS DOUBLE) AS finished,
      CAST(SUM(processing_sum) AS DOUBLE) AS work, MAX(newest_occurred_at) AS newest
    FROM partials {only} WHERE {recent} GROUP BY broker, queue, subscriber, tenant, bucket_start"""


def windows(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, datetime]) -> dict[str, tuple[datetime, datetime]]:
    """From and until when rates are counted, by broker: the second that fills as far as it is filled, and the one
    before it.

    What waits is told a moment after the counts of the same events: in between these are further, as far as their
    newest event.
    """
    until = dict(newest)
    for row in rows:
        if row["broker"] in until:
            until[row["broker"]] = max(until[row["broker"]], row["newest"])
    return {broker: (at.replace(microsecond=0) - _SECOND, at) for broker, at in until.items()}


def _rows(query: Query, wanted: set[Place], sql: str) -> list[dict[str, Any]]:
    return [row for row in query(sql).to_pylist() if (row["broker"], row["queue"]) in wanted]


def _named(rates: Mapping[str, float], arrivals: Mapping[str, float]) -> dict[str, float]:
    if len(rates) <= MOST_NAMED:
        return dict(rates)
    largest = sorted(rates, key=lambda tenant: arrivals.get(tenant, 0.0), reverse=True)[:MOST_NAMED]
    return {tenant: rates[tenant] for tenant in largest}
