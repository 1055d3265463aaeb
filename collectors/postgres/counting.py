"""From jobs to numbers: the SQL that counts a layout's jobs by queue and tenant, and what its rows say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from brokers.tenants import Message, Rule, tenant_of
from collectors.postgres.connection import Row
from collectors.samples import TenantShare
from collectors.tenants import MOST, OTHER, UNKNOWN

#: Stands for the queues beyond the cap.
OTHERS = "*"
_EPOCH = "extract(epoch FROM {})::float8"
#: The fullest queues and, in each, the fullest tenants are told apart; ``rest`` is 1 where tenants are together.
_COUNT = """
WITH jobs AS ({jobs}
), grouped AS (
  SELECT queue, tenant,
    count(*) FILTER (WHERE state = 'ready') AS ready,
    count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE state = 'delayed') AS delayed,
    count(*) FILTER (WHERE state <> 'running' AND retry) AS retrying,
    count(retry) AS numbered, count(*) AS whole,
    min(since) FILTER (WHERE state <> 'delayed') AS since,
    min(since) FILTER (WHERE state = 'ready' AND NOT retry) AS fresh,
    min(began) FILTER (WHERE state = 'running') AS began,
    min(id) FILTER (WHERE since IS NULL AND state <> 'delayed') AS undated,
    min(id) FILTER (WHERE since IS NULL AND state = 'ready' AND NOT retry) AS fresh_undated
  FROM jobs GROUP BY queue, tenant
), sized AS (
  SELECT *, sum(whole) OVER (PARTITION BY queue) AS queue_size,
    row_number() OVER (PARTITION BY queue ORDER BY whole DESC, tenant) AS place
  FROM grouped
), ranked AS (SELECT *, dense_rank() OVER (ORDER BY queue_size DESC, queue) AS queue_place FROM sized
), counted AS (
  SELECT CASE WHEN queue_place <= {queues} THEN queue END AS queue,
    CASE WHEN place < {tenants} THEN tenant END AS tenant,
    (place >= {tenants})::int AS rest, sum(ready) AS ready, sum(running) AS running, sum(delayed) AS delayed,
    sum(retrying) AS retrying, sum(numbered) AS numbered, sum(whole) AS whole, min(since) AS since, min(fresh) AS fresh,
    min(began) AS began, min(undated) AS undated, min(fresh_undated) AS fresh_undated
  FROM ranked GROUP BY 1, 2, 3
)
SELECT {now}, queue, tenant, rest, ready::bigint, running::bigint, delayed::bigint, retrying::bigint,
  numbered = whole, {since}, {fresh}, {began}
FROM counted"""
#: The same of what is dead; a queue's tenants are not told apart.
_COUNT_DEAD = """
WITH dead AS ({dead}
), counted AS (
  SELECT queue, count(*) AS number, min(since) AS since, row_number() OVER (ORDER BY count(*) DESC, queue) AS place
  FROM dead GROUP BY queue
)
SELECT {now}, CASE WHEN place <= {queues} THEN queue END, sum(number)::bigint, {since}
FROM counted GROUP BY 2"""


def count(jobs: str, queues: int, resolve: str | None = None) -> str:
    """The SELECT that counts ``jobs``; ``resolve``: SQL of the time since which job ``{id}`` waits."""
    since, fresh = "since", "fresh"
    if resolve is not None:
        since = f"least(since, {resolve.format(id='undated')})"
        fresh = f"least(fresh, {resolve.format(id='fresh_undated')})"
    return _COUNT.format(
        jobs=jobs,
        queues=queues,
        tenants=MOST,
        now=_EPOCH.format("now()"),
        since=_EPOCH.format(since),
        fresh=_EPOCH.format(fresh),
        began=_EPOCH.format("began"),
    )


def count_dead(dead: str, queues: int) -> str:
    """The SELECT that counts ``dead``."""
    return _COUNT_DEAD.format(dead=dead, queues=queues, now=_EPOCH.format("now()"), since=_EPOCH.format("min(since)"))


@dataclass(slots=True)
class Tally:
    """What one queue, or one tenant of it, holds; times in seconds since 1970. ``numbered``: attempts are counted."""

    ready: int = 0
    running: int = 0
    delayed: int = 0
    retrying: int = 0
    numbered: bool = True
    since: float | None = None
    fresh: float | None = None
    began: float | None = None

    def add(self, other: Tally) -> None:
        """Take in what another holds."""
        for name in ("ready", "running", "delayed", "retrying"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.numbered = self.numbered and other.numbered
        for name in ("since", "fresh", "began"):
            times = [time for time in (getattr(self, name), getattr(other, name)) if time is not None]
            setattr(self, name, min(times, default=None))


@dataclass(slots=True)
class Queue:
    """One queue: all of it, and by tenant."""

    whole: Tally = field(default_factory=Tally)
    tenants: dict[str, Tally] = field(default_factory=dict)


class Dead(NamedTuple):
    """How many jobs of a queue are dead, and since when the first of them."""

    number: int
    since: float | None


def tallied(rows: Sequence[Row], rules: Sequence[Rule]) -> dict[str, Queue]:
    """By queue what rows of :func:`count` say."""
    queues: dict[str, Queue] = {}
    for _, name, tenant, rest, *numbers in rows:
        shown = OTHERS if name is None else str(name)
        tally = Tally(*numbers)
        queue = queues.setdefault(shown, Queue())
        queue.whole.add(tally)
        if rules:
            who = OTHER if rest else _tenant(rules, shown, tenant)
            queue.tenants.setdefault(who, Tally()).add(tally)
    return queues


def _tenant(rules: Sequence[Rule], queue: str, found: str | None) -> str:
    """The tenant of rows: what a pattern of the queue's name says, or what SQL found, as the first rules have it."""
    for at, rule in enumerate(rules):
        if rule.source != "queue":
            if found is not None:
                return found
        elif (name := tenant_of(rules[at : at + 1], Message(queue=queue))) is not None:
            return name
    return UNKNOWN


def dead_of(rows: Sequence[Row]) -> dict[str, Dead]:
    """By queue what rows of :func:`count_dead` say."""
    return {OTHERS if name is None else str(name): Dead(number, since) for _, name, number, since in rows}


def age(now: float, since: float | None) -> float:
    """Seconds from ``since`` to ``now``, both since 1970; 0 of nothing, and of what is dated later."""
    return max(0.0, now - since) if since is not None else 0.0


def shares(queue: Queue, now: float, running: bool) -> tuple[TenantShare, ...]:
    """Each tenant's share, the largest first; ``running``: whether what runs is told."""
    return tuple(
        TenantShare(
            name,
            depth=tally.ready,
            in_flight=tally.running if running else None,
            delayed=tally.delayed,
            oldest_age_seconds=age(now, tally.since),
        )
        for name, tally in sorted(queue.tenants.items(), key=lambda pair: (-pair[1].ready - pair[1].running, pair[0]))
    )
