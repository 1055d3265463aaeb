"""However many tenants there are, gold tells so many apart, and counts the others together."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from lake.store import Lake
from spark_analytics.batches.tenants import OTHER, Tenants
from spark_analytics.transforms import EVENT_COLUMNS, Events, partials
from tests.spark_analytics.events import bronze, event


def named(*tenants: str | None) -> pa.Table:
    rows = bronze([event("enqueued", tenant=tenant, message_id=str(n)) for n, tenant in enumerate(tenants)])
    return rows.select(list(EVENT_COLUMNS))


def told(rows: pa.Table) -> list[str | None]:
    return rows.column("tenant").cast(pa.string()).to_pylist()


def test_tenants_within_the_bound_keep_their_names_and_nobody_is_still_nobody(lake: Lake) -> None:
    tenants = Tenants(lake, 3)
    assert told(tenants.bounded(named("a", "b", None, "a"))) == ["a", "b", None, "a"]
    assert told(tenants.bounded(named("c", "b"))) == ["c", "b"]


def test_tenants_beyond_the_bound_are_counted_together_and_those_before_keep_their_own(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    tenants = Tenants(lake, 2)
    with caplog.at_level(logging.WARNING):
        assert told(tenants.bounded(named("c", "a", "b", "a"))) == [OTHER, "a", "b", "a"]
        assert told(tenants.bounded(named("z", "b", "a"))) == [OTHER, "b", "a"]
    assert len(caplog.records) == 1 and "2 tenants" in caplog.text


def test_columns_that_are_dictionaries_stay_dictionaries(lake: Lake) -> None:
    rows = named("a", "b", "c")
    encoded = rows.set_column(rows.column_names.index("tenant"), "tenant", rows.column("tenant").dictionary_encode())
    bounded = Tenants(lake, 1).bounded(encoded)
    assert pa.types.is_dictionary(bounded.column("tenant").type)
    assert told(bounded) == ["a", OTHER, OTHER]


def test_the_next_process_tells_the_same_tenants_apart(lake: Lake) -> None:
    lake.append("partials", partials(Events(Tenants(lake, 2).bounded(named("a", "b", "c")))))
    assert told(Tenants(lake, 3).bounded(named("d", "c", "a"))) == [OTHER, OTHER, "a"], "other is one of the three"


def test_no_event_is_lost_where_tenants_are_many(lake: Lake) -> None:
    tenants = Tenants(lake, 100)
    for batch in range(5):
        rows = named(*(f"tenant-{batch}-{number}" for number in range(1_000)))
        lake.append("partials", partials(Events(tenants.bounded(rows))))
    gold = lake.read("partials", columns=["tenant", "enqueued"]).group_by("tenant").aggregate([("enqueued", "sum")])
    counts = dict(zip(*(column.to_pylist() for column in gold.columns), strict=True))
    assert len(counts) == 101 and counts[OTHER] == 4_900 and sum(counts.values()) == 5_000
