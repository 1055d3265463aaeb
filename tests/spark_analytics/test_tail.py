"""What comes behind a batch that Spark has open is in gold at once, and once; without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from lake.store import Lake
from spark_analytics import tail as tail_module
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import EVENTS
from spark_analytics.batches.tenants import Tenants
from spark_analytics.catching_up.gaps import Gaps, attempts_of
from spark_analytics.catching_up.log import data_files
from spark_analytics.catching_up.opening import open_gap
from spark_analytics.catching_up.places import Checkpoint, Place
from spark_analytics.gold import Gold, checkpoint_path
from spark_analytics.tail import Tail
from tests.reference.lives import numbered
from tests.spark_analytics.events import Row, bronze, event
from tests.spark_analytics.gaps import NAME, QUERY, TINY, assert_gold_is_of, begun, life, note, offset, write
from tests.spark_analytics.test_catching_up_crashes import Fuse, Killed


class Query:
    """A process of the analysis over ``lake``: what Spark and the job do, batch by batch."""

    def __init__(self, lake: Lake) -> None:
        self.lake = Lake(lake.root)
        self.folder = checkpoint_path(lake.root, "events")
        self.checkpoint = Checkpoint(self.folder)
        self.engine = Engine(
            EVENTS,
            Gold(lake.root, QUERY, EVENTS.writes),
            threads=1,
            driver_bytes=1 << 30,
            tenants=Tenants(self.lake, 1000),
            attempts=Attempts(attempts_of(self.folder)),
        )
        table = self.lake.path(NAME)
        self.tail = Tail(self.engine, table, table, self.folder, str(self.lake.ensure(NAME).metadata().id))

    def batch(self) -> int | None:
        """Spark's next batch, of all there is, or the one again that it had not finished; what the tail says of it."""
        planned, finished = self.checkpoint.planned(), self.checkpoint.finished()
        number = planned[-1] if planned and planned[-1] not in finished else len(planned)
        if number not in planned:
            begun(self.lake, self.folder, QUERY, Place(self.lake.version(NAME) + 1), finished=False, batch=number)
        begins = self._end(number - 1) if number else 1
        files = list(data_files(self.lake.path(NAME), Place(begins), self._end(number)))
        found = Files.of([file.path for file in files], sum(file.size_bytes for file in files), self.lake.path(NAME))
        self.engine.process(number, _no_executors, found, self.tail.taken(number))
        self.number = number
        return self.tail.begin(number)

    def follow(self) -> int | None:
        """Read on to the newest commit."""
        return self.tail.read_on(self.lake.version(NAME))

    def finish(self) -> None:
        """Spark notes the batch as done."""
        note(self.folder, "commits", self.number, "v1\n{}")

    def _end(self, number: int) -> int:
        found = self.checkpoint.offset(number, str(self.lake.ensure(NAME).metadata().id))
        assert found is not None
        return found.place.version


def _no_executors() -> Any:
    raise AssertionError("these files are few")


def lives(*numbers: int) -> list[Row]:
    return [row for number in numbers for row in life(number)]


def test_what_comes_behind_a_batch_is_in_gold_without_another_and_the_next_one_leaves_it_out(lake: Lake) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    write(lake, 1, 2)
    assert query.follow() == len(lives(1, 2))
    write(lake, 3)
    assert query.follow() == len(lives(3))
    assert_gold_is_of(lake, lives(0, 1, 2, 3))
    assert query.checkpoint.planned() == [0]
    query.finish()
    write(lake, 4)
    assert query.batch() == lake.version(NAME) + 1
    assert query.checkpoint.planned() == [0, 1]
    assert_gold_is_of(lake, lives(0, 1, 2, 3, 4))
    query.finish()
    query.batch()
    assert_gold_is_of(lake, lives(0, 1, 2, 3, 4))


def unnumbered(number: int) -> list[Row]:
    """A commit whose source numbers no attempts, of messages that go on from commit to commit."""
    name: Row = {"message_id": f"m{number % 2}", "tenant": "t", "enqueued": 0}
    rows = [event("received", number, **name), event("failed", number + 0.5, **name)]
    return [row | {"event_id": f"u{number}-{place}"} for place, row in enumerate(rows)]


@pytest.mark.timeout(900)
def test_killed_before_any_durable_step_it_loses_and_doubles_nothing_and_numbers_attempts_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuse = Fuse(monkeypatch, "spark_analytics.batches.attempts.write_atomically")

    def lived(lake: Lake, *numbers: int) -> None:
        for number in numbers:
            lake.append(NAME, bronze([*life(number), *unnumbered(number)]))

    template = Lake(tmp_path / "template")
    template.create()
    lived(template, 0)
    first = Query(template)
    first.batch()
    steps, killed = 0, True
    while killed:
        lake = Lake(tmp_path / str(steps))
        shutil.copytree(template.root, lake.root)
        lived(lake, 1, 2)
        query = Query(lake)
        query.batch()
        killed = False
        try:
            fuse.left = steps
            query.follow()
            fuse.left = None
            lived(Lake(lake.root), 3)
            fuse.left = max(0, steps - 4)
            query.follow()
            query.finish()
            query.batch()
        except Killed:
            killed = True
        fuse.left = None
        written = lake.ensure(NAME).version()
        lived(Lake(lake.root), written)  # while it is down
        again = Query(lake)
        again.batch()
        lived(Lake(lake.root), written + 1)
        again.follow()
        again.finish()
        again.batch()
        events = [row for number in range(written + 2) for row in (*life(number), *unnumbered(number))]
        assert_gold_is_of(lake, numbered(events))
        steps += 1
    assert steps > 8


def test_after_a_while_or_where_much_waits_it_is_spark_s_turn(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    write(lake, 1)
    for name, most in (("OPEN_SECONDS", 0.0), ("MOST_BYTES", 1), ("MOST_COMMITS", 0)):
        with monkeypatch.context() as patched:
            patched.setattr(tail_module, name, most)
            assert query.tail.begin(0) == 2
            assert query.follow() is None, name
    query.tail.begin(0)
    assert query.follow() == len(lives(1))


def test_what_changes_the_table_and_not_only_its_rows_is_for_spark_to_judge(lake: Lake) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    lake.ensure(NAME).alter.set_table_properties({"delta.logRetentionDuration": "interval 4321 seconds"})
    write(lake, 1)
    assert query.follow() is None
    query.finish()
    query.batch()
    write_deltalake(lake.ensure(NAME), bronze(life(2)), mode="overwrite")
    assert query.follow() is None


def test_a_hole_in_the_log_is_for_spark_to_tell_of(lake: Lake) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    write(lake, 1, 2)
    (lake.path(NAME) / "_delta_log" / f"{2:020d}.json").unlink()
    assert query.tail.read_on(3) is None


@pytest.mark.parametrize(("index", "begins"), [(0, False), (-1, True)], ids=["within a version", "still beginning"])
def test_behind_a_batch_that_left_data_behind_nothing_is_read_on(lake: Lake, index: int, begins: bool) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    note(query.folder, "offsets", 0, offset(lake, Place(1, index), begins=begins))
    assert query.tail.begin(0) is None


def test_history_that_is_put_off_begins_behind_what_was_read_on(lake: Lake) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    write(lake, 1, 2)
    query.follow()
    write(lake, 3, 4, 5)
    gap = open_gap(lake, Gaps(lake), EVENTS.writes, TINY)
    assert gap is not None and gap.begins == Place(4)


def test_history_is_read_in_its_order_where_what_was_read_on_is_half_done(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, 0)
    query = Query(lake)
    query.batch()
    write(lake, 1)
    fuse = Fuse(monkeypatch)
    fuse.left = 1
    with pytest.raises(Killed):
        query.follow()
    fuse.left = None
    assert len(set(query.engine.gold.tail().reached())) == 2
    write(lake, 2, 3, 4)
    assert open_gap(lake, Gaps(lake), EVENTS.writes, TINY) is None
