"""However many tenants there are, gold tells so many apart, and counts the others together."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.store import Lake
from spark_analytics.batches.tenants import OTHER, Tenants, folded
from spark_analytics.transforms import EVENT_COLUMNS, Events, partials
from tests.spark_analytics.events import bronze, event


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake without partials, to which nothing is written."""
    lake = Lake(tmp_path_factory.mktemp("empty") / "lake")
    lake.ensure("partials")
    return lake


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
    assert told(Tenants(lake, 2).bounded(named("d", "c", "a"))) == [OTHER, OTHER, "a"]


def test_names_of_ours_take_no_tenant_s_place(lake: Lake) -> None:
    tenants = Tenants(lake, 2)
    assert told(tenants.bounded(named("a", None, "unknown", "other", "b", "c"))) == [
        "a",
        None,
        "unknown",
        OTHER,
        "b",
        OTHER,
    ]
    lake.append("partials", partials(Events(tenants.bounded(named("a", None, "other")))))
    assert Tenants(lake, 2).room == 1, "of three in gold, a alone is a tenant of somebody's"


@given(
    batches=st.lists(st.sets(st.sampled_from(["unknown", "other", *"abcdefgh"])), max_size=4), most=st.integers(1, 5)
)
def test_the_first_names_of_a_batch_are_enough_to_decide(empty: Lake, batches: list[set[str]], most: int) -> None:
    whole, cut = Tenants(empty, most), Tenants(empty, most)
    for names in batches:
        whole.admit(names)
        if cut.room:
            cut.admit(set(sorted(names)[: cut.enough]))
        assert (whole.kept(), whole.room) == (cut.kept(), cut.room)


@given(names=st.lists(st.sampled_from(["unknown", "other", *"abcdefgh"]), min_size=1), cuts=st.integers(1, 5))
def test_the_pieces_of_an_admitted_batch_are_bounded_as_one(empty: Lake, names: list[str], cuts: int) -> None:
    whole, pieces = Tenants(empty, 3), Tenants(empty, 3)
    for tenants in (whole, pieces):
        tenants.admit(set(names))
    cut = [name for at in range(0, len(names), cuts) for name in told(pieces.bounded(named(*names[at : at + cuts])))]
    assert cut == told(whole.bounded(named(*names)))
    if (kept := whole.kept()) is not None:
        assert cut == told(folded(named(*names), kept)), "executors rename as the driver does"


def test_no_event_is_lost_where_tenants_are_many(lake: Lake) -> None:
    tenants = Tenants(lake, 100)
    for batch in range(5):
        rows = named(*(f"tenant-{batch}-{number}" for number in range(1_000)))
        lake.append("partials", partials(Events(tenants.bounded(rows))))
    gold = lake.read("partials", columns=["tenant", "enqueued"]).group_by("tenant").aggregate([("enqueued", "sum")])
    counts = dict(zip(*(column.to_pylist() for column in gold.columns), strict=True))
    assert len(counts) == 101 and counts[OTHER] == 4_900 and sum(counts.values()) == 5_000
