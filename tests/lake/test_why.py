"""Why messages wait: the parts add up, and the largest is what was really done to the queue."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lake.reader import Reader
from lake.why import Cause, Rise, explain, tell
from lake.why.law import Bin
from tests.dashboard.scene import NOISY, write_story

SECONDS, TURNED, STEP = 600, 400, 5
#: 150 messages a second could be taken.
USUAL = {"arrivals": 100.0, "slots": 30, "service": 0.2, "retried": 0.0}
#: By cause what the queue is like once things have turned.
TURNS: dict[Cause, dict[str, float]] = {
    Cause.ARRIVALS: {"arrivals": 260.0},
    Cause.SLOTS: {"slots": 12},
    Cause.SERVICE_TIME: {"service": 0.6},
    Cause.RETRIES: {"retried": 0.9},
}


def queue(turned: Mapping[str, float]) -> tuple[list[Bin], int]:
    """A first-in-first-out queue for ten minutes, ``turned`` after 400 s: its bins, and what waits at the end.

    A message that is to be retried takes its slot a second time, at once. Slots that are no more end with their work.
    """
    chance = random.Random(7)
    sums: list[dict[str, float]] = [{} for _ in range(SECONDS // STEP)]

    def like(at: float) -> Mapping[str, float]:
        return {**USUAL, **turned} if at >= TURNED else USUAL

    def note(at: float, **values: float) -> None:
        if at < SECONDS:
            into = sums[int(at / STEP)]
            for name, value in values.items():
                into[name] = into.get(name, 0.0) + value

    free = [0.0] * int(USUAL["slots"])
    at, waiting = 0.0, 0
    while (at := at + chance.expovariate(like(at)["arrivals"])) < SECONDS:
        note(at, arrivals=1)
        begins = max(at, heapq.heappop(free))
        while len(free) >= like(begins)["slots"]:
            begins = max(at, heapq.heappop(free))
        ends = begins
        note(begins, starts=1, waited=1, waited_seconds=begins - at)
        for attempt in range(1 + (chance.random() < like(begins)["retried"])):
            note(ends, retries=attempt)
            took = like(begins)["service"] * chance.uniform(0.5, 1.5)
            ends += took
            note(ends, ended=1, busy_seconds=took)
        heapq.heappush(free, ends)
        waiting += begins >= SECONDS
    return [Bin((place + 1) * STEP, STEP, **values) for place, values in enumerate(sums)], waiting


def seconds(rise: Rise) -> dict[Cause, float]:
    return {part.cause: part.seconds for part in rise.parts}


@pytest.mark.parametrize("cause", TURNS)
def test_the_largest_part_is_what_was_done_to_the_queue(cause: Cause) -> None:
    rise = explain(*queue(TURNS[cause]))
    assert rise is not None and rise.wait > 10 * rise.wait_before
    assert abs(rise.begun - TURNED) <= 4 * STEP
    parts = seconds(rise)
    assert sum(parts.values()) == pytest.approx(rise.seconds)
    assert max(parts, key=lambda each: parts[each]) is cause
    assert abs(parts[Cause.UNKNOWN]) < 0.1 * rise.seconds


@pytest.mark.parametrize("cause", [Cause.SLOTS, Cause.SERVICE_TIME, Cause.RETRIES])
def test_who_sends_as_always_is_no_cause(cause: Cause) -> None:
    """100 messages a second of the 150 that could be taken: they are not to blame for the capacity that was lost."""
    rise = explain(*queue(TURNS[cause]))
    assert rise is not None and seconds(rise)[Cause.ARRIVALS] < 0


def test_where_nothing_turns_there_is_nothing_to_explain() -> None:
    rise = explain(*queue({}))
    assert rise is None or rise.parts == ()


def test_what_stands_still_has_no_pace_to_explain_by() -> None:
    bins, waiting = queue({})
    still = [*bins[:-4], *(Bin(each.end, STEP, arrivals=each.arrivals) for each in bins[-4:])]
    assert explain(still, waiting + 2000) is None


def test_too_little_says_nothing() -> None:
    assert explain([], 5) is None
    assert explain([Bin(5, 5, arrivals=3, starts=3, waited=3)] * 3, 5) is None


def test_without_processing_times_only_arrivals_and_the_rest_are_told_apart() -> None:
    bins, waiting = queue(TURNS[Cause.ARRIVALS])
    rise = explain([replace(each, ended=0, busy_seconds=0) for each in bins], waiting)
    assert rise is not None and seconds(rise).keys() == {Cause.ARRIVALS, Cause.UNKNOWN}
    assert sum(seconds(rise).values()) == pytest.approx(rise.seconds)


def test_a_lake_tells_why_and_who(tmp_path: Path) -> None:
    write_story(tmp_path, end=datetime(2026, 3, 1, 12, tzinfo=UTC))
    reader = Reader(tmp_path)

    def query(sql: str) -> list[dict[str, Any]]:
        return reader.query(sql).to_pylist()

    told = tell(query, "nats", "orders")
    assert told is not None and told.rise is not None and told.reason == ""
    assert max(told.rise.parts, key=lambda part: part.seconds).cause is Cause.ARRIVALS
    assert told.tenants[0].tenant == NOISY and told.tenants[0].since > 5 * told.tenants[0].before
    assert told.sql.keys() == {"ready", "limits", "flows", "tenants"}
    quiet = tell(query, "nats", "emails")
    assert quiet is not None and (quiet.rise is None or quiet.rise.parts == ())
    sampled = tell(query, "nats", "orders.dlq")
    assert sampled is not None and sampled.rise is None and "a tap" in sampled.reason
    assert tell(query, "nats", "it's not there \\") is None
