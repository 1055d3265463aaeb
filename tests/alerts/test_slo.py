"""Objectives become burn-rate rules: counted exactly, at the nearest boundary of a bucket, and strictly read."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.memory import Memory
from alerts.objectives import WINDOWS, SloEntry, counted_within, rules_of
from alerts.rules.expression import bound, schema_of
from alerts.rules.loader import OPTIONAL, load_rules
from lake.definitions import Definitions
from lake.errors import UserError
from lake.histogram import RELATIVE_ERROR, bucket_index
from lake.store import Lake
from lake.tables import EVENT_TYPES
from tests.support.finishing import FinishingReader as Reader

NOW = datetime(2026, 1, 10, 12, 0, 0, 250_000, tzinfo=UTC)
FILE = """
groups:
  - name: slo
    interval: 30s
    slos:
      - slo: Orders
        objective: 99%
        within: 30s
"""
#: Each tuple: seconds before NOW, tenant, age in seconds, how many.
Waits = list[tuple[int, str, float, int]]


def rows(waits: Waits) -> pa.Table:
    """``attempt_age`` of these waits, a row for each."""
    schema = schema_of("attempt_age")
    told: list[dict[str, Any]] = [
        {
            "bucket_start": NOW.replace(microsecond=0) - timedelta(seconds=ago),
            "bucket_seconds": 1,
            "broker": "b",
            "queue": "q",
            "tenant": tenant,
            "kind": "first_attempt",
            "count": count,
            "histogram": [{"index": bucket_index(age), "count": count}],
        }
        for ago, tenant, age, count in waits
    ]
    return pa.Table.from_pylist(told, schema=schema)


def found(slo: SloEntry, waits: Waits, coverage: float | None = None) -> dict[tuple[str, str | None], float]:
    """Burn rates by severity and tenant, as the rules tell them."""
    memory = Memory()
    health = pa.Table.from_pylist(
        [{"broker": "b", "queue": "q", "coverage": coverage}], schema=schema_of("queue_health_now")
    )
    memory.put({"attempt_age": rows(waits), "queue_health_now": health})
    try:
        return {
            (rule.labels["severity"], row.get("tenant")): row["value"]
            for rule in rules_of(slo)
            for row in memory.query(bound(rule.expr, NOW, Definitions())).to_pylist()
        }
    finally:
        memory.close()


def reference(slo: SloEntry, waits: Waits) -> dict[tuple[str, str | None], float]:
    """The same, message by message."""
    late_from = counted_within(slo.within.total_seconds())
    burns: dict[tuple[str, str | None], float] = {}
    for tenant in {tenant if slo.per == "tenant" else None for _, tenant, _, _ in waits}:
        mine = [one for one in waits if tenant in (None, one[1])]
        for window in slo.windows:
            share: Counter[tuple[timedelta, bool]] = Counter()
            for ago, _, age, count in mine:
                for length in (window.long, window.short):
                    if 0 <= ago < length.total_seconds():
                        share[length, age > late_from] += count
            late, attempts = share[window.long, True], share[window.long, True] + share[window.long, False]
            short, short_all = share[window.short, True], share[window.short, True] + share[window.short, False]
            most = window.burn * slo.budget
            if attempts >= slo.minimum and late > most * attempts and short > most * short_all:
                key = (window.severity, tenant)
                burns[key] = max(burns.get(key, 0.0), late / attempts / slo.budget)
    return burns


def entry(**changes: Any) -> SloEntry:
    """The objective of :data:`FILE`, changed."""
    return SloEntry.model_validate({"slo": "Orders", "objective": "99%", "within": "30s", **changes})


_AGO = st.one_of(st.integers(0, 700), st.integers(0, 4 * 86400))
_WAITS = st.lists(
    st.tuples(_AGO, st.sampled_from("xy"), st.sampled_from([0.1, 29.9, 29.99, 31.0, 500.0]), st.integers(1, 200)),
    max_size=12,
)


@settings(max_examples=25)
@given(waits=_WAITS, per=st.sampled_from(["queue", "tenant"]), minimum=st.sampled_from([1, 100]))
def test_the_sql_counts_what_counting_messages_one_by_one_does(waits: Waits, per: str, minimum: int) -> None:
    slo = entry(per=per, minimum=minimum)
    told, expected = found(slo, waits), reference(slo, waits)
    assert told.keys() == expected.keys()
    assert all(math.isclose(told[key], expected[key], rel_tol=1e-9) for key in told)


@given(st.floats(min_value=0.001, max_value=1e6))
def test_late_is_counted_at_most_half_a_percent_beside_the_threshold(seconds: float) -> None:
    counted = counted_within(seconds)
    assert abs(counted / seconds - 1) <= RELATIVE_ERROR * 1.01
    assert bucket_index(counted * 1.0001) == bucket_index(counted * 0.9999) + 1, "it is the boundary of a bucket"


def test_windows_are_those_of_the_workbook_for_thirty_days() -> None:
    hour = timedelta(hours=1)
    spent = [window.burn * window.long / timedelta(days=30) for window in WINDOWS]
    assert spent == pytest.approx([0.02, 0.05, 0.1, 0.1])
    assert [window.long / hour for window in WINDOWS] == [1, 6, 24, 72]
    assert [window.long / window.short for window in WINDOWS] == [12] * 4


@pytest.mark.parametrize(("coverage", "severities"), [(None, 2), (1.0, 2), (0.79, 1), (1.26, 1)])
def test_where_events_do_not_add_up_nobody_is_woken(coverage: float | None, severities: int) -> None:
    assert len(found(entry(), [(10, "x", 60.0, 1000)], coverage)) == severities


def test_it_names_one_queue_and_quotes_whatever_it_is_called(tmp_path: Path) -> None:
    waits: Waits = [(10, "x", 60.0, 1000)]
    assert found(entry(match={"queue": "q", "tenant": "x"}), waits)
    for name in ("p", "o'rders", 'a"b', "a\\", "';--", "$x", "{{ labels }}"):
        assert found(entry(match={"queue": name}), waits) == {}


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        (
            "objective: 99%",
            "objective: 90%",
            "line 6, column 9: slo / Orders: groups.slos: a burn rate of 14.4 cannot be",
        ),
        ("objective: 99%", "objective: 100%", "objective: Input should be less than 1"),
        ("objective: 99%", "objective: most", "objective: Input should be a valid number"),
        ("within: 30s", "within: 0s", "within is longer than a microsecond"),
        ("within: 30s", "withn: 30s", "did you mean 'within'"),
        ("within: 30s", "within: 30s\n        match: {quue: orders}", "quue"),
        (
            "within: 30s",
            "within: 30s\n        windows: [{long: 5m, short: 1h, burn: 2}]",
            "the short window is shorter",
        ),
        ("within: 30s", "within: 30s\n        windows: [{long: 1h, shrt: 5m, burn: 2}]", "did you mean 'short'"),
        ("    interval: 30s\n", "", "add interval: 30s to the group"),
        ("within: 30s", "within: 30s\n        annotations: {summary: '{{ lables.queue }}'}", "lables"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, wrong: str, right: str, says: str) -> None:
    path = tmp_path / "slo.yml"
    path.write_text(FILE.replace(wrong, right))
    with pytest.raises(UserError) as caught:
        load_rules([path], builtin=False)
    assert says in str(caught.value)


def test_the_shipped_file_has_a_runbook_and_is_evaluated_only_where_it_is_named() -> None:
    rules = load_rules([OPTIONAL], builtin=False)
    runbook = (OPTIONAL / "slo.md").read_text()
    assert [rule.name in runbook for rule in rules] == [True] * 4
    assert {rule.annotations["runbook"] for rule in rules} == {"slo.md"}
    assert not {rule.key for rule in rules} & {rule.key for rule in load_rules((), builtin=True)}


def test_over_a_lake_the_reader_tells_the_same(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    at = datetime(2026, 1, 10, 11, 59, tzinfo=UTC)
    counts = dict.fromkeys((*EVENT_TYPES, "started", "retries", "finished_unreceived"), 0)
    ages = {"first_attempt_age_count": 200, "first_attempt_age_sum": 6200.0, "first_attempt_age_max": 60.0}
    cells = [{"index": bucket_index(1.0), "count": 100}, {"index": bucket_index(60.0), "count": 100}]
    row = counts | ages | {"first_attempt_age_histogram": cells, "started": 200, "received": 200}
    where = {"broker": "b", "queue": "q", "subscriber": "", "tenant": "x", "bucket_start": at, "bucket_seconds": 1}
    lake.append("partials", pa.Table.from_pylist([row | where | {"newest_occurred_at": at}]))
    with Reader(tmp_path) as reader:
        for rule in load_rules([OPTIONAL], builtin=False):
            [told] = reader.query(bound(rule.expr, NOW, Definitions())).to_pylist()
            assert (told["queue"], told["value"], told["late"], told["attempts"]) == ("q", 50.0, 100, 200)
