"""Tenants that count as one in the simulated queue: the shipped groups, and the shipped rule on them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.answer import Answer
from alerts.control.groups import Groups
from alerts.control.settings import GroupSettings
from lab.metrics import BROKER, QUEUE, SUBSCRIBER, Metrics, Rows, instant
from lab.queue import Queue
from lake.errors import SojournError
from lake.noisy import Array, share_from_which

#: How many messages of a group have to wait at the least, as the shipped rule asks.
_ASKED = re.compile(r"u\.members > 1 AND u\.backlog >= ([0-9.]+) AND q\.ready > u\.ready")


class Together:
    """Who began together in ``queue``, and whom of them the rule on noisy groups selects."""

    def __init__(self, queue: Queue, metrics: Metrics) -> None:
        self.groups = Groups((GroupSettings(broker=BROKER, queue=QUEUE),))
        self._queue, self._metrics = queue, metrics
        self._found: list[tuple[str, frozenset[str]]] = []

    def look(self) -> None:
        """Learn who is there now."""
        self.groups.table(self._rates, instant(self._queue.now))

    def _rates(self, sql: str) -> Any:
        """The rows that groups ask for."""
        rates = self._metrics.arrival_rates()
        of = {"broker": BROKER, "queue": QUEUE}
        return Rows([{**of, "tenant": name, "rate": rate} for name, rate in rates.items()])

    def places(self, sql: str) -> Array:
        """The groups that the rule selects, as the places of :meth:`matching`. SojournError for another rule."""
        if (asked := _ASKED.search(sql)) is None:
            raise SojournError(f"the lab does not know what to answer: {sql}")
        accounts, least = self._queue.accounts, float(asked[1])
        self._found = []
        units = {name: target.tenant for target, names in self.groups.members.items() for name in names}
        backlogs, in_flight, ready = Counter[str](), Counter[str](), Counter[str]()
        for name, one in accounts.items():
            unit = units.get(name, name)
            backlogs[unit] += one.backlog
            in_flight[unit] += one.in_flight
            ready[unit] += one.ready
        share = share_from_which(sum(backlog > 0 for backlog in backlogs.values()))
        whole, worked_on, waiting = (sum(of.values()) for of in (backlogs, in_flight, ready))
        for target, names in self.groups.members.items():
            unit = target.tenant
            waits = len(names) > 1 and backlogs[unit] >= least and waiting > ready[unit]
            if waits and backlogs[unit] > share * whole and in_flight[unit] > share * worked_on:
                self._found.append((unit, names))
        return np.arange(len(self._found))

    def matching(self, sql: str) -> Answer:
        """The answer to the rule on noisy groups. SojournError for any other."""
        self.places(sql)
        rows = len(self._found)
        columns = {"broker": [BROKER], "queue": [QUEUE], "subscriber": [SUBSCRIBER]}
        labels = {name: pa.array(value * rows, pa.string()) for name, value in columns.items()}
        labels["tenant"] = pa.array([unit for unit, _ in self._found], pa.string())
        whole = max(1, self._queue.backlog)
        of = [[self._queue.accounts[name] for name in names] for _, names in self._found]
        backlogs = [sum(one.backlog for one in members) for members in of]
        rates = self._metrics.arrival_rates()
        extras: dict[str, list[float]] = {
            "members": [len(members) for members in of],
            "backlog": [float(backlog) for backlog in backlogs],
            "in_flight": [float(sum(one.in_flight for one in members)) for members in of],
            "arrival_rate": [sum(rates[name] for name in names) for _, names in self._found],
            "completion_rate": [0.0 for _ in of],
        }
        return Answer.of(labels, [backlog / whole for backlog in backlogs], extras)
