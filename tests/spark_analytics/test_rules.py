"""Same rule, same rows: the expressions of shipped rules say in Spark what they say in DuckDB."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from alerts.rules.expression import bound
from alerts.rules.slo import SloEntry, rules_of
from lake.definitions import Definitions
from lake.reader import Reader
from lake.store import Lake
from lake.tables import PARTIALS
from spark_analytics.sql import query
from tests.reference.partials import partials_of
from tests.spark_analytics.events import event

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("per", ["queue", "tenant"])
def test_an_objective_burns_alike_in_both_engines(lake: Lake, spark: SparkSession, per: str) -> None:
    ages = (0.5, 29.9, 31.0, 60.0, 400.0)
    events = [event("received", age, attempt=1, message_id=f"m{number}") for number, age in enumerate(ages)]
    lake.append("partials", pa.Table.from_pylist(partials_of(events), PARTIALS.schema))
    now = max(one["occurred_at"] for one in events) + timedelta(seconds=1)
    slo = SloEntry.model_validate({"slo": "S", "objective": "99%", "within": "30s", "per": per, "minimum": 1})
    for rule in rules_of(slo):
        sql = bound(rule.expr, now, Definitions())
        with Reader(lake.root) as reader:
            expected = reader.query(sql).to_pylist()
        assert [row["value"] for row in expected] == pytest.approx([60.0])
        assert [_told(row) for row in query(lake.root, sql).to_pylist()] == [_told(row) for row in expected]


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """With sums as numbers, whatever an engine makes of them."""
    return row | {name: int(row[name]) for name in ("late", "attempts")}
