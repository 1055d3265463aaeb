"""What a limit of ours has to do with a wait in the queue is told apart from the tenants' own doing, and from slots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dashboard.services.why import lines, notes
from lake.reader import Reader
from lake.store import Lake
from lake.tables import TABLES
from lake.why import Cause, Rise, Told, explain, tell
from lake.why.held import Hold, with_holds
from lake.why.law import Bin
from tests.dashboard.scene import BROKER, actions_of
from tests.support.finishing import finish

SECONDS, TURNED, STEP, SLOTS, SERVICE = 300, 160, 5, 30, 0.2
HELD, OTHERS = "acme", "all others"
#: What the limit lets the consumers of the held tenant begin, messages/s at an instant.
Lets = Callable[[float], float]


def queue(
    rates: Mapping[str, float], lets: Lets, slots: int = SLOTS
) -> tuple[Rise | None, list[Bin], list[Bin], float]:
    """Two tenants on thirty slots, 150/s: 50/s each, since :data:`TURNED` at ``rates``, on ``slots``, and one of them
    read no faster than ``lets`` says. The whole queue's rise, its bins, those of the held one, what waits of others.

    The oldest that may begin does.
    """
    chance = random.Random(3)
    sums: dict[str, list[dict[str, float]]] = {name: [{} for _ in range(SECONDS // STEP)] for name in (HELD, OTHERS)}

    def note(name: str, at: float, **values: float) -> None:
        if at < SECONDS:
            into = sums[name][int(at / STEP)]
            for key, value in values.items():
                into[key] = into.get(key, 0.0) + value

    waiting: dict[str, list[float]] = {HELD: [], OTHERS: []}
    comes = {name: chance.expovariate(50.0) for name in waiting}
    ends: list[float] = []
    tokens, tick = 0.0, 0.02
    for at in (tick * step for step in range(int(SECONDS / tick))):
        for name in waiting:
            while comes[name] < at + tick:
                waiting[name].append(comes[name])
                note(name, comes[name], arrivals=1)
                comes[name] += chance.expovariate(rates.get(name, 50.0) if comes[name] >= TURNED else 50.0)
        tokens = min(5.0, tokens + lets(at) * tick)
        ends = [each for each in ends if each > at]
        while len(ends) < (slots if at >= TURNED else SLOTS):
            ready = [(each[0], name) for name, each in waiting.items() if each and (name == OTHERS or tokens >= 1)]
            if not ready:
                break
            came, name = min(ready)
            waiting[name].pop(0)
            tokens -= name == HELD
            took = SERVICE * chance.uniform(0.5, 1.5)
            ends.append(at + took)
            note(name, at, starts=1, waited=1, waited_seconds=at + tick - came)
            note(name, at + took, ended=1, busy_seconds=took)
    bins = {
        name: [Bin((place + 1) * STEP, STEP, **values) for place, values in enumerate(each)]
        for name, each in sums.items()
    }
    whole = [
        Bin(a.end, STEP, *(getattr(a, key) + getattr(b, key) for key in Bin.__slots__[2:]))
        for a, b in zip(bins[HELD], bins[OTHERS], strict=True)
    ]
    return explain(whole, sum(map(len, waiting.values()))), whole, bins[HELD], len(waiting[OTHERS])


def told(
    rates: Mapping[str, float], lets: Lets, slots: int = SLOTS, since: float = TURNED, until: float = SECONDS
) -> dict[Cause, float]:
    """By cause, the seconds of the rise, which they add up to."""
    rise, whole, held, ready = queue(rates, lets, slots)
    assert rise is not None and rise.parts
    found = with_holds(rise, whole, held, ready, [Hold(HELD, "pause", since, until, in_queue=True)])
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds)
    assert found.seconds == rise.seconds
    return {part.cause: part.seconds for part in found.parts}


def slowed_to(rate: float) -> Lets:
    return lambda at: rate if at >= TURNED else 1e9


def test_who_sends_as_always_and_is_read_more_slowly_waits_for_us() -> None:
    parts = told({}, slowed_to(15.0))
    whole = sum(parts.values())
    assert parts[Cause.THROTTLED] > 0.9 * whole and abs(parts[Cause.UNKNOWN]) < 0.1 * whole


def test_what_a_pause_left_is_told_when_it_is_read_at_last() -> None:
    parts = told({}, lambda at: 0.0 if TURNED <= at < TURNED + 120 else 1e9, until=TURNED + 120)
    whole = sum(parts.values())
    assert parts[Cause.THROTTLED] > 0.7 * whole and abs(parts[Cause.UNKNOWN]) < 0.3 * whole


def test_a_flood_beyond_all_slots_is_the_tenants_own_and_what_idle_slots_could_have_taken_is_ours() -> None:
    parts = told({HELD: 250.0}, lambda at: 20.0 if at >= TURNED + 20 else 1e9, since=TURNED + 20)
    whole = sum(parts.values())
    ours = 80 * 120 / (230 * 120 + 150 * 20) * whole  # of 150/s that could be begun, 70 are for two minutes
    assert parts[Cause.THROTTLED] == pytest.approx(ours, rel=0.15)
    assert parts[Cause.ARRIVALS] == pytest.approx(whole - ours, rel=0.15)


def test_slots_that_are_missing_for_everybody_are_not_ours() -> None:
    parts = told({}, slowed_to(45.0), slots=12)
    assert parts[Cause.SLOTS] > 0.7 * sum(parts.values()) > 5 * parts.get(Cause.THROTTLED, 0.0)


def test_who_is_held_and_keeps_up_all_the_same_is_no_cause() -> None:
    parts = told({OTHERS: 160.0}, slowed_to(80.0))
    assert parts.get(Cause.THROTTLED, 0.0) < 0.05 * sum(parts.values()) < parts[Cause.ARRIVALS]


def told_alone(rates: Mapping[str, float], lets: Lets, holds: list[Hold]) -> dict[Cause, float]:
    """The same of a consumer that reads nobody but who is held."""
    _, _, alone, _ = queue(rates, lets)
    rise = explain(alone, sum(each.arrivals - each.starts for each in alone))
    assert rise is not None and rise.parts
    found = with_holds(rise, alone, alone, 0.0, holds)
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds) and found.seconds == rise.seconds
    return {part.cause: part.seconds for part in found.parts}


def test_slots_of_a_consumer_of_the_held_alone_that_idle_while_it_is_held_are_ours() -> None:
    limited = Hold(HELD, "bound", TURNED, SECONDS, in_queue=True)
    parts = told_alone({}, slowed_to(15.0), [limited])
    whole = sum(parts.values())
    assert parts[Cause.THROTTLED] > 0.8 * whole and abs(parts[Cause.SLOTS]) < 0.05 * whole
    paused = told_alone({}, lambda at: 0.0 if TURNED <= at < TURNED + 120 else 1e9, [replace(limited, ended=280.0)])
    assert paused[Cause.THROTTLED] > 0.7 * sum(paused.values())
    half = told_alone({}, slowed_to(15.0), [replace(limited, begun=(TURNED + SECONDS) / 2)])
    assert half[Cause.SLOTS] > 0.3 * whole, "they idled before it was held, too"


def test_what_a_consumer_of_the_held_alone_gets_beyond_all_its_slots_is_the_tenants_own() -> None:
    parts = told_alone({HELD: 250.0}, lambda at: 1e9, [Hold(HELD, "bound", TURNED, SECONDS, in_queue=True)])
    assert parts.get(Cause.THROTTLED, 0.0) < 0.1 * sum(parts.values()) < parts[Cause.ARRIVALS]


END = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write(root: Path, lets: Lets, actions: list[dict[str, Any]]) -> Told:
    """What is told of a lake with :func:`queue` and a journal with ``actions``, each beside what all have in common."""
    _, whole, held, _ = queue({}, lets)
    lake = Lake(root)
    lake.create()
    partials = []
    for all_, theirs in zip(whole, held, strict=True):
        flows = {
            HELD: asdict(theirs),
            OTHERS: {key: value - asdict(theirs)[key] for key, value in asdict(all_).items()},
        }
        partials += [
            partial(name, END - timedelta(seconds=SECONDS - all_.end + STEP), sums) for name, sums in flows.items()
        ]
    lake.append("partials", pa.Table.from_pylist(partials, schema=TABLES["partials"].schema))
    finish(root)
    common = actions_of(END - timedelta(seconds=SECONDS - TURNED), END)[0] | {"tenant": HELD, "actuator": "hold"}
    rows = [common | {"idempotency_key": str(number)} | one for number, one in enumerate(actions)]
    lake.append("actions", pa.Table.from_pylist(rows, schema=TABLES["actions"].schema))
    reader = Reader(root)
    found = tell(lambda sql: reader.query(sql).to_pylist(), BROKER, "orders")
    assert found is not None and found.rise is not None and found.rise.parts
    assert sum(part.seconds for part in found.rise.parts) == pytest.approx(found.rise.seconds)
    return found


def partial(tenant: str, start: datetime, sums: Mapping[str, float]) -> dict[str, Any]:
    """Five seconds of a tenant."""
    zeros = dict.fromkeys(field.name for field in TABLES["partials"].schema if pa.types.is_integer(field.type))
    arrivals, starts, ended = (round(sums[key]) for key in ("arrivals", "starts", "ended"))
    net = int(start.timestamp()), arrivals - ended
    return dict.fromkeys(zeros, 0) | {
        "broker": BROKER, "queue": "orders", "subscriber": "", "tenant": tenant, "bucket_start": start,
        "bucket_seconds": STEP, "newest_occurred_at": start + timedelta(seconds=STEP - 0.1), "enqueued": arrivals,
        "started": starts, "received": starts, "completed": ended, "first_attempt_age_count": starts,
        "first_attempt_age_sum": sums["waited_seconds"], "first_attempt_age_max": 1.0, "processing_count": ended,
        "processing_sum": sums["busy_seconds"], "processing_max": 1.0, "first_attempt_age_histogram": [],
        "processing_histogram": [], "backlog_cells": [{"second": net[0], "net": net[1]}],
    }  # fmt: skip


CONSUMERS = {"inputs": [("slows", "consumers")]}


def test_a_lake_tells_what_its_journal_has_of_a_limit_that_slows_consumers_down(tmp_path: Path) -> None:
    told = write(tmp_path, slowed_to(15.0), [CONSUMERS])
    assert told.rise is not None
    parts = {part.cause: part for part in told.rise.parts}
    assert parts[Cause.THROTTLED].seconds > 0.9 * told.rise.seconds
    [hold] = told.holds
    assert hold.in_queue and hold.tenant == HELD and hold.actuator == "hold"
    line = next(line for line in lines(told) if line.cause == "throttled by us")
    assert line.main and f"consumers of {HELD} slowed down by hold" in line.because
    assert Reader(tmp_path).query(line.sql).num_rows > 50 and line.sql is told.sql["held"] and notes(told) != []
    assert all("no part" not in note and "cannot be told" not in note for note in notes(told))


@pytest.mark.parametrize(
    ("journal", "said"),
    [
        ([{}], f"{HELD} is limited to 15/s: what limits hold back waits before the queue and has no part here."),
        ([CONSUMERS | {"dry_run": True, "outcome": "dry_run"}], None),
        ([CONSUMERS | {"outcome": "failed"}], None),
        ([CONSUMERS | {"queue": "emails"}], None),
        ([CONSUMERS | {"broker": "kafka"}], None),
        ([CONSUMERS, {"at": END - timedelta(seconds=SECONDS - 20), "decision": "release", "after": None}], None),
    ],
    ids=["producers", "dry run", "failed", "another queue", "another broker", "over"],
)
def test_what_slows_nobody_down_here_has_no_part(
    tmp_path: Path, journal: list[dict[str, Any]], said: str | None
) -> None:
    if len(journal) == 2:
        journal[0] = journal[0] | {"at": END - timedelta(seconds=SECONDS - 10)}
    told = write(tmp_path, slowed_to(15.0), journal)
    assert told.rise is not None and Cause.THROTTLED not in {part.cause for part in told.rise.parts}
    assert [note for note in notes(told) if "limit" in note or "slowed" in note] == ([said] if said else [])
