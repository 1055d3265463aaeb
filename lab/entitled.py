"""Standing entitlements in the simulated world: the shipped entitler, and producers that hear of it a lag later.

Nearly all of the lag stands before the decision: metrics show what was, a long poll tells at once what follows from
it. So it does of the broker's depth, which shows what is.
"""

from __future__ import annotations

from alerts.control.active_limit import Entry
from alerts.control.board import Board, Congestion, Entitlement
from alerts.control.depth.cadence import Cadence
from alerts.control.entitler import Entitler, Query
from alerts.control.settings import EntitlementSettings
from alerts.laws.entitlement import LOOK_SECONDS
from lab.metrics import BROKER, QUEUE, Metrics, instant, second
from lab.queue import Queue
from lab.scenario import Scenario
from sojourn.client.in_force import FIRST_TOKENS

ANYBODY = "*"
PLACE = (BROKER, QUEUE)
#: From a look or a glance until producers obey what follows: an answer of the broker's, a long poll's.
TOLD_SECONDS = 0.1


class Entitled:
    """Looks at ``queue`` as often as the law wants it; lets producers know what they may send while it is congested."""

    def __init__(self, queue: Queue, scenario: Scenario, metrics: Metrics, *, glances: bool = False) -> None:
        self._queue, self._metrics = queue, metrics
        self._told_after = min(TOLD_SECONDS, scenario.lag_seconds)
        self._seen_after = scenario.lag_seconds - self._told_after
        self._board = Board()
        #: The journal's rows: when entitlements began to bind, and when they ceased.
        self.entries: list[Entry] = []
        settings = (EntitlementSettings(broker=BROKER, queue=QUEUE),)
        self._entitler = Entitler(settings, self._board, self.entries.extend, lambda: False)
        self._cadence = Cadence((QUEUE,), 10.0) if glances else None
        self._version = self._board.snapshot.version
        self._bound = False

    def start(self) -> None:
        """Begin to look."""
        self._queue.at(LOOK_SECONDS, self._look)
        if self._cadence is not None:
            self._queue.at(LOOK_SECONDS, self._glance)

    def _look(self) -> None:
        now = self._queue.now
        self._queue.at(now + LOOK_SECONDS, self._look)
        seen = self._metrics.now()
        self._queue.at(now + self._seen_after, lambda: self._step(seen))

    def _step(self, seen: Query) -> None:
        self._entitler.step(instant(self._queue.now), seen)
        self._tell()

    def _glance(self) -> None:
        now = self._queue.now
        assert self._cadence is not None
        self._cadence.asked(QUEUE, now)
        self._entitler.glance(PLACE, sum(one.ready for one in self._queue.accounts.values()), instant(now))
        self._tell()
        _, pause = self._cadence.next(now, lambda _: self._entitler.hurried(PLACE))
        self._queue.at(now + pause, self._glance)

    def _tell(self) -> None:
        now, lag = self._queue.now, self._told_after
        snapshot = self._board.snapshot
        if snapshot.version == self._version:
            return
        self._version = snapshot.version
        congestion = next((one for one in snapshot.items.values() if isinstance(one, Congestion)), None)
        if congestion is not None:
            told = {one.tenant: one for one in snapshot.items.values() if isinstance(one, Entitlement)}
            until = second(congestion.valid_until)
            self._queue.at(now + lag, lambda: self._bind(told, until))
        elif self._bound:
            self._queue.at(now + lag, self._let_go)
        self._bound = congestion is not None

    def _bind(self, told: dict[str, Entitlement], until: float) -> None:
        for name in self._queue.accounts:
            if (one := told.get(name, told.get(ANYBODY))) is not None:
                self._queue.limit(name, one.rate, until, burst=one.burst, first=FIRST_TOKENS)

    def _let_go(self) -> None:
        for name in self._queue.accounts:
            self._queue.release(name)
