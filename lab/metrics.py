"""What the views would show of the simulated queue: the answers to whatever the shipped control asks of them."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.answer import Answer
from alerts.control.spans import BRIEF_SECONDS, RECENT_RANGE
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
#: Whom the rule on tenants that fill a queue asks for: beyond which share of the backlog, with so many ready.
_FILLING = re.compile(r"share > ([0-9.]+) AND share < 1 AND ready >= ([0-9.]+)")
_GOLDEN = (math.sqrt(5) - 1) / 2


@lru_cache(1_000)
def _labels(tenants: tuple[str, ...]) -> dict[str, pa.Array]:
    """The columns of text that the shipped rule on noisy tenants asks for, of these."""
    rows = len(tenants)
    columns = {"broker": [BROKER] * rows, "queue": [QUEUE] * rows, "subscriber": [SUBSCRIBER] * rows, "tenant": tenants}
    return {name: pa.array(values, pa.string()) for name, values in columns.items()}


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
    """What happened to each tenant in each of the last whole seconds: arrivals, completions, work, failures."""

    def __init__(self, seconds: int, tenants: int) -> None:
        self._ring = np.zeros((seconds, 4, tenants))
        self._next = 0
        self._sums: dict[int, Array] = {}

    def add(self, values: Sequence[Sequence[float]]) -> None:
        """One more second: of each kind, each tenant's."""
        self._ring[self._next % len(self._ring)] = values
        self._next += 1
        self._sums.clear()

    def sum(self, seconds: int) -> Array:
        """Over so many of them, by kind and tenant; added up once, however many ask."""
        if (known := self._sums.get(seconds)) is None:
            ring = self._ring
            if seconds != len(ring):
                ring = ring[[(self._next - back) % len(ring) for back in range(1, seconds + 1)]]
            known = self._sums[seconds] = ring.sum(axis=0)
        return known


class Metrics:
    """The views over ``queue``, which is to be looked at each whole second."""

    def __init__(self, queue: Queue, scenario: Scenario) -> None:
        self._queue = queue
        self._accounts = list(queue.accounts.values())
        self._names = list(queue.accounts)
        self._window_seconds, self._target = scenario.window_seconds, scenario.target
        self._longest = max(self._window_seconds, RECENT_RANGE[1], USUAL_SECONDS)
        self._window = Window(self._longest, len(self._names))
        #: What is the same in all rows of a tenant.
        self._of = [
            {"broker": BROKER, "queue": QUEUE, "subscriber": SUBSCRIBER, "tenant": name, "target": name}
            for name in self._names
        ]
        self._oldest: list[float] = []
        #: How many of each tenant's first attempts were looked at; second by second the oldest of them, -1: none began.
        self._begun = [0] * len(self._names)
        self._ages = deque([[-1.0] * len(self._names)], self._longest)
        self._noisy = np.zeros(len(self._names), bool)

    def look(self, oldest: list[float]) -> None:
        """A whole second is over; ``oldest`` are the tenants' oldest messages, as :attr:`Account.oldest` has them."""
        last, accounts = int(self._queue.now) - 1, self._accounts
        self._oldest = oldest
        self._window.add(
            (
                [one.arrivals.get(last, 0) for one in accounts],
                [one.completions.get(last, 0) for one in accounts],
                [one.processing.get(last, 0.0) for one in accounts],
                [one.failures.get(last, 0) for one in accounts],
            )
        )
        self._ages.append([self._first_age(place, one) for place, one in enumerate(accounts)])
        worked = self._window.sum(self._window_seconds)[2]
        self._noisy = noisy_ones(self._noisy, accounts, worked, self._queue.now)

    def _first_age(self, place: int, account: Account) -> float:
        """The oldest message that began since the last look; -1 where none did."""
        begun, seen = account.begun, self._begun[place]
        if len(begun) == seen:
            return -1.0
        self._begun[place] = len(begun)
        return max([one.began_at - one.enqueued_at for one in begun[seen:]])

    @property
    def noisy(self) -> set[str]:
        """Who is noisy now."""
        return {self._names[place] for place in np.flatnonzero(self._noisy)}

    def places(self, sql: str) -> Array:
        """Whom the shipped rules on noisy tenants, and on those who fill a queue, select; SojournError for others."""
        if sql.rstrip().endswith("WHERE noisy"):
            return np.flatnonzero(self._noisy)
        if (asked := _FILLING.search(sql)) is None:
            raise SojournError(f"the lab does not know what to answer: {sql}")
        most, least = (float(number) for number in asked.groups())
        backlog, ready = (np.array([getattr(one, name) for one in self._accounts]) for name in ("backlog", "ready"))
        whole = backlog.sum()
        return np.flatnonzero((backlog > most * whole) & (backlog < whole) & (ready >= least))

    def matching(self, sql: str) -> Answer:
        """The answer to a rule of which :meth:`places` knows. SojournError for any other."""
        places = self.places(sql).tolist()
        backlog = max(1, self._queue.backlog)
        arrivals, completions = self._rates()
        of = [self._accounts[place] for place in places]
        extras = {
            "backlog": [one.backlog for one in of],
            "in_flight": [one.in_flight for one in of],
            "ready": [one.ready for one in of],
            "arrival_rate": arrivals[places].tolist(),
            "completion_rate": completions[places].tolist(),
        }
        return Answer.of(_labels(tuple(one.name for one in of)), [one.backlog / backlog for one in of], extras)

    def answer(self, sql: str) -> Any:
        """The rows that the controller asks for, tenant by tenant. SojournError for what it never asks."""
        if "FROM tenant_backlog_now" in sql and "quiet_age" in sql:
            return Rows(self._tenants())
        if "FROM queue_health_now" in sql:
            return Rows([self._health()])
        if "FROM partials" in sql:
            begin, *end = (int(micros) / 1e6 - EPOCH.timestamp() for micros in _MICROS.findall(sql))
            if "AS failed" in sql:
                return Rows(self._ended(round(end[0] - begin), round(end[2] - end[1])))
            flows = self._flows(round(end[0] - begin))
            if "AS brief_work" in sql:
                flows = [
                    flow | {f"brief_{name}": brief[name] for name in ("enqueued", "finished", "work")}
                    for flow, brief in zip(flows, self._flows(BRIEF_SECONDS), strict=True)
                ]
            return Rows(self._usually(flows, round(end[-1] - end[-2])) if "AS since" in sql else flows)
        if "FROM queue_samples" in sql:  # the lab's broker has no probe
            return Rows([])
        raise SojournError(f"the lab does not know what to answer: {sql}")

    def now(self) -> Callable[[str], Any]:
        """The rows that the entitler asks for as they are now, for when it will ask."""
        waiting, seconds = self._waiting(), self._seconds(int(self._queue.now) - 1)

        def answer(sql: str) -> Any:
            return Rows(waiting if "FROM tenant_backlog_now" in sql else seconds)

        return answer

    def arrival_rates(self) -> dict[str, float]:
        """What each tenant sends, messages/s, over the window."""
        return dict(zip(self._names, self._rates()[0].tolist(), strict=True))

    def _rates(self) -> tuple[Array, Array]:
        """What came and was completed a second, over the window as far as there was one."""
        window = self._window_seconds
        arrivals, completions = self._window.sum(window)[:2] / min(window, self._queue.now)
        return arrivals, completions

    def _tenants(self) -> list[dict[str, Any]]:
        now, as_of = self._queue.now, instant(self._queue.now)
        arrivals, completions = (rates.tolist() for rates in self._rates())
        noisy = self._noisy.tolist()
        return [
            {
                **of,
                "as_of": as_of,
                "backlog": (backlog := one.backlog),
                "ready": one.ready,
                "completion_rate": finished,
                "arrival_rate": came,
                "active_tenants": int(backlog > 0 or came > 0),
                "oldest_age": (age := told_age(oldest, now) if one.ready > 0 else None),
                "quiet_age": None if is_noisy else age,
                "quiet_ready": None if is_noisy else one.ready,
            }
            for of, one, finished, came, is_noisy, oldest in zip(
                self._of, self._accounts, completions, arrivals, noisy, self._oldest, strict=True
            )
        ]

    def _waiting(self) -> list[dict[str, Any]]:
        as_of = instant(self._queue.now)
        return [{**of, "as_of": as_of, "ready": one.ready} for of, one in zip(self._of, self._accounts, strict=True)]

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
        sums = self._window.sum(seconds)[:3].tolist()
        return [
            {**of, "enqueued": came, "finished": finished, "work": work, "first_age": age}
            for of, came, finished, work, age in zip(self._of, *sums, self._first_ages(seconds), strict=True)
        ]

    def _first_ages(self, seconds: int) -> list[float | None]:
        """Of each tenant the oldest at its first attempt in the last whole ``seconds``."""
        ages = np.array(list(islice(reversed(self._ages), seconds))).max(axis=0)
        return [age if age >= 0 else None for age in ages.tolist()]

    def _usually(self, flows: list[dict[str, Any]], seconds: int) -> list[dict[str, Any]]:
        """``flows`` beside those of the last whole ``seconds``, as far as there were so many."""
        since = instant(max(0, int(self._queue.now) - seconds))
        counts = self._window.sum(min(seconds, self._longest))[:2].tolist()
        for flow, came, finished in zip(flows, *counts, strict=True):
            flow.update(usually_enqueued=came, usually_finished=finished, since=since)
        return flows

    def _ended(self, recent: int, seconds: int) -> list[dict[str, Any]]:
        """What became of each tenant's attempts in the last whole ``seconds``, and how many ended in the ``recent``."""
        sums = self._window.sum(min(seconds, self._longest))[[1, 3]].tolist()
        lately = self._window.sum(recent)[[1, 3]].sum(axis=0).tolist()
        return [
            {**of, "completed": completed, "failed": failed, "dead_lettered": 0.0, "recent": late}
            for of, completed, failed, late in zip(self._of, *sums, lately, strict=True)
        ]

    def _seconds(self, begin: int) -> list[dict[str, Any]]:
        """What came and was finished, and how much work that was, in each second from ``begin`` on."""
        now = self._queue.now
        return [
            {
                **of,
                "bucket_start": instant(at),
                "newest": instant(min(at + 1, now)),
                "enqueued": float(one.arrivals.get(at, 0)),
                "finished": float(one.completions.get(at, 0)),
                "work": one.processing.get(at, 0.0),
            }
            for at in range(begin, int(now) + 1)
            for of, one in zip(self._of, self._accounts, strict=True)
        ]
