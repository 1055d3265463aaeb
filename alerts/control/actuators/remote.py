"""An actuator in a thread of its own: whoever decides waits a moment for a broker, and never for one that hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from actuators import reaper
from actuators.base import ActuatorSettings, Demand, Refused
from actuators.leased import Leased
from actuators.registry import make
from actuators.undo_log import News, UndoLog
from alerts.control.active_limit import ActiveLimit, Target, strictest
from alerts.control.actuators import Told
from lake.clock import Clock
from lake.errors import SojournError

log = logging.getLogger(__name__)

#: How long whoever decides waits for a server. What takes longer has failed, and is undone.
PATIENCE = 2.0
#: How long after a failure the server is not asked for anything new.
REST = 5.0
#: How often what is overdue is ended, and how often what is held is read again (seconds).
TICK, LOOK = 1.0, 10.0


class Remote:
    """Makes the limits of one actuator hold at its server; :meth:`enforce` belongs to one thread at a time."""

    def __init__(
        self,
        settings: ActuatorSettings,
        undo_log: UndoLog,
        clock: Clock,
        *,
        patience: float = PATIENCE,
        rest: float = REST,
        tick: float = TICK,
    ) -> None:
        self.name = settings.name
        actuator = make(settings)
        undo_log.remember(settings)
        self._undo_log, self._clock = undo_log, clock
        self._leased = Leased(settings.name, actuator, undo_log, settings.broker)
        self._lasts, self.shows_in_arrivals = not actuator.ends_by_itself, not actuator.slows_consumers
        self._patience, self._rest, self._tick = patience, rest, tick
        self._changed = threading.Condition()
        self._wanted: dict[Target, ActiveLimit] = {}
        self._asked = self._done = 0  # versions of what is wanted
        self._told: dict[Target, Told] = {}
        self._failed: dict[Target, tuple[float, Told]] = {}
        self._closed = False
        self._thread: threading.Thread | None = None
        self._looked = time.monotonic()
        if undo_log.held(self.name):
            self._start()

    def enforce(self, active_limits: Sequence[ActiveLimit]) -> Mapping[Target, Told]:
        """Make exactly these hold; what became of each, and of what held until now."""
        wanted = {target: item for (target, _), item in strictest(active_limits).items()}
        with self._changed:
            rested = time.monotonic() - self._rest
            self._failed = {target: one for target, one in self._failed.items() if one[0] > rested}
            resting = {target: one for target, (_, one) in self._failed.items() if target in wanted}
            wanted = {target: item for target, item in wanted.items() if target not in resting}
            hangs = self._done < self._asked  # and has done so for all our patience
            if wanted != self._wanted:
                self._wanted = wanted
                self._asked += 1
                self._start()
                self._changed.notify_all()
            mine = self._asked
            if self._changed.wait_for(lambda: self._done >= mine or self._closed, 0.0 if hangs else self._patience):
                return {**self._told, **resting}
            late = Told(f"no answer within {self._patience:g} s: what was done is undone")
            self._failed |= {target: (time.monotonic(), late) for target in wanted}
            return {**self._told, **resting, **dict.fromkeys(wanted, late)}

    def news(self) -> Sequence[News]:
        """What the reaper ended, and what somebody else has changed."""
        return self._undo_log.news(self.name)

    def close(self) -> None:
        """Stop. What holds goes on to hold until its lease is over."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._patience)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name=f"actuator-{self.name}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        applied: dict[Target, ActiveLimit] = {}
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._done < self._asked, self._tick)
                if self._closed:
                    return
                wanted, version, news = dict(self._wanted), self._asked, self._done < self._asked
            try:
                told = self._round(wanted, applied)
            except SojournError as error:
                log.error("actuator %s: %s", self.name, error)
                told = {target: Told(str(error)) for target in wanted if news}
            with self._changed:
                if news:
                    self._told = {target: one for target, one in self._told.items() if target in wanted} | told
                at = time.monotonic()
                self._failed |= {target: (at, one) for target, one in told.items() if one.error is not None}
                self._done = max(self._done, version)
                self._changed.notify_all()

    def _round(self, wanted: Mapping[Target, ActiveLimit], applied: dict[Target, ActiveLimit]) -> dict[Target, Told]:
        """End what is not wanted, apply what came or changed; look now and then at what is held."""
        told: dict[Target, Told] = {}
        for held in self._undo_log.held(self.name):
            target = Target(held.demand.broker, held.demand.queue, held.demand.tenant)
            if target in wanted:
                continue
            applied.pop(target, None)
            try:
                outcome = self._leased.end(held.place)
                told[target] = Told(None, {} if outcome is None else outcome.facts)
            except SojournError as error:
                log.warning("actuator %s: %s cannot be put back now: %s", self.name, held.place, error)
                told[target] = Told(None, {"setting": held.place, "effect": f"not put back yet: {error}"})
        for target, item in wanted.items():
            if applied.get(target) != item:
                told[target] = self._apply(item)
                if told[target].error is None:
                    applied[target] = item
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._leased.look()
        return told

    def _apply(self, item: ActiveLimit) -> Told:
        target, left = item.key.target, item.limit.valid_until - self._clock.now().timestamp()
        if left <= 0:
            return Told("its lease is over")
        until = item.valid_until + self._clock.ahead
        demand = Demand(
            target.broker,
            target.queue,
            target.tenant,
            item.limit.rate,
            item.burst,
            until,
            item.reason,
            item.action_id,
            item.in_hand,
        )
        if self._lasts:
            reaper.ensure(self._undo_log.folder)
        try:
            return Told(None, self._leased.apply(demand, left).facts)
        except Refused as error:
            return Told(f"refused: {error}")
        except SojournError as error:
            return Told(str(error))
