"""Same rule, same rows: the expressions of shipped rules say in Spark what they say in DuckDB."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from alerts.objectives import SloEntry, rules_of
from alerts.rules.expression import ENGINE_VIEWS, bound
from alerts.rules.loader import load_rules
from lake.definitions import Definitions
from lake.reader import Reader
from lake.store import Lake
from lake.tables import PARTIALS, QUEUE_SAMPLES
from spark_analytics.sql import SqlSession, query
from tests.alerts.situation import LENGTH, Situation
from tests.alerts.situations import troubled
from tests.reference.partials import partials_of
from tests.spark_analytics.events import event
from tests.support.deep import examples
from tests.support.finishing import finish

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("per", ["tenant", "queue"][: examples(1, 2)])
def test_an_objective_burns_alike_in_both_engines(lake: Lake, spark: SparkSession, per: str) -> None:
    ages = (0.5, 29.9, 31.0, 60.0, 400.0)
    events = [event("received", age, attempt=1, message_id=f"m{number}") for number, age in enumerate(ages)]
    lake.append("partials", pa.Table.from_pylist(partials_of(events), PARTIALS.schema))
    now = max(one["occurred_at"] for one in events) + timedelta(seconds=1)
    slo = SloEntry.model_validate({"slo": "S", "objective": "99%", "within": "30s", "per": per, "minimum": 1})
    for rule in rules_of(slo):
        sql = bound(rule.expr, now, Definitions())
        finish(lake.root)
        with Reader(lake.root) as reader:
            expected = reader.query(sql).to_pylist()
        assert [row["value"] for row in expected] == pytest.approx([60.0])
        assert [_told(row) for row in query(lake.root, sql).to_pylist()] == [_told(row) for row in expected]


#: What rules that look at views alone find something in.
STORIES = (
    "everybody_waits_for_a_first_attempt",
    "consumers_hold_all_they_may_and_complete_nothing",
    "a_dead_letter_queue_holds_ten_thousand",
    "one_slot_of_120_000_is_free",
    "no_poll_comes_back_empty",
    "nobody_consumes_what_keeps_coming",
    "retention_is_about_to_overtake_a_group",
    "slots_of_a_sampled_queue_leak",
    "events_tell_of_half_of_what_is_there",
    "a_queue_is_drained_in_nine_hours",
    "a_sampled_queue_grows",
    "retention_overtakes_a_group_that_reads",
    "a_transaction_hangs_before_a_group_that_reads_committed_records",
)


def test_the_shipped_rules_find_the_same_in_both_engines(lake: Lake, spark: SparkSession) -> None:
    for name in STORIES:
        situation = Situation(name, [], [], START)
        troubled(name)(situation)
        ours = {"source": "sampler", "ingested_at": START, "ingest_date": START.date()}
        samples = [row | ours for row in situation.samples]
        lake.append("partials", pa.Table.from_pylist(partials_of(situation.events), PARTIALS.schema))
        lake.append("queue_samples", pa.Table.from_pylist(samples, QUEUE_SAMPLES.schema))
    rules = [one for one in load_rules((), builtin=True) if not one.tables & ENGINE_VIEWS.keys()]
    found = 0
    finish(lake.root)
    with Reader(lake.root) as reader, closing(SqlSession(lake)) as sql_session:
        for rule in rules:
            sql = bound(rule.expr, START + timedelta(seconds=LENGTH), Definitions())
            expected = _rows(reader.query(sql))
            assert _rows(sql_session.answer(sql).table()) == expected, rule.name
            found += bool(expected)
    assert found >= len(STORIES)


def _rows(table: pa.Table) -> list[tuple[str, ...]]:
    """What is told, in one order; numbers as far as engines agree on the last digits of sums."""
    rows = [tuple(row[name] for name in sorted(row)) for row in table.to_pylist()]
    return sorted(tuple(_text(value) for value in row) for row in rows)


def _text(value: object) -> str:
    return f"{float(value):.9g}" if isinstance(value, int | float | Decimal) else str(value)


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """With sums as numbers, whatever an engine makes of them."""
    return row | {name: int(row[name]) for name in ("late", "attempts")}
