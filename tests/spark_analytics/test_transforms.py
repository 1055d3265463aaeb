"""Events → partials and marks: cases a person can count, then any log against a plain computation."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.histogram import BUCKETS_PER_OCTAVE, ZERO_INDEX, bucket_index
from lake.tables import AGE_KINDS, EVENT_TYPES, MARKS, PARTIALS
from spark_analytics import transforms
from spark_analytics.transforms.events import bucket_indices
from tests.reference.generate import logs
from tests.reference.partials import marks_of, partials_of
from tests.reference.reference import without_duplicates
from tests.spark_analytics.events import Row, after, bronze, event
from tests.support.deep import examples

Computed = tuple[list[Row], list[Row]]

HISTOGRAMS = (*(f"{kind}_age_histogram" for kind in AGE_KINDS), "processing_histogram")
SUMS = ("started", "retries", "finished_unreceived", "processing_count", "processing_sum", *EVENT_TYPES)
AGE_SUMS = tuple(f"{kind}_age_{what}" for kind in AGE_KINDS for what in ("count", "sum", "skewed"))
MAXIMA = ("newest_occurred_at", "processing_max", *(f"{kind}_age_max" for kind in AGE_KINDS))


def compute(events: Sequence[Row]) -> Computed:
    """Partials and marks of one micro-batch."""
    batch = transforms.Events(bronze(events).select(list(transforms.EVENT_COLUMNS)))
    partials, marks = transforms.partials(batch), transforms.marks(batch)
    assert partials.schema.equals(PARTIALS.schema) and marks.schema.equals(MARKS.schema)
    return partials.to_pylist(), marks.to_pylist()


def merged(partials: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Rows added up by key: what a reader of ``partials`` makes of them."""
    sums: dict[tuple[Any, ...], Row] = {}
    for row in partials:
        key = (row["broker"], row["queue"], row["subscriber"], row["tenant"], row["bucket_start"])
        into = sums.setdefault(key, {"cells": Counter(), **{name: Counter() for name in HISTOGRAMS}})
        for name in (*SUMS, *AGE_SUMS):
            into[name] = into.get(name, 0) + (row[name] or 0)
        for name in MAXIMA:
            into[name] = max((value for value in (into.get(name), row[name]) if value is not None), default=None)
        for name in HISTOGRAMS:
            for cell in row[name] or ():
                into[name][cell["index"]] += cell["count"]
        for cell in row["backlog_cells"] or ():
            into["cells"][cell["second"]] += cell["net"]
    for row in sums.values():
        row["cells"] = {second: net for second, net in row["cells"].items() if net}
    return sums


def assert_same_partials(left: Iterable[Row], right: Iterable[Row]) -> None:
    mine, theirs = merged(left), merged(right)
    assert mine.keys() == theirs.keys()
    for key, row in mine.items():
        for name, value in row.items():
            expected = theirs[key][name]
            assert value == (pytest.approx(expected) if isinstance(expected, float) else expected), (key, name)


def counted(marks: Iterable[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in marks)


def test_an_arrival_joins_the_backlog_of_its_enqueue_second() -> None:
    [row], marks = compute([event("enqueued", 5.4, enqueued=3.9)])
    assert (row["enqueued"], row["bucket_start"], row["newest_occurred_at"]) == (1, after(5), after(5.4))
    assert row["backlog_cells"] == [{"second": int(after(3).timestamp()), "net": 1}]
    assert marks == []


def test_names_that_nobody_gave_become_the_empty_subscriber_and_the_unknown_tenant() -> None:
    [row], _ = compute([event("enqueued", tenant=None, subscriber=None)])
    assert (row["subscriber"], row["tenant"]) == ("", "unknown")


def test_first_attempt_retry_and_completion_ages_stand_apart() -> None:
    rows, marks = compute(
        [
            event("received", 1.0, attempt=1),
            event("received", 1.5, attempt=2),
            event("completed", 1.75, attempt=2, processing_seconds=0.25),
        ]
    )
    [row] = rows
    assert [row[f"{kind}_age_sum"] for kind in AGE_KINDS] == [1.0, 1.5, 1.75]
    assert row["first_attempt_age_histogram"] == [{"index": bucket_index(1.0), "count": 1}]
    assert (row["started"], row["retries"], row["processing_sum"]) == (1, 1, 0.25)
    assert [(mark["event_type"], mark["attempt"], mark["age_seconds"]) for mark in marks] == [
        ("received", 2, 1.5),
        ("completed", 2, None),
    ]


def test_an_age_below_zero_is_skewed_and_counts_as_zero() -> None:
    [row], _ = compute([event("received", 1.0, enqueued=1.2, attempt=1)])
    assert (row["first_attempt_age_count"], row["first_attempt_age_skewed"]) == (1, 1)
    assert row["first_attempt_age_sum"] == 0.0
    assert row["first_attempt_age_histogram"] == [{"index": ZERO_INDEX, "count": 1}]


@pytest.mark.parametrize(
    ("event_type", "attempt", "kind"),
    [("received", 1, "first_attempt"), ("received", 2, "retry"), ("completed", 1, "completion")],
)
def test_an_age_that_nobody_knows_is_no_age_of_zero(event_type: str, attempt: int, kind: str) -> None:
    [row], marks = compute([event(event_type, 1.0, enqueued=None, attempt=attempt)])
    assert (row[f"{kind}_age_count"], row[f"{kind}_age_sum"], row[f"{kind}_age_skewed"]) == (0, None, 0)
    assert not row[f"{kind}_age_histogram"]
    assert all((mark["age_seconds"], mark["age_index"], mark["age_skewed"]) == (None, None, None) for mark in marks)


def test_a_leaver_whose_enqueue_time_nobody_knows_takes_from_the_unknown_cell() -> None:
    [row], marks = compute([event("expired", 1.0, enqueued=None, attempt=0)])
    assert row["backlog_cells"] == [{"second": None, "net": -1}]
    assert (row["finished_unreceived"], len(marks)) == (1, 1)


def test_what_comes_and_goes_within_a_batch_leaves_no_cell() -> None:
    [row], _ = compute([event("enqueued", 0.1), event("completed", 0.9, attempt=1)])
    assert not row["backlog_cells"]


def test_a_first_attempt_is_remembered_only_where_subscribers_have_names() -> None:
    _, marks = compute(
        [event("received", 1.0, attempt=1), event("received", 2.0, attempt=1, subscriber="audit", message_id="m2")]
    )
    assert [(mark["message_id"], mark["age_index"], mark["age_skewed"]) for mark in marks] == [
        ("m2", bucket_index(2.0), False)
    ]


def test_a_processing_time_that_is_no_number_poisons_no_sum() -> None:
    [row], _ = compute(
        [
            event("completed", 0.1, attempt=1, processing_seconds=math.nan),
            event("completed", 0.2, attempt=1, processing_seconds=math.inf),
            event("completed", 0.3, attempt=1, processing_seconds=0.5),
        ]
    )
    assert (row["completed"], row["processing_count"], row["processing_sum"]) == (3, 1, 0.5)


def test_no_events_make_no_rows() -> None:
    assert compute([]) == ([], [])


def test_every_value_is_put_into_the_bucket_of_the_histogram_module() -> None:
    rng = random.Random(6)
    values = [0.0, 1e-9, 9.99e-7, 1e-6, 1.000001e-6, 86_400.0, 1e11]
    values += [2.0**power for power in range(-19, 37)]
    values += [micros / 1e6 for micros in range(1, 20_000)]
    values += [rng.randrange(1, 10**13) / 1e6 for _ in range(20_000)]
    values += [math.exp(rng.uniform(-14, 25)) for _ in range(20_000)]
    indices = bucket_indices(np.array(values)).tolist()
    assert indices == [bucket_index(value) for value in values]


def test_a_value_on_a_bucket_s_irrational_edge_is_at_most_one_bucket_off() -> None:
    edges = [2.0 ** (number / BUCKETS_PER_OCTAVE) for number in range(-1200, 2000)]
    values = [near for edge in edges for near in (edge, math.nextafter(edge, 0), math.nextafter(edge, math.inf))]
    indices = bucket_indices(np.array(values)).tolist()
    assert all(abs(mine - bucket_index(value)) <= 1 for mine, value in zip(indices, values, strict=True))


@settings(max_examples=examples(30, 100), deadline=None)
@given(log=logs())
def test_any_log_gives_what_a_plain_computation_gives(log: tuple[list[Row], list[Row]]) -> None:
    events = without_duplicates(log[0])
    partials, marks = compute(events)
    assert_same_partials(partials, partials_of(events))
    expected = pa.Table.from_pylist(marks_of(events), MARKS.schema).to_pylist()
    assert counted(marks) == counted(expected)


@settings(max_examples=examples(15, 40), deadline=None)
@given(log=logs(), batches=st.integers(2, 4), seed=st.integers(0, 2**16))
def test_however_events_fall_into_batches_the_sums_are_the_same(
    log: tuple[list[Row], list[Row]], batches: int, seed: int
) -> None:
    rng = random.Random(seed)
    events = without_duplicates(log[0])
    whole = compute(events)
    rng.shuffle(events)
    parts: list[list[Row]] = [[] for _ in range(batches)]
    for row in events:
        rng.choice(parts).append(row)
    pieces = [compute(part) for part in parts if part]
    assert_same_partials((row for partials, _ in pieces for row in partials), whole[0])
    assert counted(row for _, marks in pieces for row in marks) == counted(whole[1])
