"""Standing entitlements in the simulated world: the shipped entitler, and producers that hear of it a lag later."""

from __future__ import annotations

from alerts.control.board import Board, Congestion, Entitlement
from alerts.control.entitler import Entitler
from alerts.control.settings import EntitlementSettings
from alerts.control.standing import Entry
from alerts.laws.entitlement import LOOK_SECONDS
from lab.metrics import BROKER, QUEUE, Metrics, instant, second
from lab.queue import Queue
from lab.scenario import Scenario
from sojourn.client.in_force import FIRST_TOKENS

ANYBODY = "*"


class Entitled:
    """Looks at ``queue`` as often as the law wants it; lets producers know what they may send while it is congested."""

    def __init__(self, queue: Queue, scenario: Scenario, metrics: Metrics) -> None:
        self._queue, self._lag, self._metrics = queue, scenario.lag_seconds, metrics
        self._board = Board()
        #: The journal's rows: when entitlements began to bind, and when they ceased.
        self.entries: list[Entry] = []
        settings = (EntitlementSettings(broker=BROKER, queue=QUEUE),)
        self._entitler = Entitler(settings, self._board, self.entries.extend, lambda: False)
        self._version = self._board.snapshot.version
        self._bound = False

    def start(self) -> None:
        """Begin to look."""
        self._queue.at(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = self._queue.now
        self._queue.at(now + LOOK_SECONDS, self._look)
        self._entitler.step(instant(now), self._metrics.answer)
        snapshot = self._board.snapshot
        if snapshot.version == self._version:
            return
        self._version = snapshot.version
        congestion = next((one for one in snapshot.items.values() if isinstance(one, Congestion)), None)
        if congestion is not None:
            told = {one.tenant: one for one in snapshot.items.values() if isinstance(one, Entitlement)}
            until = second(congestion.valid_until)
            self._queue.at(now + self._lag, lambda: self._bind(told, until))
        elif self._bound:
            self._queue.at(now + self._lag, self._let_go)
        self._bound = congestion is not None

    def _bind(self, told: dict[str, Entitlement], until: float) -> None:
        for name in self._queue.accounts:
            if (one := told.get(name, told.get(ANYBODY))) is not None:
                self._queue.limit(name, one.rate, until, burst=one.burst, first=FIRST_TOKENS)

    def _let_go(self) -> None:
        for name in self._queue.accounts:
            self._queue.release(name)
