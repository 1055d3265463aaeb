"""Rolling up: seconds become minutes and hours, and nothing that can be asked of the present changes."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake.reader import Reader as Plain
from lake.store import Lake
from lake.tables import PARTIALS
from spark_analytics.maintenance import Retention, roll_up
from spark_analytics.maintenance import slices as cuts
from spark_analytics.transforms.rollup import opening_balance, rolled_up
from tests.reference.generate import generate
from tests.reference.partials import fill, partials_of
from tests.support.deep import examples
from tests.support.finishing import FinishingReader as Reader
from tests.support.finishing import finish

NOW_VIEWS = ("tenant_backlog_now", "concurrency_now", "queue_health_now")
SHORT = Retention(timedelta(seconds=60), timedelta(hours=2))


def table_of(events: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(partials_of(events), schema=PARTIALS.schema)


def totals(partials: pa.Table) -> dict[Any, Any]:
    """Everything that must survive, key by key, added up in plain Python."""
    result: dict[Any, dict[Any, float]] = {}
    for row in partials.to_pylist():
        mine = result.setdefault(tuple(row[name] for name in ("broker", "queue", "subscriber", "tenant")), {})
        for name, value in row.items():
            if isinstance(value, list):
                for entry in value:
                    label, amount = entry.values()
                    mine[name, label] = mine.get((name, label), 0) + amount
            elif name.endswith("_max") or name == "newest_occurred_at":
                if value is not None:
                    mine[name, "max"] = max(mine.get((name, "max"), value), value)
            elif isinstance(value, int | float) and name != "bucket_seconds":
                mine[name, "sum"] = mine.get((name, "sum"), 0) + value
    return {
        key: {
            name: pytest.approx(value) if isinstance(value, float) else value for name, value in mine.items() if value
        }
        for key, mine in result.items()
    }


def log_of(seed: int, *, messages: int, seconds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A log whose lines are unique, as in bronze."""
    events, samples = generate(seed, messages=messages, seconds=seconds)
    return list({repr(sorted(event.items())): event for event in events}.values()), samples


def as_text(row: dict[str, Any], digits: int = 17, without: tuple[str, ...] = ()) -> str:
    """A row, with so many ``digits`` of what adding floats in another order may change."""
    kept = {name: value for name, value in row.items() if name not in without}
    return str({name: f"{value:.{digits}g}" if isinstance(value, float) else value for name, value in kept.items()})


def rows_of(reader: Reader, view: str, digits: int = 17, without: tuple[str, ...] = ()) -> list[str]:
    return sorted(as_text(row, digits, without) for row in reader.query(f"SELECT * FROM {view}").to_pylist())


@pytest.mark.parametrize("seconds", [60, 3600])
def test_rolling_up_is_addition(seconds: int) -> None:
    events, _ = log_of(5, messages=400, seconds=400)
    partials = table_of(events)
    rolled = rolled_up(partials, seconds)
    assert totals(rolled) == totals(partials)
    assert set(rolled.column("bucket_seconds").to_pylist()) == {seconds}
    assert rolled.num_rows < partials.num_rows
    places = rolled.select(["broker", "queue", "subscriber", "tenant", "bucket_start"]).to_pylist()
    assert len({tuple(place.values()) for place in places}) == rolled.num_rows


@given(st.integers(0, 1000), st.integers(1, 5))
@settings(max_examples=examples(5, 15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_rolled_up_in_pieces_is_what_is_rolled_up_at_once(seed: int, pieces: int) -> None:
    events, _ = log_of(seed, messages=60, seconds=200)
    random.Random(seed).shuffle(events)
    step = -(-len(events) // pieces)
    parts = [rolled_up(table_of(events[i : i + step]), 60) for i in range(0, len(events), step)]
    again = rolled_up(rolled_up(pa.concat_tables(parts), 60), 3600)
    assert totals(again) == totals(rolled_up(table_of(events), 3600))


@st.composite
def regroupings(draw: st.DrawFn) -> tuple[int, list[tuple[int, list[int]]]]:
    """A log's seed, and steps: a level, and which rows (by position, modulo their number) are rolled up to it."""
    levels = st.sampled_from([1, 60, 300, 3600, 86_400])
    return draw(st.integers(0, 500)), draw(st.lists(st.tuples(levels, st.lists(st.integers(0, 10_000))), max_size=6))


@given(regroupings())
@settings(max_examples=examples(10, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_rows_are_rolled_up_in_whatever_order_every_sum_stays(
    regrouping: tuple[int, list[tuple[int, list[int]]]],
) -> None:
    seed, steps = regrouping
    events, _ = log_of(seed, messages=40, seconds=300)
    partials = table_of(events)
    expected = totals(partials)
    for level, chosen in steps:
        mine = {number % partials.num_rows for number in chosen}
        taken = pa.array([position in mine for position in range(partials.num_rows)])
        rest = partials.filter(pc.invert(taken))
        partials = pa.concat_tables([rolled_up(partials.filter(taken), level), rest])
    assert totals(partials) == expected
    assert totals(rolled_up(partials, 86_400)) == expected


def test_an_opening_balance_holds_all_that_the_present_rests_on_and_no_history() -> None:
    events, _ = log_of(6, messages=300, seconds=400)
    partials = rolled_up(table_of(events), 3600)
    until = 1_800_000_000
    opening = opening_balance(partials, until)
    before, after = totals(partials), totals(opening)
    history = {name for mine in before.values() for name in mine if "age_" in name[0] or "processing_" in name[0]}
    assert history
    for key, mine in before.items():
        assert after[key] == {name: value for name, value in mine.items() if name not in history}
    assert {(row["bucket_start"].timestamp(), row["bucket_seconds"]) for row in opening.to_pylist()} == {(0, until)}
    assert totals(opening_balance(pa.concat_tables([opening, partials]), until + 86_400)) == {
        key: {name: 2 * value if name[1] != "max" else value for name, value in mine.items()}
        for key, mine in after.items()
    }


def test_the_present_is_the_same_before_and_after(tmp_path: Path) -> None:
    events, samples = log_of(11, messages=600, seconds=600)
    lake = fill(tmp_path, events, samples)
    reader = Reader(tmp_path)
    before = {view: rows_of(reader, view) for view in NOW_VIEWS}
    ages = "SELECT kind, SUM(count) AS n, SUM(skewed) AS s FROM attempt_age GROUP BY kind ORDER BY kind"
    counted = reader.query(ages).to_pylist()
    assert roll_up(lake, SHORT) > 0
    assert {view: rows_of(reader, view) for view in NOW_VIEWS} == before
    assert reader.query(ages).to_pylist() == counted
    assert roll_up(lake, SHORT) == 0, "there was something left to do"


@given(st.lists(st.integers(-5_000, 20_000), max_size=60), st.sampled_from([1, 60]), st.integers(1, 20))
def test_history_is_cut_into_whole_buckets_of_no_more_rows_than_a_commit_may_have(
    seconds: list[int], width: int, most: int
) -> None:
    with patch.object(cuts, "MOST_ROWS", most):
        parts = list(cuts.slices(np.array(seconds, np.int64), width, 3600))
    assert all(before[1] <= after[0] for before, after in pairwise(parts)), "in order, and apart"
    assert sum(begins <= second < ends for second in seconds for begins, ends in parts) == len(seconds)
    for begins, ends in parts:
        inside = [second for second in seconds if begins <= second < ends]
        assert begins % width == ends % width == 0 and (begins < 0 or begins // 3600 == (ends - 1) // 3600)
        assert len(inside) <= most or len({max(second // width, 0) for second in inside}) == 1


def test_more_than_a_commit_may_have_is_rolled_up_in_several_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, samples = log_of(9, messages=400, seconds=600)
    lakes = [fill(tmp_path / name, events, samples) for name in ("whole", "parts")]
    versions = []
    for lake, most in zip(lakes, (1 << 21, 60), strict=True):
        monkeypatch.setattr(cuts, "MOST_ROWS", most)
        before = lake.ensure("partials").version()
        roll_up(lake, SHORT)
        versions.append(lake.ensure("partials").version() - before)
    assert versions[0] < versions[1]
    whole, parts = (lake.read("partials") for lake in lakes)
    assert (parts.num_rows, totals(parts)) == (whole.num_rows, totals(whole))


def test_history_is_what_it_was_and_folded_anew_that_of_the_ends_of_minutes(tmp_path: Path) -> None:
    events, samples = log_of(12, messages=600, seconds=600)
    lake = fill(tmp_path, events, samples)
    reader = Reader(tmp_path)
    sql = "SELECT queue, subscriber, tenant, as_of, backlog, in_flight, ready, noisy FROM tenant_backlog"
    key = ("queue", "subscriber", "tenant")
    fine = reader.query(sql).to_pylist()
    roll_up(lake, SHORT)
    assert sorted(map(repr, reader.query(sql).to_pylist())) == sorted(map(repr, fine))
    finish(tmp_path, anew=True)
    coarse = [row for row in Plain(tmp_path).query(sql).to_pylist() if row["as_of"].second == 0]
    assert 20 < len(coarse) < len(fine)
    for row in coarse:
        mine = [r for r in fine if all(r[k] == row[k] for k in key) and r["as_of"] <= row["as_of"]]
        newest = max(mine, key=lambda r: r["as_of"])
        assert {k: row[k] for k in ("backlog", "in_flight")} == {k: newest[k] for k in ("backlog", "in_flight")}


def test_what_comes_late_joins_its_minute(tmp_path: Path) -> None:
    events, samples = log_of(13, messages=300, seconds=400)
    late, punctual = events[:100], events[100:]
    lake = fill(tmp_path, punctual, samples)
    roll_up(lake, SHORT)
    lake.append("partials", table_of(late))
    roll_up(lake, SHORT)
    assert totals(lake.read("partials")) == totals(table_of(events))
    rolled = [row for row in lake.read("partials").to_pylist() if row["bucket_seconds"] == 60]
    places = [tuple(row[name] for name in ("queue", "subscriber", "tenant", "bucket_start")) for row in rolled]
    assert len(places) == len(set(places)) > 20


def test_a_stream_that_appends_meanwhile_loses_nothing(tmp_path: Path) -> None:
    events, samples = log_of(14, messages=800, seconds=900)
    events.sort(key=lambda event: event["occurred_at"])
    fill(tmp_path, events[:1], samples)
    pieces = [events[i : i + 40] for i in range(1, len(events), 40)]
    done = threading.Event()

    def append() -> None:
        stream = Lake(tmp_path)
        for number, piece in enumerate(pieces):
            stream.append("partials", table_of(piece), app_id="stream", version=number)
        done.set()

    thread = threading.Thread(target=append)
    thread.start()
    lake = Lake(tmp_path)
    while not done.is_set():
        roll_up(lake, SHORT)
    thread.join()
    roll_up(lake, SHORT)
    assert totals(Lake(tmp_path).read("partials")) == totals(table_of(events))
    assert Lake(tmp_path).committed("partials", "stream") == len(pieces) - 1
