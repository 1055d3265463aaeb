"""What the views would show of the simulated queue: the answers to whatever the shipped control asks of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.control.spans import RECENT_RANGE
from alerts.laws.blame import USUAL_SECONDS
from lab.noisy import noisy_ones
from lab.queue import Account, Queue
from lab.scenario import Scenario
from lake.errors import SojournError
from lake.noisy import Array

BROKER, QUEUE, SUBSCRIBER = "lab", "lab", ""
#: What the second 0 of a simulation is on the clocks of what is shipped.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_MICROS = re.compile(r"timestamp_micros\((\d+)\)")
#: What the shipped rule on noisy tenants asks for.
_MATCHING = pa.schema(
    [(name, pa.string()) for name in ("broker", "queue", "subscriber", "tenant")]
    + [("value", pa.float64()), ("backlog", pa.int64()), ("in_flight", pa.int64())]
    + [(name, pa.float64()) for name in ("arrival_rate", "completion_rate")]
)
_TYPES = _MATCHING.types[3:]
_GOLDEN = (math.sqrt(5) - 1) / 2


@lru_cache(100)
def _where(rows: int) -> list[pa.Array]:
    """The first columns of ``rows`` of :data:`_MATCHING`."""
    return [pa.array([text] * rows, pa.string()) for text in (BROKER, QUEUE, SUBSCRIBER)]


def instant(now: float) -> datetime:
    """The second ``now`` of a simulation."""
    return EPOCH + timedelta(seconds=now)


def second(at: datetime) -> float:
    """The inverse of :func:`instant`."""
    return (at - EPOCH).total_seconds()


def told_age(since: float, now: float) -> float:
    """The age that views tell ``now`` of a message that came at ``since``: counted from the whole second it came in.

    Where in its second a look falls changes from look to look, by the golden ratio.
    """
    if since == math.inf:
        return 0.0
    into = int(now) * _GOLDEN % 1.0
    return max(0.0, now + into - math.floor(since + into))


class Rows:
    """An answer, read as those of an Arrow table are."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dictionary a row."""
        return self._rows


class Window:
    """What happened to each tenant in each of the last whole seconds."""

    def __init__(self, seconds: int, tenants: int) -> None:
        self._ring = np.zeros((seconds, tenants))
        self._next = 0

    def add(self, values: Sequence[float]) -> None:
        """One more second."""
        self._ring[self._next % len(self._ring)] = values
        self._next += 1

    def sum(self, seconds: int) -> Array:
        """By tenant, over so many of them."""
        if seconds == len(self._ring):
            total: Array = self._ring.sum(axis=0)
            return total
        newest = [(self._next - back) % len(self._ring) for back in range(1, seconds + 1)]
        total = self._ring[newest].sum(axis=0)
        return total


class Metrics:
    """The views over ``queue``, which is to be looked at each whole second."""

    def __init__(self, queue: Queue, scenario: Scenario) -> None:
        self._queue = queue
        self._accounts = list(queue.accounts.values())
        self._names = list(queue.accounts)
        self._window_seconds, self._target = scenario.window_seconds, scenario.target
        self._longest = longest = max(self._window_seconds, RECENT_RANGE[1], USUAL_SECONDS)
        self._arrivals, self._completions, self._work, self._failures = (
            Window(longest, len(self._names)) for _ in range(4)
        )
        self._oldest: list[float] = []
        self._noisy = np.zeros(len(self._names), bool)

    def look(self, oldest: list[float]) -> None:
        """A whole second is over; ``oldest`` are the tenants' oldest messages, as :attr:`Account.oldest` has them."""
        last, accounts = int(self._queue.now) - 1, self._accounts
        self._oldest = oldest
        self._arrivals.add([one.arrivals.get(last, 0) for one in accounts])
        self._completions.add([one.completions.get(last, 0) for one in accounts])
        self._work.add([one.processing.get(last, 0.0) for one in accounts])
        self._failures.add([one.failures.get(last, 0) for one in accounts])
        self._noisy = noisy_ones(self._noisy, accounts, self._work.sum(self._window_seconds), self._queue.now)

    @property
    def noisy(self) -> set[str]:
        """Who is noisy now."""
        return {self._names[place] for place in np.flatnonzero(self._noisy)}

    def matching(self, sql: str) -> pa.Table:
        """The answer to the shipped rule on noisy tenants. SojournError for any other."""
        if not sql.rstrip().endswith("WHERE noisy"):
            raise SojournError(f"the lab does not know what to answer: {sql}")
        places = np.flatnonzero(self._noisy).tolist()
        backlog = max(1, self._queue.backlog)
        arrivals, completions = self._rates()
        of = [self._accounts[place] for place in places]
        columns = [
            [one.name for one in of],
            [one.backlog / backlog for one in of],
            [one.backlog for one in of],
            [one.in_flight for one in of],
            arrivals[places],
            completions[places],
        ]
        arrays = [pa.array(values, of_type) for values, of_type in zip(columns, _TYPES, strict=True)]
        return pa.Table.from_arrays([*_where(len(of)), *arrays], schema=_MATCHING)

    def answer(self, sql: str) -> Any:
        """The rows that control asks for, tenant by tenant. SojournError for what it never asks."""
        if "FROM tenant_backlog_now" in sql:
            return Rows(self._tenants() if "quiet_age" in sql else self._waiting())
        if "FROM queue_health_now" in sql:
            return Rows([self._health()])
        if "FROM partials" in sql:
            begin, *end = (int(micros) / 1e6 - EPOCH.timestamp() for micros in _MICROS.findall(sql))
            if "AS failed" in sql:
                return Rows(self._ended(round(end[0] - begin), round(end[2] - end[1])))
            if not end:
                return Rows(self._seconds(int(begin)))
            flows = self._flows(round(end[0] - begin))
            return Rows(self._usually(flows, round(end[-1] - end[-2])) if "AS since" in sql else flows)
        if "FROM queue_samples" in sql:  # the lab's broker has no probe
            return Rows([])
        raise SojournError(f"the lab does not know what to answer: {sql}")

    def now(self) -> Callable[[str], Any]:
        """What :meth:`answer` would say now to the entitler, for when it will ask."""
        at, waiting = self._queue.now, self._waiting()
        seconds = self._seconds(int(at) - 1)

        def answer(sql: str) -> Any:
            return Rows(waiting if "FROM tenant_backlog_now" in sql else seconds)

        return answer

    def _rates(self) -> tuple[Array, Array]:
        """What came and was completed a second, over the window as far as there was one."""
        window = self._window_seconds
        elapsed = min(window, self._queue.now)
        return self._arrivals.sum(window) / elapsed, self._completions.sum(window) / elapsed

    def _row(self, account: Account) -> dict[str, Any]:
        name = account.name
        return {"broker": BROKER, "queue": QUEUE, "subscriber": SUBSCRIBER, "tenant": name, "target": name}

    def _tenants(self) -> list[dict[str, Any]]:
        now, as_of = self._queue.now, instant(self._queue.now)
        arrivals, completions = (rates.tolist() for rates in self._rates())
        noisy = self._noisy.tolist()
        return [
            self._row(one)
            | {
                "as_of": as_of,
                "backlog": one.backlog,
                "ready": one.ready,
                "completion_rate": completions[place],
                "arrival_rate": arrivals[place],
                "active_tenants": int(one.backlog > 0 or arrivals[place] > 0),
                "quiet_age": None if noisy[place] else told_age(self._oldest[place], now),
            }
            for place, one in enumerate(self._accounts)
        ]

    def _waiting(self) -> list[dict[str, Any]]:
        as_of = instant(self._queue.now)
        return [self._row(one) | {"as_of": as_of, "ready": one.ready} for one in self._accounts]

    def _health(self) -> dict[str, Any]:
        oldest = told_age(min(self._oldest, default=math.inf), self._queue.now)
        return {
            "broker": BROKER,
            "queue": QUEUE,
            "depth": sum(one.ready for one in self._accounts),
            "coverage": 1.0,
            "staleness_seconds": 0.0,
            "mode": "backlogged" if oldest > self._target else "fast",
        }

    def _flows(self, seconds: int) -> list[dict[str, Any]]:
        """What came and was finished, and how much work that was, in the last whole ``seconds``."""
        counts = (kept.sum(seconds).tolist() for kept in (self._arrivals, self._completions, self._work))
        return [
            self._row(one) | {"enqueued": came, "finished": finished, "work": work}
            for one, came, finished, work in zip(self._accounts, *counts, strict=True)
        ]

    def _usually(self, flows: list[dict[str, Any]], seconds: int) -> list[dict[str, Any]]:
        """``flows`` beside those of the last whole ``seconds``, as far as there were so many."""
        since = instant(max(0, int(self._queue.now) - seconds))
        counts = (kept.sum(min(seconds, self._longest)).tolist() for kept in (self._arrivals, self._completions))
        return [
            flow | {"usually_enqueued": came, "usually_finished": finished, "since": since}
            for flow, came, finished in zip(flows, *counts, strict=True)
        ]

    def _ended(self, recent: int, seconds: int) -> list[dict[str, Any]]:
        """What became of each tenant's attempts in the last whole ``seconds``, and how many ended in the ``recent``."""
        sums = (kept.sum(min(seconds, self._longest)).tolist() for kept in (self._completions, self._failures))
        lately = (self._completions.sum(recent) + self._failures.sum(recent)).tolist()
        return [
            self._row(one) | {"completed": completed, "failed": failed, "dead_lettered": 0.0, "recent": late}
            for one, completed, failed, late in zip(self._accounts, *sums, lately, strict=True)
        ]

    def _seconds(self, begin: int) -> list[dict[str, Any]]:
        """What came and was finished, and how much work that was, in each second from ``begin`` on."""
        return [
            self._row(one)
            | {
                "bucket_start": instant(at),
                "enqueued": float(one.arrivals.get(at, 0)),
                "finished": float(one.completions.get(at, 0)),
                "work": one.processing.get(at, 0.0),
            }
            for at in range(begin, int(self._queue.now) + 1)
            for one in self._accounts
        ]
