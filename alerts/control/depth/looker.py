"""Asks brokers in threads of their own, one each, and passes on what they tell."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from alerts.control.depth.base import Depth, DepthSettings, Unknown
from alerts.control.depth.cadence import Cadence
from alerts.control.depth.registry import make
from alerts.control.entitler import Entitler
from lake.clock import Clock
from lake.errors import SojournError

log = logging.getLogger(__name__)

#: Nobody acts on what took longer to ask: it may be of another moment.
MOST_OLD = timedelta(seconds=0.5)
#: How long the end of a thread is waited for (seconds).
PATIENCE = 3.0


class Looker:
    """Asks one broker how many messages wait in its queues with entitlements; without any it asks nothing.

    A glance has the time at which it was asked for. A failure is told once, is no glance, and lets the broker rest.
    """

    def __init__(self, settings: DepthSettings, entitler: Entitler, clock: Clock) -> None:
        self.name = settings.name
        self._settings, self._entitler, self._clock = settings, entitler, clock
        self._depth: Depth = make(settings)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._queues = [queue for broker, queue in entitler.places if broker == self.name]
        #: How often it was asked, by how that ended: ``told``, ``unknown``, ``failed``, ``late``.
        self.asked: Counter[str] = Counter()
        #: What was told last: queue → (when, how many messages).
        self.told: dict[str, tuple[datetime, float]] = {}
        self._failing: dict[str, str] = {}

    @property
    def queues(self) -> Sequence[str]:
        """The queues that are asked for."""
        return self._queues

    def start(self) -> None:
        """Begin to ask, if there is anything to ask for."""
        if self._queues and self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"glances-{self.name}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _work(self) -> None:
        cadence = Cadence(self._queues, self._settings.questions_per_second)
        connected = False
        while True:
            queue, pause = cadence.next(self._seconds(), lambda name: self._entitler.hurried((self.name, name)))
            if self._stop.wait(pause):
                break
            cadence.asked(queue, self._seconds())
            try:
                if not connected:
                    self._depth.open()
                    connected = True
                self._ask(queue)
            except Unknown as error:
                self._failed(queue, "unknown", error)
            except Exception as error:  # whatever it is, entitlements go on by metrics alone
                connected = False
                self._failed(queue, "failed", error)
                cadence.rest(self._seconds())
        self._closed()

    def _ask(self, queue: str) -> None:
        at = self._clock.now()
        waiting = self._depth.waiting(self._settings.names.get(queue, queue))
        if self._clock.now() - at > MOST_OLD:
            self.asked["late"] += 1
            return
        self.asked["told"] += 1
        self.told[queue] = at, waiting
        if self._failing.pop(queue, None) is not None:
            log.info("%s/%s tells again how many messages wait", self.name, queue)
        self._entitler.glance((self.name, queue), waiting, at)

    def _failed(self, queue: str, how: str, error: Exception) -> None:
        self.asked[how] += 1
        if self._failing.get(queue) != how:
            level = logging.WARNING if isinstance(error, SojournError) else logging.ERROR
            log.log(level, "how many messages wait in %s/%s is known by metrics alone: %s", self.name, queue, error)
        self._failing[queue] = how

    def _seconds(self) -> float:
        return self._clock.now().timestamp()

    def _closed(self) -> None:
        try:
            self._depth.close()
        except Exception as error:
            log.debug("the connection to %s did not end well: %s", self.name, error)
