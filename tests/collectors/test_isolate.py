"""A row that cannot be written goes to the rejected records; its neighbours are written exactly once, crash or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collectors.buffer import STEP_BITS, Batch
from collectors.isolate import RowIsolator, halved, sifted
from collectors.kafka.tap.store import Commit, Store
from collectors.nats.memory import state_table
from collectors.records import Event, events_table
from collectors.rollup import Rollup
from collectors.sink import Sink
from lake.errors import SojournError
from lake.store import Lake, LakeError
from tests.support.deep import combinations

POISON = "poison"
AT = 1_780_000_000_000_000


class Crash(BaseException):
    """The process ends here."""


class Poisoned:
    """A lake that raises an error that nobody foresaw over any row with ``POISON`` in it, and crashes when told to."""

    def __init__(self, root: Path, crash_at: int = -1, after: bool = False) -> None:
        self.lake = Lake(root)
        self.appends = 0
        self.crash_at, self.after = crash_at, after
        self.trouble: Exception | None = None

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """As the lake does, or not."""
        self.appends += 1
        if self.appends == self.crash_at and not self.after:
            raise Crash
        crashes = self.appends == self.crash_at
        if self.trouble is not None:
            raise self.trouble
        if name != "rejected_records" and POISON in str(rows.to_pylist()):
            raise Crash if crashes else ZeroDivisionError("nobody foresaw this")
        appended = self.lake.append(name, rows, app_id=app_id, version=version, positions=positions)
        if crashes:
            raise Crash
        return appended

    def committed(self, name: str, app_id: str) -> int | None:
        """As the lake says."""
        return self.lake.committed(name, app_id)

    def compact(self, name: str) -> None:
        """Nothing."""

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """As the lake does."""
        return self.lake.scan(name, columns, since)

    def state_path(self, *parts: str) -> Path:
        """As the lake says."""
        return self.lake.state_path(*parts)


def event(name: str) -> Event:
    """An event of message ``name``."""
    return Event("enqueued", "q", None, None, name, None, AT, AT)


def messages(root: Path) -> list[str]:
    """The messages in the lake, sorted."""
    return sorted(row["message_id"] for row in Lake(root).read("message_events").to_pylist())


def rejected(root: Path) -> list[str]:
    """The messages among the rejected records."""
    raws = [json.loads(row["raw"]) for row in Lake(root).read("rejected_records").to_pylist()]
    return sorted({one["message_id"] for one in raws})


def names(poison: tuple[int, ...], count: int = 11) -> list[str]:
    """Messages, those at ``poison`` poisonous."""
    return [f"{POISON}-{index}" if index in poison else f"m{index:02}" for index in range(count)]


@pytest.mark.parametrize("poison", [(), (0,), (10,), (3, 4, 9), tuple(range(11))])
def test_a_batch_is_halved_until_the_poison_stands_alone(poison: tuple[int, ...]) -> None:
    rows, taken, refused = names(poison), list[str](), list[str]()

    def take(begin: int, stop: int) -> None:
        if any(row.startswith(POISON) for row in rows[begin:stop]):
            raise ZeroDivisionError
        taken.extend(rows[begin:stop])

    halved(0, len(rows), take, lambda begin, stop, _: refused.extend(rows[begin:stop]))
    assert taken == [row for row in rows if not row.startswith(POISON)]
    assert refused == [row for row in rows if row.startswith(POISON)]


def test_an_error_of_the_store_is_nobodys_poison() -> None:
    def take(begin: int, stop: int) -> None:
        raise LakeError("no space")

    with pytest.raises(SojournError):
        halved(0, 4, take, lambda *_: None)


def test_rows_of_which_nothing_can_be_made_are_set_apart() -> None:
    good, bad = sifted(["a", "\ud800", 5, "b"], lambda some: pa.array(some, pa.string()))
    assert good == ["a", "b"] and [one.times for one in bad] == [1, 1]


def batch(poison: tuple[int, ...], position: int = 7, rollup: bool = False) -> Batch:
    """A batch of a tap."""
    rolled = Rollup()
    rolled.add([event("rolled"), event("rolled too")])
    events = [event(name) for name in names(poison, 6)]
    more: dict[str, Any] = {"rollup": rolled, "state": state_table([])} if rollup else {}
    return Batch(position << STEP_BITS, events, **more)


def sink(bronze: Any) -> Sink:
    """A sink of a tap."""
    return Sink(bronze, broker="mq", source="tap", app_id="tap@1")


@pytest.mark.parametrize(("rollup", "after"), combinations([False, True], [False, True]))
def test_wherever_a_crash_comes_a_tap_loses_and_doubles_nothing(tmp_path: Path, rollup: bool, after: bool) -> None:
    poison = (1, 4)
    crash_at = 0
    crashed = True
    while crashed:
        crash_at += 1
        root = tmp_path / str(crash_at)
        Lake(root).create()
        crashed = False
        try:
            sink(Poisoned(root, crash_at, after)).write(batch(poison, rollup=rollup))
        except Crash:
            crashed = True
        again = sink(Poisoned(root))
        if again.recover() != 7 << STEP_BITS:
            again.write(batch(poison, rollup=rollup))
        again.write(Batch(8 << STEP_BITS, [event("next")]))
        assert messages(root) == sorted([*(name for name in names(poison, 6) if POISON not in name), "next"]), crash_at
        assert rejected(root) == ["poison-1", "poison-4"]
        summaries = Lake(root).read("event_summaries").to_pylist()
        assert sum(row["enqueued"] for row in summaries) == (2 if rollup else 0)
    assert crash_at > 6


def test_what_the_store_does_not_take_is_repeated_and_then_taken_once(tmp_path: Path) -> None:
    Lake(tmp_path).create()
    bronze = Poisoned(tmp_path)
    tap = sink(bronze)
    bronze.trouble = LakeError("no space")
    for _ in range(2):
        with pytest.raises(LakeError):
            tap.write(batch((1,)))
    bronze.trouble = None
    assert tap.write(batch((1,))) == 1
    assert len(messages(tmp_path)) == 5 and rejected(tmp_path) == ["poison-1"]


def test_a_tap_of_kafka_goes_on_behind_a_poisonous_row(tmp_path: Path) -> None:
    crash_at = 0
    crashed = True
    while crashed:
        crash_at += 1
        root = tmp_path / str(crash_at)
        Lake(root).create()
        rows = events_table([event(name) for name in names((5,), 7)], "mq", "kafka-tap:mq")
        commit = Commit(rows.drop_columns(["source", "ingested_at", "ingest_date"]), {"kafka-tap:mq#t/0": 7})
        crashed = False
        try:
            Store(Poisoned(root, crash_at), "kafka-tap:mq", 100).write(commit)
        except Crash:
            crashed = True
        store = Store(Poisoned(root), "kafka-tap:mq", 100)
        if store.reached("kafka-tap:mq#t/0") != 7:
            store.write(commit)
        assert messages(root) == ["m00", "m01", "m02", "m03", "m04", "m06"] and rejected(root) == ["poison-5"]


def test_a_second_table_set_apart_begins_anew(tmp_path: Path) -> None:
    Lake(tmp_path).create()
    isolator = RowIsolator(Poisoned(tmp_path), "tap", "tap@1#x")
    for number in (1, 2):
        rows = events_table([event(f"{number}-{name}") for name in names((0,), 4)], "mq", "tap")
        assert isolator.append("message_events", rows, {"tap@1": number}) == 1
    assert len(messages(tmp_path)) == 6 and not isolator.begun


def test_a_row_over_which_the_table_itself_fails_is_set_apart_and_a_table_that_fails_is_waited_for(
    tmp_path: Path,
) -> None:
    Lake(tmp_path).create()
    rows = events_table([event(name) for name in names((), 5)], "mq", "tap")
    far = pa.array([0, 0, 2**31 - 1, 0, 0], pa.date32())
    half = pa.array([b"m0", b"m1", b"m2", b"m3", b"\xed\xa0\x80"], pa.binary()).view(
        pa.string()
    )  # a surrogate, in UTF-8
    for name, column in (("ingest_date", far), ("queue", half)):
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    lake = Lake(tmp_path)
    assert RowIsolator(lake, "tap", "tap@1").append("message_events", rows, {"tap@1": 1}) == 2
    assert messages(tmp_path) == ["m00", "m01", "m03"] and rejected(tmp_path) == ["m02", "m04"]
    shutil.rmtree(lake.path("message_events"))
    with pytest.raises(LakeError):
        halved(0, 5, lambda begin, stop: lake.append("message_events", rows.slice(begin, stop)), lambda *_: None)
