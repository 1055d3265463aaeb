"""An incident as a queue's events tell it: what came, how long work on it took, how many could be worked on at once.

The last is what was, second by second, while messages waited: outages and consumers that came or left are in it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from lab.scenario import Arrival
from lake.dataset import rows_of
from lake.errors import UserError
from lake.store import Lake
from lake.tables import FINISHING_TYPES, OF_A_LIFE

Place = tuple[str, str, str]  # broker, queue, subscriber; "" = the queue's only consumer
Wanted = tuple[str | None, str | None, str | None]  # the same; None: where the most was finished

_COLUMNS = (*OF_A_LIFE, "processing_seconds")
_ENDS = (*FINISHING_TYPES, "failed")
_BEGINS = ("received", "started")
#: Seconds at the most that a replay may be long, and messages.
LONGEST, MOST_MESSAGES = 6 * 3600.0, 2_000_000


@dataclass(slots=True)
class _Message:
    tenant: str
    at: float | None = None
    first: float | None = None
    begun: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    work: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """What the events of a queue say of a time: ``arrivals`` in order, ``servers`` as (second, how many from then on).

    ``ages`` are those of all that came at their first attempts, by tenant; ``done`` messages were finished in it.
    """

    place: Place
    seconds: float
    arrivals: tuple[Arrival, ...]
    servers: tuple[tuple[float, int], ...]
    ages: Mapping[str, Sequence[float]]
    done: int


def read(root: Path, since: datetime, until: datetime, place: Wanted) -> Incident:
    """What happened between ``since`` and ``until`` at ``place``; parts of it that are None: where the most did.

    Raises UserError where the lake has no events of it, or not how long work took.
    """
    if not 0 < (length := (until - since).total_seconds()) <= LONGEST:
        raise UserError("an incident ends after it began, and lasts six hours at most", "name T1..T2 in that order")
    lake = Lake(root)
    if not lake.exists("message_events"):
        raise UserError(f"the lake at {root} has no events", "name another with --lake")
    where: list[tuple[str, str, Any]] = [
        ("occurred_at", ">=", since),
        ("occurred_at", "<", until + timedelta(seconds=length)),
    ]
    where += [(name, "=", value) for name, value in zip(("broker", "queue"), place, strict=False) if value is not None]
    rows = rows_of(lake.ensure("message_events"), _COLUMNS, where)
    if rows.num_rows > 4 * MOST_MESSAGES:
        raise UserError(f"{rows.num_rows} events are too many to run again", "name one --queue, or less time")
    return of_events(rows, since, length, place)


def of_events(rows: pa.Table, since: datetime, length: float, place: Wanted) -> Incident:
    """The incident that the events ``rows`` tell of, ``length`` seconds from ``since`` on, and what became of it."""
    events = rows.to_pylist()
    chosen = _chosen(events, place)
    messages: dict[str, _Message] = {}
    for event in events:
        if (event["broker"], event["queue"]) != chosen[:2]:
            continue
        if event["event_type"] != "enqueued" and (event["subscriber"] or "") != chosen[2]:
            continue
        message = messages.setdefault(event["message_id"], _Message(event["tenant"] or "unknown"))
        _note(message, event, since)
    there = {key: one for key, one in messages.items() if one.at is not None and one.at < length}
    if not there:
        raise UserError(f"no messages of {'/'.join(filter(None, chosen))} came in that time", "name another --queue")
    known: dict[str, list[float]] = defaultdict(list)
    for one in there.values():
        known[one.tenant] += one.work.values()
    everybody = [work for works in known.values() for work in works]
    if not everybody:
        raise UserError("the events do not say how long work took", "record `started` or `processing_seconds`, too")
    unknown = random.Random(0)
    arrivals = []
    for _, one in sorted(there.items()):
        work = tuple(one.work[attempt] for attempt in sorted(one.work))
        if not work:  # nobody got to it: as long as another's of its tenant
            work = (unknown.choice(known[one.tenant] or everybody),)
        arrivals.append(Arrival(max(0.0, one.at or 0.0), one.tenant, work))
    ages: dict[str, list[float]] = defaultdict(list)
    for one in there.values():
        if one.first is not None and one.first >= 0 and one.at is not None:
            ages[one.tenant].append(max(0.0, one.first - max(0.0, one.at)))
    done = sum(1 for one in there.values() if one.ended and 0 <= max(one.ended.values()) < length)
    arrivals.sort(key=lambda arrival: arrival.at)
    return Incident(chosen, length, tuple(arrivals), _servers(there.values(), length), ages, done)


def _chosen(events: Iterable[Mapping[str, Any]], place: Wanted) -> Place:
    counts: dict[Place, int] = defaultdict(int)
    for event in events:
        if event["event_type"] in _ENDS:
            there = (event["broker"], event["queue"], event["subscriber"] or "")
            if all(wanted in (None, name) for wanted, name in zip(place, there, strict=True)):
                counts[there] += 1
    if not counts:
        raise UserError("nothing was finished in that time", "name another time, or --queue")
    return max(counts, key=lambda there: (counts[there], there))


def _note(message: _Message, event: Mapping[str, Any], since: datetime) -> None:
    at = (event["occurred_at"] - since).total_seconds()
    if event["event_type"] == "enqueued":
        message.at = at
    elif message.at is None and event["enqueued_at"] is not None:
        message.at = (event["enqueued_at"] - since).total_seconds()
    attempt = event["attempt"] or 1
    if event["event_type"] in _BEGINS:
        # What was fetched ahead is begun when work on it begins.
        message.begun[attempt] = max(at, message.begun.get(attempt, at))
        message.first = at if message.first is None else min(message.first, at)
    elif event["event_type"] in _ENDS:
        message.ended[attempt] = at
    if event["processing_seconds"] is not None:
        message.work[attempt] = max(0.0, event["processing_seconds"])
    elif attempt in message.ended and attempt in message.begun:
        message.work.setdefault(attempt, max(0.0, message.ended[attempt] - message.begun[attempt]))


def _servers(messages: Iterable[_Message], length: float) -> tuple[tuple[float, int], ...]:
    """How many were worked on at once in each second in which messages waited all the time, where that changed.

    On average over the second: what consumers lose between two messages is lost in the replay, too.
    """
    seconds = int(length) + 1
    busy = [0.0] * seconds
    waited = [0] * (seconds + 1)  # differences: how many wait through the second
    for one in messages:
        for attempt, ended in one.ended.items():
            begun = ended - one.work.get(attempt, 0.0)
            for second in range(max(0, int(begun)), min(seconds, int(ended) + 1)):
                busy[second] += max(0.0, min(ended, second + 1) - max(begun, second))
        begins = [*one.begun.values(), *(end - one.work.get(number, 0.0) for number, end in one.ended.items())]
        first, last = int(max(0.0, one.at or 0.0)) + 1, int(min(max(0.0, min(begins, default=length)), length))
        if first < last:
            waited[first] += 1
            waited[last] -= 1
    busiest = max(1, round(max(busy)))
    found: list[tuple[float, int]] = []
    waiting = 0
    for second in range(seconds):
        waiting += waited[second]
        if waiting > 0:
            count = round(busy[second])
            if not found:
                found.append((0.0, count or busiest))
            if found[-1][1] != count:
                found.append((float(second), count))
    return tuple(found or [(0.0, busiest)])
