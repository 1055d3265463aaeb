"""Publishes are counted with their durations and errors, cheaply, within bounds, and told once by either format."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sojourn
from lake.histogram import RELATIVE_ERROR, quantile
from sojourn.client import publishes as counting
from sojourn.client.polls import MOST_KEYS
from sojourn.client.publishes import Publishes
from tests.client.collector import Collector

ORDERS = ("sqs", "orders")


def told(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter({name: sum(row[name] for row in rows) for name in ("publishes", "errors")})


def test_each_publish_is_told_once_with_its_duration_or_as_an_error(collector: Collector) -> None:
    with sojourn.Recorder(collector.url, broker="sqs", flush_interval=60) as recorder:
        for _ in range(3):
            recorder.published("orders", seconds=0.25)
        recorder.published("orders", seconds=9.0, failed=True)
        with recorder.publishing("orders", broker="kafka"):
            pass
        with pytest.raises(ConnectionError), recorder.publishing("orders", broker="kafka"):
            raise ConnectionError
        assert recorder.flush(60) and recorder.flush(60)
        assert recorder.stats().recorded == 0, "no message is told of"
    rows = {row["broker"]: row for row in collector.publishes}
    assert len(rows) == len(collector.publishes) == 2
    assert (rows["sqs"]["publishes"], rows["sqs"]["errors"]) == (4, 1)
    assert quantile(dict(rows["sqs"]["seconds_histogram"]), 0.5) == pytest.approx(0.25, rel=2 * RELATIVE_ERROR)
    assert (rows["kafka"]["publishes"], rows["kafka"]["errors"]) == (2, 1)
    assert sum(count for _, count in rows["kafka"]["seconds_histogram"]) == 1


def test_a_collector_that_is_away_is_told_what_was_counted_when(collector: Collector) -> None:
    collector.script = [503] * 3
    with sojourn.Recorder(collector.url, flush_interval=0.02) as recorder:
        for number in range(100):
            recorder.published("orders", seconds=0.001, failed=number % 10 == 0)
        assert recorder.flush(60)
    assert told(collector.publishes) == {"publishes": 100, "errors": 10}


def test_as_spans_they_stand_in_the_report(collector: Collector) -> None:
    with sojourn.Recorder(collector.url, broker="sqs", export="otlp", flush_interval=0.02) as recorder:
        recorder.published("orders", seconds=0.5)
        assert recorder.flush(60)
    (span,) = collector.requests[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    (text,) = (one["value"]["stringValue"] for one in span["attributes"] if one["key"] == "sojourn.publishes")
    (row,) = json.loads(text)
    assert span["name"] == "sojourn.report" and (row["broker"], row["queue"], row["publishes"]) == (*ORDERS, 1)


@given(st.lists(st.floats(1e-6, 3600), min_size=1, max_size=200))
def test_the_median_is_that_of_the_durations_within_the_histogram_s_error(durations: list[float]) -> None:
    publishes = Publishes()
    for seconds in durations:
        publishes.add(ORDERS, seconds)
    found = quantile(publishes.take()[ORDERS].histogram, 0.5)
    ordered = sorted(durations)
    assert found == pytest.approx(ordered[math.ceil(len(ordered) / 2) - 1], rel=2 * RELATIVE_ERROR)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-300, 1e300])
def test_a_duration_of_no_use_costs_nobody_an_exception(seconds: float) -> None:
    publishes = Publishes()
    publishes.add(ORDERS, seconds)
    assert publishes.take()[ORDERS].publishes == 1


def test_countless_queues_and_durations_stay_bounded_and_counted() -> None:
    publishes, chance = Publishes(), random.Random(1)
    for number in range(10_000):
        publishes.add(("sqs", f"q{number}"), 0)
    counts = publishes.take()
    assert len(counts) <= MOST_KEYS + 1
    assert sum(count.publishes for count in counts.values()) == 10_000
    took = [10 ** chance.uniform(-9, 9) for _ in range(20_000)]
    for seconds in took:
        publishes.add(ORDERS, seconds)
    assert len(publishes.take()[ORDERS].histogram) < 2_400, "64 buckets an octave, from a microsecond to a day"
    assert median(took) > 0


def test_what_nobody_took_for_a_while_is_forgotten_for_it_says_nothing_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(counting.time, "monotonic", lambda: now[0])
    publishes = Publishes(kept_seconds=10)
    publishes.add(ORDERS, 1.0, failed=True)
    now[0] += 10.5
    publishes.add(ORDERS, 0.001)
    (count,) = publishes.take().values()
    assert (count.publishes, count.errors) == (1, 0)
    publishes.add(ORDERS, 1.0, failed=True)
    now[0] += 10.5
    assert publishes.take() == {} and not len(publishes)
