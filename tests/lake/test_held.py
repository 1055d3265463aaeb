"""What a reader holds of finished state is the newest row of each key, however rows are cut into files and commits."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.finished import TENANT_STATE
from lake.schema import HISTOGRAM
from lake.state.columns import column
from lake.state.held import MOST_FILES, Held
from lake.store import Lake
from tests.support.deep import examples

_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
_KINDS = [pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"), pa.string(), HISTOGRAM]


def _value(kind: pa.DataType, chance: random.Random) -> Any:
    number = chance.randrange(5)
    if chance.random() < 0.3:
        return None
    if pa.types.is_timestamp(kind):
        return _BEGIN + timedelta(microseconds=number)
    if kind == HISTOGRAM:
        return [{"index": chance.randrange(9), "count": number}] * number
    if pa.types.is_string(kind):
        return f"text {number}"
    return bool(number % 2) if pa.types.is_boolean(kind) else kind.to_pandas_dtype()(number)


@given(st.integers(0, 2**32), st.sampled_from(_KINDS))
def test_a_column_has_at_each_place_what_was_put_there_last(seed: int, kind: pa.DataType) -> None:
    """However places are picked, and new ones added."""
    chance = random.Random(seed)
    held: list[Any] = []
    one = column(pa.field("any", kind), repeated=False, constant=False)
    for _ in range(chance.randrange(1, 6)):
        old = chance.sample(range(len(held)), chance.randint(0, len(held)))
        places = [*old, *range(len(held), len(held) + chance.randrange(1 if not held else 0, 20))]
        chance.shuffle(places)
        values = [_value(kind, chance) for _ in places]
        held += [None] * (len(places) - len(old))
        for place, value in zip(places, values, strict=True):
            held[place] = value
        one.put(np.array(places, np.int64), pa.array(values, kind))
        assert one.array(len(held)).to_pylist() == held


@pytest.mark.parametrize("seed", range(examples(2, 5)))
def test_the_newest_row_of_each_key_is_held(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a key come in any order, corrections of the past among them; a new epoch begins with nothing."""
    if seed % 2:
        monkeypatch.setattr("lake.state.held.AT_ONCE", 3)
    monkeypatch.setattr("lake.state.held.MOST_FILES", 2)
    chance = random.Random(seed)
    lake = Lake(tmp_path)
    lake.create()
    followed, epoch, told = Held("tenant_state", tmp_path), 1, dict[int, dict[str, Any]]()
    rarely = Held("tenant_state", tmp_path)
    for revision in range(1, 25):
        if chance.random() < 0.1:
            epoch, told = revision, {}
        rows = [_row(chance, epoch, revision) for _ in range(chance.randrange(1, 12))]
        for row in sorted(rows, key=lambda row: row["as_of"]):
            if row["key"] not in told or row["as_of"] >= told[row["key"]]["as_of"]:
                told[row["key"]] = row
        lake.append("tenant_state", pa.Table.from_pylist(rows, TENANT_STATE.schema))
        if chance.random() < 0.2:
            lake.ensure("tenant_state").optimize.compact()
        for held in (followed, Held("tenant_state", tmp_path), *([rarely] if chance.random() < 0.2 else ())):
            held.refresh()
            assert (held.epoch, held.revision) == (epoch, revision)
            assert _by_key(held) == {key: _named(row) for key, row in told.items()}
    half = Held("tenant_state", tmp_path, {"backlog"})
    half.refresh()
    assert half.rows.column_names == ["key", "as_of", "backlog"]
    assert {row["key"]: row["backlog"] for row in half.rows.to_pylist()} == {
        key: row["backlog"] for key, row in told.items()
    }


def test_who_asks_again_after_a_while_reads_what_was_merged_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, lake = random.Random(9), Lake(tmp_path)
    lake.create()
    rows = [_row(chance, 1, revision) | {"key": revision, "as_of": _BEGIN} for revision in range(1, MOST_FILES + 6)]
    held = Held("tenant_state", tmp_path)
    for row in rows:
        lake.append("tenant_state", pa.Table.from_pylist([row], TENANT_STATE.schema))
        if row["revision"] == 3:
            held.refresh()
    lake.ensure("tenant_state").optimize.compact()
    read: list[object] = []
    take_in = Held._take_in
    monkeypatch.setattr(Held, "_take_in", lambda self, path, until: read.append(path) or take_in(self, path, until))
    assert held.refresh()
    assert len(read) == 1
    assert _by_key(held) == {row["key"]: _named(row) for row in rows}


def test_nothing_is_held_of_a_revision_that_was_not_asked_for(tmp_path: Path) -> None:
    """It is held once it is asked for, also where it lies in one file with an earlier one."""
    chance, lake = random.Random(7), Lake(tmp_path)
    lake.create()
    held = Held("tenant_state", tmp_path)
    rows = [_row(chance, 1, revision) | {"key": 0, "as_of": _BEGIN, "backlog": revision} for revision in (1, 2, 3)]
    lake.append("tenant_state", pa.Table.from_pylist(rows, TENANT_STATE.schema))
    for revision in (1, 2, 3):
        assert held.refresh(1, revision)
        assert held.rows.column("backlog").to_pylist() == [revision]
    assert not held.refresh(1, 3)


def test_of_two_seconds_that_end_at_one_data_time_the_later_one_is_held(tmp_path: Path) -> None:
    chance, lake = random.Random(8), Lake(tmp_path)
    lake.create()
    rows = [_row(chance, 1, 1) | {"key": 0, "as_of": _BEGIN, "second": second, "backlog": second} for second in (8, 7)]
    lake.append("tenant_state", pa.Table.from_pylist(rows, TENANT_STATE.schema))
    held = Held("tenant_state", tmp_path)
    held.refresh()
    assert held.rows.column("backlog").to_pylist() == [8]


def test_what_many_rows_went_through_is_given_back_and_what_a_few_did_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []

    class Pool:
        def release_unused(self) -> None:
            given_back.append(1)

    monkeypatch.setattr("lake.state.held.MANY", 10)
    monkeypatch.setattr("lake.state.held.pa.default_memory_pool", Pool)
    chance, lake = random.Random(9), Lake(tmp_path)
    lake.create()
    held = Held("tenant_state", tmp_path)
    for count, expected in ((20, 1), (3, 1), (4, 1), (11, 2)):
        rows = [_row(chance, 1, count) for _ in range(count)]
        lake.append("tenant_state", pa.Table.from_pylist(rows, TENANT_STATE.schema))
        held.refresh()
        assert len(given_back) == expected


def _row(chance: random.Random, epoch: int, revision: int) -> dict[str, Any]:
    key = chance.randrange(30)
    names = {"broker": f"broker-{key % 2}", "queue": f"queue-{key % 5}", "subscriber": None, "tenant": f"tenant-{key}"}
    row = {field.name: None if field.nullable else _value_of(field.type, chance) for field in TENANT_STATE.schema}
    at = _BEGIN + timedelta(seconds=revision + chance.choice([0, 0, 0, -5]), microseconds=chance.randrange(1000))
    given = {"epoch": epoch, "revision": revision, "key": key, "as_of": at, "backlog": chance.randrange(100)}
    optional = {
        "mean_processing_seconds": chance.choice([None, 0.5]),
        "drain_state": chance.choice(["drains", "grows"]),
    }
    return row | names | given | optional


def _value_of(kind: pa.DataType, chance: random.Random) -> Any:
    while (value := _value(kind, chance)) is None:
        pass
    return value


def _by_key(held: Held) -> dict[int, dict[str, Any]]:
    return {row["key"]: row for row in held.rows.to_pylist()}


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("epoch", "revision")}
