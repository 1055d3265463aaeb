"""Watches the queues whose consumers are scaled, and says how many there should be: :mod:`alerts.laws.capacity`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.control.settings import CapacitySettings
from alerts.control.statements import literal, of_queues
from alerts.laws.capacity import Advice, Seen, State, step
from lake.clock import TOLERANCE, ZERO, age
from lake.errors import SojournError

log = logging.getLogger(__name__)

Query = Callable[[str], pa.Table]
Place = tuple[str, str, str]  # broker, queue, subscriber; '' = the queue's only consumer

LOOK_EVERY = timedelta(seconds=5)
#: Older data says nothing of now; an answer that nobody renewed for so long says nothing either.
MOST_OLD = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is advised for one queue at ``at`` of the clock. ``consumers`` are those that it has; None is unknown."""

    place: Place
    at: datetime
    advice: Advice
    per_consumer: int
    consumers: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One queue as the views have it; ``why_not`` says why it cannot be judged."""

    seen: Seen | None
    why_not: str = ""


class Advisor:
    """Looks every five seconds. :meth:`step` belongs to one thread, :meth:`capacities` may be called from any."""

    def __init__(self, settings: Sequence[CapacitySettings], window_seconds: float) -> None:
        self._settings = {one.place: one for one in settings}
        self._terms = {one.place: one.terms(window_seconds) for one in settings}
        self._states = {place: State() for place in self._settings}
        self._capacities: dict[Place, Capacity] = {}
        self._looked_at: datetime | None = None

    def step(self, now: datetime, query: Query, ahead: timedelta = ZERO) -> None:
        """One look at ``now`` of the clock, at most one in :data:`LOOK_EVERY`."""
        if not self._settings or (self._looked_at is not None and now - self._looked_at < LOOK_EVERY):
            return
        self._looked_at = now
        try:
            looks = look(query, self._settings.values(), now, ahead)
        except SojournError as error:
            log.warning("the capacity that queues need cannot be worked out: %s", error)
            return
        found = {}
        for place, one in looks.items():
            seen = one.seen
            if seen is None:
                # Whatever was being counted is broken off: what happened meanwhile is not known.
                self._states[place] = replace(self._states[place], since=None)
                advice, there = Advice(None, None, None, None, one.why_not), None
            else:
                self._states[place], advice = step(self._terms[place], seen, self._states[place], now.timestamp())
                there = seen.consumers
            found[place] = Capacity(place, now, advice, self._settings[place].per_consumer, there)
        self._capacities = found  # replaced as a whole: whoever reads holds one or the other

    def capacities(self, now: datetime) -> list[Capacity]:
        """What is advised for each queue at ``now``; unknown where it is out of date."""
        known = self._capacities
        return [
            found
            if (found := known.get(place)) is not None and now - found.at <= MOST_OLD
            else Capacity(place, now, Advice(None, None, None, None, "nothing was seen lately"), one.per_consumer)
            for place, one in self._settings.items()
        ]


def look(
    query: Query, settings: Iterable[CapacitySettings], now: datetime, ahead: timedelta = ZERO
) -> dict[Place, Look]:
    """Each of the queues that ``settings`` name, as three SELECTs for all of them together have it."""
    settings = list(settings)
    only = of_queues({one.queue for one in settings if literal(one.queue) is not None})
    levels, work, health = (_by_place(query(sql.format(only=only))) for sql in (_LEVELS, _WORK, _HEALTH))
    return {
        one.place: _look(one, levels.get(one.place), work.get(one.place), health.get(one.place, {}), now, ahead)
        for one in settings
    }


_LEVELS = """
    SELECT broker, queue, subscriber, MIN(as_of) AS as_of, MIN(coverage) AS coverage,
      CAST(SUM(reconciled_backlog) AS DOUBLE) AS backlog, CAST(SUM(ready) AS DOUBLE) AS ready,
      MAX(CASE WHEN backlog IS NULL THEN 1 ELSE 0 END) AS unknown,
      SUM(arrival_rate) AS arrival_rate, SUM(completion_rate) AS completion_rate
    FROM tenant_backlog_now {only} GROUP BY broker, queue, subscriber"""
# The mean over tenants by attempts: in a window about as many end as start, and no column counts those that ended.
_WORK = """
    SELECT broker, queue, subscriber,
      SUM(start_rate * mean_processing_seconds)
        / NULLIF(SUM(CASE WHEN mean_processing_seconds IS NOT NULL THEN start_rate END), 0) AS service_seconds,
      AVG(mean_processing_seconds) AS mean_seconds
    FROM concurrency_now {only} GROUP BY broker, queue, subscriber"""
_HEALTH = """
    SELECT broker, queue, subscriber, MAX(consumers) AS consumers FROM queue_health_now {only}
    GROUP BY broker, queue, subscriber"""


def _by_place(rows: pa.Table) -> dict[Place, dict[str, Any]]:
    return {(row["broker"], row["queue"], row["subscriber"] or ""): row for row in rows.to_pylist()}


def _look(
    one: CapacitySettings,
    level: dict[str, Any] | None,
    work: dict[str, Any] | None,
    health: dict[str, Any],
    now: datetime,
    ahead: timedelta,
) -> Look:
    if level is None:
        return Look(None, "the metrics know no events of this queue")
    if not -TOLERANCE <= (old := age(level["as_of"], now, ahead)) <= MOST_OLD:
        return Look(None, f"its data is {old.total_seconds():.0f} s old")
    if level["unknown"] or level["backlog"] is None:
        return Look(None, "its backlog is unknown while history is incomplete")
    if level["coverage"] is not None and level["coverage"] < one.min_coverage:
        return Look(None, f"events show {level['coverage']:.0%} of it, less than {one.min_coverage:.0%}")
    service = one.service_seconds
    if service is None and work is not None:
        service = work["service_seconds"] if work["service_seconds"] is not None else work["mean_seconds"]
    consumers = health.get("consumers")
    return Look(
        Seen(
            arrival_rate=level["arrival_rate"] or 0.0,
            finish_rate=level["completion_rate"] or 0.0,
            backlog=max(0.0, level["backlog"]),
            service_seconds=service,
            consumers=consumers,
            waiting=(level["ready"] or 0) > 0,
        )
    )
