"""The buffer conflates exactly; the sink writes exactly once, whatever fails in between."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collectors.buffer import STEP_BITS, Buffer, position_of
from collectors.nats.memory import state_table
from collectors.records import Event, Rejected, is_mark
from collectors.rollup import Rollup
from collectors.sink import Sink
from lake.errors import UserError
from lake.histogram import bucket_index
from lake.store import Lake

SECOND = 1_000_000
START = 1_790_000_000 * SECOND


def no_state() -> pa.Table:
    return state_table([])


def some_events(number: int, seed: int = 1) -> list[Event]:
    """Lives of every kind, with skew, retries and unknown enqueue times."""
    chance = random.Random(seed)
    events = []
    for index in range(number):
        at = START + chance.randrange(5 * SECOND)
        known = at if chance.random() < 0.9 else None
        tenant = chance.choice(["a", "b", None])
        message = str(index)
        events.append(Event("enqueued", "q", None, tenant, message, None, known, at))
        at += chance.randrange(-SECOND // 10, 2 * SECOND)
        events.append(Event("received", "q", None, tenant, message, 1, known, at))
        if chance.random() < 0.2:
            events.append(Event("failed", "q", None, tenant, message, 1, known, at + 5, 0.000005))
            at += SECOND
            events.append(Event("received", "q", None, tenant, message, 2, known, at))
            events.append(Event("dead_lettered", "q", None, tenant, message, 2, known, at + 9, None, "no"))
        elif chance.random() < 0.9:
            took = chance.random()
            events.append(Event("completed", "q", None, tenant, message, 1, known, at + int(took * SECOND), took))
    return events


def brute_force(events: list[Event], tenant: str, second: int) -> dict[str, Any]:
    """A summary row by the book: the contract's definitions, one comprehension each."""
    of = [e for e in events if (e.tenant or "unknown") == tenant and e.occurred_at // SECOND == second]
    first = [
        (e.occurred_at - e.enqueued_at) / SECOND
        for e in of
        if e.event_type == "received" and e.attempt == 1 and e.enqueued_at is not None
    ]
    processing = [e.processing_seconds for e in of if e.processing_seconds is not None]
    backlog: Counter[int | None] = Counter()
    for e in of:
        at = None if e.enqueued_at is None else e.enqueued_at // SECOND
        if e.event_type == "enqueued":
            backlog[second if at is None else at] += 1
        if e.event_type in ("completed", "dead_lettered"):
            backlog[at] -= 1
    return {
        "received": sum(e.event_type == "received" for e in of),
        "started": sum(e.event_type == "received" and e.attempt in (1, None) for e in of),
        "retries": sum(e.event_type == "received" and (e.attempt or 0) > 1 for e in of),
        "first_attempt_age_count": len(first),
        "first_attempt_age_skewed": sum(age < 0 for age in first),
        "first_attempt_age_sum": pytest.approx(sum(max(0.0, age) for age in first)) if first else None,
        "first_attempt_age_histogram": dict(Counter(bucket_index(max(0.0, age)) for age in first)),
        "processing_count": len(processing),
        "processing_sum": pytest.approx(sum(processing)) if processing else None,
        "backlog_cells": {second: net for second, net in backlog.items() if net},
    }


def test_a_summary_says_what_its_events_say() -> None:
    events = some_events(400)
    rollup = Rollup()
    rollup.add(events[:500])
    rollup.add(events[500:])
    rows = rollup.table("mq", "tap").to_pylist()
    assert len(rows) > 10
    for row in rows:
        second = int(row["bucket_start"].timestamp())
        found = dict(row)
        found["first_attempt_age_histogram"] = {
            bucket["index"]: bucket["count"] for bucket in row["first_attempt_age_histogram"] or ()
        }
        found["backlog_cells"] = {cell["second"]: cell["net"] for cell in row["backlog_cells"] or ()}
        expected = brute_force(events, row["tenant"], second)
        assert {name: found[name] for name in expected} == expected


def test_a_full_buffer_keeps_marks_and_rolls_the_rest_up() -> None:
    events = some_events(200)
    buffer = Buffer(capacity=300, version=0)
    for start in range(0, len(events), 50):
        buffer.add(events[start : start + 50], [], start + 50)
    batch = buffer.seal(no_state)
    assert batch is not None
    assert batch.rollup is not None
    singly = [event for event in events if is_mark(event)]
    assert set(singly) <= set(batch.events)
    assert batch.rollup.events == buffer.conflated
    assert batch.rollup.events + len(batch.events) == len(events)
    assert len(batch.events) < 300


def test_a_buffer_full_of_marks_asks_for_no_more_until_a_batch_has_left() -> None:
    buffer = Buffer(capacity=10, version=0)
    buffer.add([Event("failed", "q", None, "a", str(index), 1, START, START) for index in range(12)], [], 12)
    assert buffer.full
    assert buffer.seal(no_state) is not None
    assert not buffer.full


def test_commits_at_one_position_are_told_apart() -> None:
    buffer = Buffer(capacity=10, version=5 << STEP_BITS)
    buffer.add(some_events(1)[:1], [], 7)
    first = buffer.seal(no_state)
    buffer.add(some_events(1)[1:2], [], 7)
    second = buffer.seal(no_state)
    assert first is not None
    assert second is not None
    assert first.version < second.version
    assert position_of(first.version) == position_of(second.version) == 7
    assert buffer.seal(no_state) is None


class _Failing(Lake):
    """A lake whose append to one table fails, before or after it was done."""

    def __init__(self, root: Path, table: str, *, after: bool) -> None:
        super().__init__(root)
        self._table, self._after = table, after

    def append(self, name: str, rows: pa.Table, **numbered: Any) -> bool:
        if name == self._table and not self._after:
            raise UserError("no space left on the disk", "free some")
        done = super().append(name, rows, **numbered)
        if name == self._table:
            raise UserError("no space left on the disk", "free some")
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("table", ["rejected_records", "event_summaries", "message_events"])
def test_whatever_append_fails_or_is_the_last_before_a_crash_all_is_written_once(
    lake: Lake, table: str, after: bool
) -> None:
    events = some_events(100)
    buffer = Buffer(capacity=200, version=0)
    bad = [Rejected(3, START, "bad", "x" * 100_000)]
    buffer.add(events, bad, 90)
    batch = buffer.seal(no_state)
    assert batch is not None
    with pytest.raises(UserError):
        _sink(_Failing(lake.root, table, after=after)).write(batch)
    again = _sink(Lake(lake.root))  # another process, after the crash
    version = again.recover()
    if version is None:  # nothing counts: the source is read again, perhaps in other portions
        buffer = Buffer(capacity=200, version=0)
        for part, position in ((events[:50], 40), (events[50:], 90)):
            buffer.add(part, bad if position == 40 else [], position)
            repeated = buffer.seal(no_state)
            assert repeated is not None
            again.write(repeated)
        version = again.recover()
    else:
        again.write(batch)
    assert version is not None
    assert position_of(version) == 90
    rows = lake.read("message_events").to_pylist()
    assert len({row["event_id"] for row in rows}) == len(rows)
    summaries = lake.read("event_summaries").to_pylist()
    for kind, number in Counter(event.event_type for event in events).items():
        assert sum(row[kind] for row in summaries) + sum(row["event_type"] == kind for row in rows) == number
    (rejected,) = lake.read("rejected_records").to_pylist()
    assert len(rejected["raw"]) == 64 * 1024


def test_repeating_a_batch_writes_nothing_twice(lake: Lake) -> None:
    buffer = Buffer(capacity=1000, version=0)
    buffer.add(some_events(10), [], 20)
    batch = buffer.seal(no_state)
    assert batch is not None
    sink = _sink(lake)
    sink.write(batch)
    sink.write(batch)
    assert lake.read("message_events").num_rows == len(batch.events)


def _sink(lake: Lake) -> Sink:
    return Sink(lake, broker="mq", source="tap", app_id="tap@1")
