"""Gaps: history that was put off is in gold once, wherever a crash comes; without Spark, step by step."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lake.errors import UserError
from lake.store import Lake
from lake.tables import MARKS
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import EVENTS
from spark_analytics.batches.tenants import Tenants
from spark_analytics.catching_up import gaps as gaps_module
from spark_analytics.catching_up.filling import Filling, Process, pieces
from spark_analytics.catching_up.gaps import Gap, Gaps, told_open
from spark_analytics.catching_up.log import DataFile
from spark_analytics.catching_up.opening import MOST_GAPS, open_gap
from spark_analytics.catching_up.places import Place
from spark_analytics.catching_up.turns import Turns
from spark_analytics.gold import Gold, checkpoint_path, forget
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.routine import keep
from spark_analytics.maintenance.streams import needed
from tests.reference.partials import marks_of, partials_of
from tests.spark_analytics.events import Row, bronze, event
from tests.spark_analytics.test_transforms import assert_same_partials, counted

NAME = "message_events"
QUERY = "the first query"
#: Smaller than any file: each is a piece of its own.
TINY = 1


def life(number: int) -> list[Row]:
    """Two messages, one of which fails: a commit's events."""
    name: Row = {"message_id": str(number), "tenant": f"t{number % 3}", "enqueued": number}
    other = name | {"message_id": f"{number}b"}
    rows = [
        event("enqueued", number, **name),
        event("received", number + 0.5, attempt=1, **name),
        event("completed", number + 0.7, attempt=1, processing_seconds=0.2, **name),
        event("received", number + 0.5, attempt=1, **other),
        event("failed", number + 0.6, attempt=1, processing_seconds=0.1, **other),
    ]
    return [row | {"event_id": f"{number}-{place}"} for place, row in enumerate(rows)]


def write(lake: Lake, *numbers: int) -> None:
    for number in numbers:
        lake.append(NAME, bronze(life(number)))


def process_for(lake: Lake) -> Callable[[Gap], Process]:
    """What the job gives to the filling, without executors."""

    def process(gap: Gap) -> Process:
        own = Lake(lake.root)
        engine = Engine(
            EVENTS,
            Gold(own.root, gap.gap_id, EVENTS.writes),
            threads=1,
            driver_bytes=1 << 30,
            tenants=Tenants(own, 1000),
            attempts=Attempts(checkpoint_path(own.root, gap.attempts)),
        )
        return lambda number, files: engine.process(number, _no_executors, files)

    return process


def _no_executors() -> Any:
    raise AssertionError("these files are few")


def offset(lake: Lake, place: Place, *, begins: bool = False) -> str:
    """What Spark 4.2 with Delta 4.4 notes of the end of a batch."""
    source = {
        "sourceVersion": 1,
        "reservoirId": str(lake.ensure(NAME).metadata().id),
        "reservoirVersion": place.version,
        "index": place.index,
        "isStartingVersion": begins,
    }
    return "v1\n{}\n" + json.dumps(source)


def note(checkpoint: Path, kind: str, batch: int, text: str) -> None:
    (checkpoint / kind).mkdir(parents=True, exist_ok=True)
    (checkpoint / kind / str(batch)).write_text(text, encoding="utf-8")


def begun(lake: Lake, checkpoint: Path, query_id: str, place: Place, *, finished: bool = True, batch: int = 0) -> None:
    """A streaming query that planned ``batch`` until ``place``, and finished it or was killed before."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query_id}), encoding="utf-8")
    note(checkpoint, "offsets", batch, offset(lake, place))
    if finished:
        note(checkpoint, "commits", batch, "v1\n{}")


def analysed(lake: Lake, commits: int) -> None:
    """The first so many commits are in gold, by the first query."""
    write(lake, *range(commits))
    files = tuple(str(uri) for uri in lake.ensure(NAME).file_uris())
    gap = Gap(QUERY, "", 0, 0, False, None, None, "events-attempts", 0, Place(0))
    process_for(lake)(gap)(0, Files(tuple(f"file://{file}" for file in files), 1))
    begun(lake, checkpoint_path(lake.root, "events"), QUERY, Place(commits + 1))


def start(lake: Lake, most_bytes: int = TINY) -> Gap | None:
    """What the job does before it reads."""
    own = Lake(lake.root)
    gaps = Gaps(own)
    gaps.check(EVENTS.writes)
    opened = open_gap(own, gaps, EVENTS.writes, most_bytes) if most_bytes else None
    gaps.tell()
    return opened


def fill(lake: Lake, piece_bytes: int = TINY, process: Callable[[Gap], Process] | None = None) -> None:
    """Fill all gaps, while the live query has planned its first batch and does nothing."""
    live = Gaps(Lake(lake.root)).live()
    if live.starts is not None and not live.checkpoint.exists():
        begun(lake, live.checkpoint, f"from {live.starts}", Place(live.starts + 1), finished=False)
    filling = Filling(lake.root, process or process_for(lake), Turns(), piece_bytes)
    filling.start()
    while filling.running():
        pass
    filling.stop()
    if filling.error is not None:
        raise filling.error


def before_live(lake: Lake, written: int) -> list[Row]:
    """The events of commits 0 until ``written`` that the live query does not read."""
    starts = Gaps(lake).live().starts
    assert starts is not None
    return [row for number in range(min(written, starts - 1)) for row in life(number)]


def assert_gold_is_of(lake: Lake, events: list[Row]) -> None:
    assert_same_partials(lake.read("partials").to_pylist(), partials_of(events))
    expected = pa.Table.from_pylist(marks_of(events), MARKS.schema).to_pylist()
    assert counted(lake.read("marks").to_pylist()) == counted(expected)


def gap_rows(lake: Lake) -> Counter[tuple[str, bool]]:
    rows = lake.read("gaps", columns=["gap_id", "open"]).to_pylist()
    return Counter((row["gap_id"], row["open"]) for row in rows)


# -- opening ----------------------------------------------------------------------------------------------------------


def test_what_was_put_off_is_told_before_anything_newer_is_read(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    gap = start(lake)
    assert gap is not None
    [row] = lake.read("gaps").to_pylist()
    assert (row["gap_id"], row["open"], row["first_version"], row["last_version"]) == (QUERY, True, 3, 7)
    assert row["events"] == 5 * len(life(0))
    live = Gaps(lake).live()
    assert (live.checkpoint.name, live.starts) == ("events-from-8", 8)
    assert not checkpoint_path(lake.root, "events").exists(), "it would hold bronze for ever"


def test_a_little_is_read_in_its_order(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    assert start(lake, most_bytes=1 << 30) is None
    assert start(lake, most_bytes=0) is None
    assert Gaps(lake).live().checkpoint == checkpoint_path(lake.root, "events")
    assert lake.read("gaps").num_rows == 0


def test_a_commit_that_merges_files_is_neither_history_nor_new(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    lake.compact(NAME)
    gap = start(lake)
    assert gap is not None and (gap.first_version, gap.starts) == (3, 8)
    fill(lake)
    assert_gold_is_of(lake, before_live(lake, 8))


@pytest.mark.parametrize("piece_bytes", [TINY, 1 << 14, 1 << 30])
def test_a_lake_that_was_never_analysed_is_history_but_for_its_newest_commit(lake: Lake, piece_bytes: int) -> None:
    write(lake, *range(9))
    lake.compact(NAME)
    write(lake, 9)
    gap = start(lake)
    assert gap is not None and gap.whole and gap.events == 9 * len(life(0))
    fill(lake, piece_bytes)
    assert_gold_is_of(lake, [row for number in range(9) for row in life(number)])


def test_nothing_or_one_commit_is_no_history(lake: Lake) -> None:
    assert start(lake) is None
    write(lake, 0)
    assert start(lake) is None


def test_where_attempts_are_numbered_by_their_order_that_order_is_kept(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    analysed(lake, 2)
    lake.append(NAME, bronze([event("received", 3, attempt=None)]))
    write(lake, *range(2, 6))
    assert start(lake) is None
    assert "read in its order: it has attempts that nobody numbered" in caplog.text


def test_where_attempts_were_numbered_by_their_order_it_is_kept_too(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 6))
    note(checkpoint_path(lake.root, "events-attempts"), "", 0, "{}")
    (checkpoint_path(lake.root, "events-attempts") / "0").rename(
        checkpoint_path(lake.root, "events-attempts") / "0.json"
    )
    assert start(lake) is None


def test_events_that_have_no_attempt_yet_ask_for_no_order(lake: Lake) -> None:
    analysed(lake, 2)
    lake.append(NAME, bronze([event("enqueued", 3), event("expired", 4, attempt=None)]))
    write(lake, *range(2, 6))
    assert start(lake) is not None


def test_only_so_many_stretches_of_history_wait(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    analysed(lake, 2)
    written = 2
    for _ in range(MOST_GAPS):
        write(lake, written, written + 1)
        written += 2
        assert start(lake) is not None
    write(lake, written, written + 1)
    assert start(lake) is None
    assert f"{MOST_GAPS} stretches of history wait already" in caplog.text
    assert len(told_open(lake)) == MOST_GAPS
    fill(lake)
    assert_gold_is_of(lake, before_live(lake, written))
    assert told_open(lake) == set()


@pytest.mark.parametrize("committed", [(), ("marks",), ("marks", "partials")])
def test_a_batch_that_was_begun_before_is_finished_as_it_was_planned(lake: Lake, committed: tuple[str, ...]) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    checkpoint = checkpoint_path(lake.root, "events")
    note(checkpoint, "offsets", 1, offset(lake, Place(5)))
    planned = [row for number in (2, 3) for row in life(number)]
    rows = EVENTS.compute(bronze(planned).select(EVENTS.schema.names).cast(EVENTS.schema))
    for table in committed:
        lake.append(table, rows[table], app_id=QUERY, version=1)
    gap = start(lake)
    assert gap is not None
    assert (gap.number, gap.begins) == ((2, Place(5)) if len(committed) == 2 else (1, Place(3)))
    fill(lake, 1 << 30)
    assert_gold_is_of(lake, before_live(lake, 8))


def test_a_commit_of_several_files_may_be_half_read(lake: Lake) -> None:
    analysed(lake, 2)
    days = [row | {"ingest_date": date(2026, 3, 1 + number)} for number in range(4) for row in life(2 + number)]
    lake.append(NAME, bronze(days))
    write(lake, 6)
    files = [file.behind for file in gaps_files(lake, Place(3), 4)]
    assert files == [Place(3, 0), Place(3, 1), Place(3, 2), Place(4)]
    note(checkpoint_path(lake.root, "events"), "offsets", 1, offset(lake, Place(3, 1)))
    assert start(lake) is not None
    fill(lake)
    assert lake.committed("partials", QUERY) == 3, "the batch that was planned, and two files"
    assert_gold_is_of(lake, [row for number in range(6) for row in life(number)])


def gaps_files(lake: Lake, begins: Place, until: int) -> list[DataFile]:
    from spark_analytics.catching_up.log import data_files

    return list(data_files(lake.path(NAME), begins, until))


def test_a_table_that_was_rewritten_is_not_taken_for_history(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    analysed(lake, 2)
    write(lake, 2, 3)
    write_deltalake(str(lake.path(NAME)), bronze(life(4)), mode="overwrite")
    write(lake, 5)
    assert start(lake) is None
    assert "only ever appended to" in caplog.text


# -- crashes ----------------------------------------------------------------------------------------------------------


class Killed(Exception):
    """Stands for a SIGKILL."""


class Fuse:
    """Burns through before the ``left``-th durable step from now on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in (
            (gaps_module, "write_atomically"),
            (shutil, "rmtree"),
            (Lake, "append"),
            (Path, "unlink"),
        ):
            patch.setattr(owner, name, self._before(getattr(owner, name)))

    def _before(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Killed
            if self.left is not None:
                self.left -= 1
            return step(*args, **named)

        return stepped


@pytest.mark.timeout(120)
def test_killed_before_any_durable_step_it_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Lake(tmp_path / "template")
    template.create()
    analysed(template, 2)
    write(template, *range(2, 5))
    note(checkpoint_path(template.root, "events"), "offsets", 1, offset(template, Place(4)))
    fuse = Fuse(monkeypatch)
    steps, killed = 0, True
    while killed:
        lake = Lake(tmp_path / str(steps))
        shutil.copytree(template.root, lake.root)
        fuse.left, killed = steps, False
        try:
            start(lake)
            fill(lake)
        except Killed:
            killed = True
        fuse.left = None
        write(Lake(lake.root), 5)  # while it is down
        start(lake)
        fill(lake)
        fresh = Lake(lake.root)
        assert_gold_is_of(fresh, before_live(fresh, 6))
        assert set(gap_rows(fresh).values()) == {1}
        assert told_open(fresh) == set() and Gaps(fresh).open() == []
        steps += 1
    assert steps > 12


def test_a_piece_keeps_its_bounds_when_the_setting_changes_meanwhile(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    start(lake)

    def half(gap: Gap) -> Process:
        def process(number: int, files: Files) -> int:
            rows = bronze([row for place in (2, 3) for row in life(place)])
            marks = EVENTS.compute(rows.select(EVENTS.schema.names).cast(EVENTS.schema))["marks"]
            lake.append("marks", marks, app_id=gap.gap_id, version=number)
            raise Killed

        return process

    two = sum(file.size_bytes for file in gaps_files(lake, Place(3), 5))
    with pytest.raises(Killed):
        fill(lake, two, half)
    start(lake)
    fill(lake, 1 << 30)
    assert_gold_is_of(lake, before_live(lake, 8))


def test_files_go_into_pieces_in_their_order() -> None:
    files = [DataFile(Path(str(number)), 10, 1, Place(number + 1)) for number in range(5)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, None, 20)] == [(2, 2), (4, 2), (5, 1)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, Place(3), 20)] == [(3, 3), (5, 2)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, None, 1)] == [(n, 1) for n in range(1, 6)]
    assert list(pieces([], Place(7), 20)) == [(Place(7), [])]
    assert list(pieces([], None, 20)) == []


# -- what does not belong together ------------------------------------------------------------------------------------


def opened(lake: Lake) -> Gap:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    start(lake)
    [gap] = Gaps(lake).open()
    return gap


def test_without_the_note_of_a_gap_it_is_refused(lake: Lake) -> None:
    opened(lake)
    shutil.rmtree(lake.state_path("checkpoints", "analyze", "gaps"))
    with pytest.raises(UserError, match="the note of how far") as refused:
        Gaps(lake).check(EVENTS.writes)
    assert "--rebuild" in str(refused.value)


def test_a_damaged_note_is_one_clear_line(lake: Lake) -> None:
    gap = opened(lake)
    lake.state_path("checkpoints", "analyze", "gaps", f"{gap.gap_id}.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Gaps(lake).check(EVENTS.writes)


def test_gold_that_lacks_pieces_is_refused(lake: Lake) -> None:
    gap = opened(lake)
    Gaps(lake).write(replace(gap, number=7))
    with pytest.raises(UserError, match="gold lacks history"):
        Gaps(lake).check(EVENTS.writes)


def test_once_it_has_begun_the_newer_query_needs_its_checkpoint(lake: Lake) -> None:
    gap = opened(lake)
    assert not Gaps(lake).check(EVENTS.writes)
    Gaps(lake).write(replace(gap, begun=True))
    assert Gaps(lake).check(EVENTS.writes)


def test_starting_over_leaves_no_gap(lake: Lake) -> None:
    opened(lake)
    forget(lake.root)
    assert Gaps(lake).open() == [] and told_open(lake) == set()
    assert Gaps(lake).live().starts is None


# -- beside others ----------------------------------------------------------------------------------------------------


def test_maintenance_keeps_what_history_needs_and_lets_go_of_it_then(lake: Lake) -> None:
    opened(lake)
    everything = Retention(replaced_for=timedelta(0), bronze_for=timedelta(days=1))
    for _ in range(3):
        done = {one.table: one for one in keep(lake, everything)}
        assert "the analysis has not read further" in done[NAME].tidied.held
    assert lake.read(NAME).num_rows == 0, "old days were dropped"
    fill(lake)
    assert_gold_is_of(lake, before_live(lake, 8))
    table = lake.ensure(NAME)
    log_folder = lake.path(NAME) / "_delta_log"
    begun(lake, Gaps(lake).live().checkpoint, "from 8", Place(table.version() + 1))
    assert needed(lake.root, table, log_folder).files_since is None


def test_marks_of_failures_wait_for_what_history_has_to_say(lake: Lake) -> None:
    opened(lake)
    late = {"message_id": "x", "enqueued": 0}
    settled = [event("failed", 0, attempt=1, **late), event("received", 1, attempt=2, **late)]
    settled.append(event("completed", 400_000, message_id="y", attempt=2))
    rows = EVENTS.compute(bronze(settled).select(EVENTS.schema.names).cast(EVENTS.schema))
    for table in EVENTS.writes:
        lake.append(table, rows[table])
    before = counted(lake.read("marks").to_pylist())
    keep(lake, Retention())
    assert counted(lake.read("marks").to_pylist()) == before
    fill(lake)
    keep(lake, Retention())
    assert counted(lake.read("marks").to_pylist()) != before


def test_the_present_goes_before_history() -> None:
    import threading

    turns, order = Turns(), list[str]()
    entered, waiting = threading.Event(), threading.Event()

    def patient() -> None:
        with turns.patient():
            order.append("history")

    def hurried() -> None:
        waiting.set()
        with turns.hurried():
            order.append("present")

    def working() -> None:
        with turns.patient():
            entered.set()
            waiting.wait()
            while turns._hurried == 0:
                pass

    threads = [threading.Thread(target=working)]
    threads[0].start()
    entered.wait()
    threads += [threading.Thread(target=patient), threading.Thread(target=hurried)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["present", "history"]
