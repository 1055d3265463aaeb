"""Looks at the simulated queue as often as metrics come in a running system, in the middle of a second, too.

The lab looks once a whole second; what a look finds there is the same as here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np

from lab.loop import Loop
from lab.metrics import EPOCH, Metrics, Rows, instant
from lab.noisy import noisy_ones
from lab.queue import Account, Queue, gc_paused
from lab.run import Result, result
from lab.scenario import Scenario, Variant
from lab.shipped import FILLING, Alerts, Controlled

#: Metrics come so often (seconds): as of a queue that is busy.
EVERY = 0.25
_SPAN = re.compile(r"bucket_start >= timestamp_micros\((\d+)\) AND bucket_start < timestamp_micros\((\d+)\)")
_KINDS = {"enqueued": "arrivals", "finished": "completions", "work": "processing"}


class Counted(Metrics):
    """Metrics at any instant: counted from what happened in each second, the one that fills included."""

    def look(self, oldest: list[float]) -> None:
        """``oldest`` as :meth:`Metrics.look` has it, at whatever instant."""
        now = self._queue.now
        self._oldest = oldest
        self._noisy = noisy_ones(self._noisy, self._accounts, self._sum("processing", now - self._window_seconds), now)

    def answer(self, sql: str) -> Any:
        """See :meth:`Metrics.answer`."""
        if "FROM partials" not in sql or "AS work" not in sql:
            return super().answer(sql)
        spans = [[int(micros) / 1e6 - EPOCH.timestamp() for micros in span] for span in _SPAN.findall(sql)]
        rows = self._between(_KINDS, spans[0], 1 - self._queue.now % 1.0)
        for row, account in zip(rows, self._accounts, strict=True):
            row["first_age"] = _oldest_begun(account, *spans[0])
        if "AS brief_work" in sql:  # the last but that of all rows
            briefly = {f"brief_{name}": kind for name, kind in _KINDS.items()}
            more = self._between(briefly, spans[-2], 1 - self._queue.now % 1.0)
            rows = [one | other for one, other in zip(rows, more, strict=True)]
        if "AS since" in sql:
            usually = {"usually_enqueued": "arrivals", "usually_finished": "completions"}
            more = self._between(usually, spans[-1])
            since = instant(max(0.0, spans[-1][0]))
            rows = [one | other | {"since": since} for one, other in zip(rows, more, strict=True)]
        return Rows(rows)

    def _between(self, kinds: Mapping[str, str], span: list[float], part: float = 1.0) -> list[dict[str, Any]]:
        """The sums of each tenant; of the first second so much counts."""
        begin, end = span
        first = {kind: self._sum(kind, begin, begin + 1) for kind in kinds.values()}
        sums = {name: (self._sum(kind, begin, end) - (1 - part) * first[kind]).tolist() for name, kind in kinds.items()}
        return [of | {name: sums[name][place] for name in sums} for place, of in enumerate(self._of)]

    def _sum(self, kind: str, begin: float, end: float | None = None) -> Any:
        seconds = range(max(0, int(begin)), int(self._queue.now) + 1 if end is None else int(end))
        return np.array([sum(getattr(one, kind).get(at, 0.0) for at in seconds) for one in self._accounts], float)

    def _rates(self) -> tuple[Any, Any]:
        now, window = self._queue.now, self._window_seconds
        span = max(1.0, min(window + now % 1.0, now))
        return self._sum("arrivals", now - window) / span, self._sum("completions", now - window) / span

    def _tenants(self) -> list[dict[str, Any]]:
        now, rows = self._queue.now, super()._tenants()
        for row, oldest in zip(rows, self._oldest, strict=True):
            if row["oldest_age"] is not None:
                row["oldest_age"] = 0.0 if oldest == math.inf else now - math.floor(oldest)
                row["quiet_age"] = None if row["quiet_ready"] is None else row["oldest_age"]
        return rows


def _oldest_begun(account: Account, begin: float, end: float) -> float | None:
    lately = takewhile(lambda one: one.began_at >= begin, reversed(account.begun))
    return max((one.began_at - one.enqueued_at for one in lately if one.began_at < end), default=None)


class Often(Loop):
    """Looks each :data:`EVERY`."""

    def start(self) -> None:
        """Begin to look."""
        self._quiet = [not tenant.suspect for tenant in self.scenario.tenants]
        self.metrics = Counted(self.queue, self.scenario)
        self.alerts = Alerts(self.metrics)
        self._early = Alerts(self.metrics, FILLING) if self.scenario.policy.early else None
        self._controller = Controlled(self.queue, self.scenario, self.metrics)
        self.queue.at(1.0, self._often)

    def _often(self) -> None:
        now = self.queue.now
        self.queue.at(now + EVERY, self._often)
        oldest = [account.oldest for account in self.queue.accounts.values()]
        longest = min((at for at, quiet in zip(oldest, self._quiet, strict=True) if quiet), default=math.inf)
        self.quiet_ages.append((now, max(0.0, now - longest)))
        self.backlogs.append((now, self.queue.backlog))
        assert self.metrics is not None and self.alerts is not None and self._controller is not None
        self.metrics.look(oldest)
        evaluations = [alerts.step(now) for alerts in (self.alerts, self._early) if alerts is not None]
        self._controller.step(evaluations)


def simulate(scenario: Scenario, seed: int, way: Variant) -> Result:
    """As :func:`lab.run.simulate`, for a way that is controlled and takes messages in order."""
    with gc_paused():
        queue = Queue(scenario, way.servers, seed)
        loop = Often(queue, scenario, controlled=True)
        loop.start()
        queue.run()
        found = result(scenario, queue, loop)
        queue.forget()
    return found
