"""The views, as the JVM-free reader serves them, hold row by row what the reference counts from the events."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from lake.definitions import Definitions
from lake.reader import Reader
from tests.reference.compare import METRIC_VIEWS, differences, expected_rows
from tests.reference.generate import Row, generate, logs
from tests.reference.partials import fill
from tests.reference.reference import Reference
from tests.support.deep import examples
from tests.support.finishing import finish

SEED = 7
#: What `stage_totals` has without reading a tenant.
SUMS = """
SELECT
  broker, queue, subscriber, COUNT(*) AS tenants,
  CAST(SUM(backlog) AS BIGINT) AS backlog, CAST(SUM(in_flight) AS BIGINT) AS in_flight,
  CAST(SUM(ready) AS BIGINT) AS ready,
  SUM(arrival_rate) AS arrival_rate, SUM(completion_rate) AS completion_rate
FROM tenant_backlog_now
GROUP BY broker, queue, subscriber
"""


def rows_of(reader: Reader, view: str) -> list[Row]:
    rows: list[Row] = reader.query(f"SELECT * FROM {view}").to_pylist()
    return rows


@pytest.fixture(scope="module")
def log() -> tuple[list[Row], list[Row]]:
    return generate(SEED, messages=500, seconds=700, burst=40)


@pytest.fixture(scope="module")
def reference(log: tuple[list[Row], list[Row]]) -> Reference:
    return Reference(*log)


@pytest.fixture(scope="module")
def reader(log: tuple[list[Row], list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    root = tmp_path_factory.mktemp("lake")
    fill(root, *log, batches=7, finished=True)
    yield Reader(root)


@pytest.mark.parametrize("view", METRIC_VIEWS)
def test_every_row_of_a_view_is_what_the_reference_counts(reader: Reader, reference: Reference, view: str) -> None:
    expected = expected_rows(reference, view)
    assert expected
    assert differences(expected, rows_of(reader, view)) == []


def test_a_queues_totals_are_what_its_tenants_sum_to(reader: Reader) -> None:
    totals = _by_queue(rows_of(reader, "stage_totals"))
    assert totals == _summed(reader)
    assert any(row["ready"] for row in totals.values()) and any(row["tenants"] > 1 for row in totals.values())


def _summed(reader: Reader) -> dict[Any, Any]:
    """What the tenants of each queue sum to; floats within what adding them costs."""
    sums = _by_queue(reader.query(SUMS).to_pylist())
    return {name: pytest.approx(row, rel=1e-9) for name, row in sums.items()}


def _by_queue(rows: list[Row]) -> dict[Any, Row]:
    return {(row.pop("broker"), row.pop("queue"), row.pop("subscriber")): row for row in rows}


def test_the_log_holds_what_the_definitions_are_about(reference: Reference) -> None:
    backlogs, queues = reference.tenant_backlog(), reference.queue_health()
    assert {row["drain_state"] for row in backlogs} == {"idle", "stalled", "growing", "draining"}
    assert {row["noisy"] for row in backlogs} == {True, False}
    assert any(row["in_flight"] >= 30 for row in backlogs)
    assert any(row["ready"] < row["backlog"] - row["in_flight"] for row in backlogs)
    assert {row["mode"] for row in queues} == {"fast", "backlogged", None}
    assert any(row["oldest_age_seconds"] != row["quiet_oldest_age_seconds"] for row in queues)
    for name in ("empty_poll_ratio", "dlq_depth", "coverage", "retry_ratio", "depth", "staleness_seconds"):
        assert {row[name] is None for row in queues} == {True, False}, name
    ages = reference.attempt_age()
    assert {row["kind"] for row in ages} == {"first_attempt", "first_subscriber_first_attempt", "retry", "completion"}
    assert any(row["skewed"] for row in ages)


@pytest.mark.parametrize("view", METRIC_VIEWS[: examples(2, len(METRIC_VIEWS))])
def test_one_wrong_value_in_a_view_is_noticed(reader: Reader, reference: Reference, view: str) -> None:
    expected, actual = expected_rows(reference, view), rows_of(reader, view)
    for name in actual[0]:
        wrong = [dict(row) for row in actual]
        changed = next((row for row in wrong if row[name] is not None), wrong[0])
        changed[name] = _another(changed[name])
        assert differences(expected, wrong), name
    assert len(differences(expected, actual[1:])) == 1
    assert len(differences(expected[1:], actual)) == 1


@pytest.mark.parametrize(("age", "told"), [(0.2, "growing"), (30.0, "stalled"), (0.0, "stalled"), (None, "stalled")])
def test_a_queue_whose_one_message_at_work_is_young_is_not_stalled(
    tmp_path: Path, age: float | None, told: str
) -> None:
    """Nothing waits, one is always at work, nothing counts acknowledgements; 0 is the age where nothing waits."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    at_work = {"broker": "redis", "queue": "thumbs", "depth": 0, "in_flight": 1, "oldest_age_seconds": age}
    samples = [at_work | {"sampled_at": begin + timedelta(seconds=second)} for second in range(10)]
    fill(tmp_path, [], samples, finished=True)
    with Reader(tmp_path) as reader:
        assert [row["drain_state"] for row in rows_of(reader, "queue_health_now")] == [told]
    assert [row["drain_state"] for row in Reference([], samples).queue_health(now=True)] == [told]


def _another(value: Any) -> Any:
    """A value that differs from ``value`` by as little as must be noticed."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.012 + 0.00001  # more than both ends of a quantile's tolerance together
        case str():
            return f"{value}?"
        case list():
            return [*value, {"index": 5000, "count": 1}]
        case datetime():
            return value + timedelta(microseconds=1)
    return 0


@settings(max_examples=examples(4, 100), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs())
def test_the_views_agree_with_the_reference_on_any_log(log: tuple[list[Row], list[Row]]) -> None:
    reference = Reference(*log)
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        fill(Path(folder), *log, finished=True)
        with Reader(folder) as reader:
            for view in METRIC_VIEWS:
                assert differences(expected_rows(reference, view), rows_of(reader, view)) == [], view
            assert _by_queue(rows_of(reader, "stage_totals")) == _summed(reader)


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def test_the_views_follow_the_definitions_of_their_lake(
    log: tuple[list[Row], list[Row]], reader: Reader, reference: Reference
) -> None:
    Definitions(window_seconds=7, target_seconds=90.0).save(reader.root)
    try:
        finish(reader.root, anew=True)
        other = Reference(*log, window_seconds=7, target_seconds=90.0)
        for view in ("tenant_backlog_now", "concurrency", "queue_health"):
            expected = expected_rows(other, view)
            assert differences(expected, rows_of(reader, view)) == []
            assert differences(expected, expected_rows(reference, view))
    finally:
        Definitions().save(reader.root)
