"""Conflation loses no count: what the client summarises is what the collectors would have made of the same events."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import records
from collectors.rollup import Rollup as CollectorsRollup
from lake import histogram, tables
from sojourn.client import partial
from sojourn.client.buffer import Buffer
from sojourn.client.events import Event, is_mark, judge
from sojourn.client.partial import EVENT_TYPES, bucket_index
from sojourn.client.summary import Rollup

BASE = 1_700_000_000_000_000
MANY = 10**9


@st.composite
def lives(draw: st.DrawFn) -> Event:
    """One event, of few queues and tenants and seconds, so that they meet."""
    kind = draw(st.sampled_from(EVENT_TYPES))
    return Event(
        kind,
        draw(st.sampled_from(("redis", "kafka"))),
        draw(st.sampled_from(("a", "b"))),
        draw(st.text(min_size=1, max_size=3)),
        draw(st.sampled_from((None, "s"))),
        draw(st.sampled_from((None, "t1", "t2"))),
        draw(st.sampled_from((None, 1, 2, 5))),
        draw(st.none() | st.integers(BASE - 5_000_000, BASE + 5_000_000)),
        BASE + draw(st.integers(0, 3_000_000)),
        draw(st.none() | st.floats(0, 1e6)) if kind in ("completed", "failed") else None,
        None,
        None,
        None,
    )


def as_collected(event: Event) -> records.Event:
    return records.Event(
        event.event_type,
        event.queue,
        event.subscriber,
        event.tenant,
        event.message_id,
        event.attempt,
        event.enqueued_at,
        event.occurred_at,
        event.processing_seconds,
        event.reason,
    )


def as_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Arrow gives it back, in the shape of the wire."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            plain[name] = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in value]
        else:
            plain[name] = value
    return plain


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("queue", "subscriber", "tenant", "bucket_start"))


@settings(deadline=None)
@given(st.lists(lives(), max_size=40))
def test_summaries_are_those_of_the_collectors(happened: list[Event]) -> None:
    for broker in ("redis", "kafka"):
        ours, theirs = Rollup(MANY), CollectorsRollup()
        for event in happened:
            if event.broker == broker:
                ours.add(event)
                theirs.add([as_collected(event)])
        schema = tables.EVENT_SUMMARIES.schema
        names = [name for name in schema.names if name not in ("source", "ingested_at", "ingest_date")]
        table = theirs.table(broker, "x").select(names)
        for name in ("bucket_start", "newest_occurred_at"):
            table = table.set_column(names.index(name), name, table.column(name).cast(pa.int64()))
        expected = sorted(map(as_row, table.to_pylist()), key=key_of)
        rows, count = ours.take(MANY)
        assert sorted(map(as_row, rows), key=key_of) == expected
        assert count == sum(event.broker == broker for event in happened)
        assert (len(ours), ours.events) == (0, 0)


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All that summing rows gives: what no coarsening may change."""
    sums: Counter[str] = Counter()
    floats: dict[str, list[float]] = {}
    pairs: dict[str, Counter[Any]] = {}
    largest: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list):
                for index, count in value:
                    pairs.setdefault(name, Counter())[index] += count
            elif name.endswith("_sum"):
                floats.setdefault(name, []).append(value or 0.0)
            elif name.endswith(("_max", "newest_occurred_at")):
                if value is not None:
                    largest[name] = max(value, largest.get(name, value))
            elif isinstance(value, int) and name not in ("bucket_start", "bucket_seconds"):
                sums[name] += value
    backlog = pairs.pop("backlog_cells", Counter())
    return {
        "sums": dict(sums),
        "floats": {name: math.fsum(values) for name, values in floats.items()},
        "histograms": {name: +counts for name, counts in pairs.items() if +counts},
        "largest": largest,
        "backlog": backlog.total(),
    }


@settings(deadline=None)
@given(st.lists(lives(), max_size=60), st.integers(1, 200))
def test_however_far_it_coarsens_no_count_sum_extremum_or_histogram_changes(happened: list[Event], bound: int) -> None:
    exact, bounded = Rollup(MANY), Rollup(bound)
    for event in happened:
        exact.add(event)
        bounded.add(event)
    kept, everything = bounded.take(MANY), exact.take(MANY)
    assert kept[1] == everything[1] == len(happened)
    found, wanted = totals(kept[0]), totals(everything[0])
    for name, value in wanted.pop("floats").items():
        assert found["floats"][name] == pytest.approx(value, rel=1e-12)
    found.pop("floats", None)
    assert found == wanted


def received(queue: str, tenant: str, moment: int) -> Event:
    """A first attempt, a millisecond after the message was enqueued."""
    return Event("received", "redis", queue, "m", None, tenant, 1, moment - 1_000, moment, None, None, None, None)


def test_a_rollup_keeps_its_bound_by_giving_up_seconds_then_tenants_then_queues() -> None:
    seen = {}
    for seconds, tenants, queues in ((4096, 1, 1), (4, 2_000, 1), (4, 2, 2_000)):
        rollup = Rollup(1_000)
        for number in range(8_000):
            queue, tenant = f"q{number % queues}", f"t{number % tenants}"
            rollup.add(received(queue, tenant, BASE + number % seconds * 1_000_000))
            assert number % 97 or rollup.entries <= 1_000 + 6
        seen[seconds, tenants, queues] = rollup.level
        rows, _ = rollup.take(MANY)
        assert sum(row["received"] for row in rows) == 8_000
        assert sum(row["first_attempt_age_sum"] for row in rows) == pytest.approx(8.0)
        if queues == 1:
            assert {row["queue"] for row in rows} == {"q0"}
        if tenants == 1:
            assert {row["tenant"] for row in rows} == {"t0"}
    assert 1 <= seen[4096, 1, 1] <= 4
    assert seen[4, 2_000, 1] == 5
    assert seen[4, 2, 2_000] == 6


@settings(deadline=None)
@given(st.floats(0, 1e12))
def test_histogram_buckets_are_those_of_the_lake(seconds: float) -> None:
    assert bucket_index(seconds) == histogram.bucket_index(seconds)


@settings(deadline=None)
@given(lives(), st.sampled_from((None, True, "2", -1, 0, 1, 2, 2**31)), st.sampled_from((None, "", 7)))
def test_a_mark_is_what_the_collectors_will_call_a_mark(event: Event, attempt: object, subscriber: object) -> None:
    raw = (*event[:4], subscriber, event.tenant, attempt, None, BASE, None, None, None, None)
    assert is_mark(raw) == records.is_mark(as_collected(judge(raw, "redis")[0]))


@pytest.mark.parametrize("attempt", [-(2**31), -1, 0])
def test_an_attempt_below_1_is_of_no_use_and_costs_the_application_nothing(attempt: int) -> None:
    event, sound = judge(("received", None, "q", "m", None, None, attempt, None, BASE, None, None, None, None), "redis")
    assert (event.attempt, event.message_id, sound) == (None, "m", False)


def test_words_are_those_of_the_lake() -> None:
    assert EVENT_TYPES == tables.EVENT_TYPES
    assert frozenset(tables.FINISHING_TYPES) == partial.FINISHING_TYPES
    assert tables.AGE_KINDS == partial.AGE_KINDS


@settings(deadline=None)
@given(st.lists(lives(), max_size=400))
def test_a_buffer_tells_of_every_event_once_single_or_summarised(happened: list[Event]) -> None:
    buffer = Buffer(32, "redis")
    for event in happened:
        buffer.events.append(
            (*event[:7], event.enqueued_at and event.enqueued_at * 1000, event.occurred_at * 1000, *event[9:])
        )
        if len(buffer.events) > buffer.capacity:
            buffer.full()
    assert len(buffer) == len(happened)
    single = [buffer.judge(raw) for raw in buffer.take(MANY)]
    rows, summarised = buffer.take_summaries(MANY)
    assert len(single) + summarised == len(happened)
    assert buffer.conflated == summarised
    again = Rollup(MANY)
    for event in single:
        again.add(event)
    whole = Rollup(MANY)
    for event in happened:
        whole.add(event)
    ours, theirs = totals(rows + again.take(MANY)[0]), totals(whole.take(MANY)[0])
    assert ours.pop("floats").keys() == theirs.pop("floats").keys()
    assert ours == theirs
