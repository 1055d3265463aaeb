"""What is deferred after a long downtime and what is not, and what does not belong together; without Spark."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from datetime import date

import pytest
from deltalake import write_deltalake

from lake.errors import UserError
from lake.store import Lake
from spark_analytics.batches.flows import EVENTS
from spark_analytics.catching_up.gaps import Gaps, told_open
from spark_analytics.catching_up.opening import MOST_GAPS
from spark_analytics.catching_up.places import Place
from spark_analytics.gold import checkpoint_path, forget
from tests.spark_analytics.events import bronze, event
from tests.spark_analytics.gaps import (
    NAME,
    QUERY,
    TINY,
    analysed,
    assert_gold_is_of,
    before_live,
    fill,
    gaps_files,
    life,
    note,
    offset,
    opened,
    start,
    write,
)


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


def test_a_table_that_was_rewritten_is_not_taken_for_history(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    analysed(lake, 2)
    write(lake, 2, 3)
    write_deltalake(str(lake.path(NAME)), bronze(life(4)), mode="overwrite")
    write(lake, 5)
    assert start(lake) is None
    assert "only ever appended to" in caplog.text


# -- what does not belong together ------------------------------------------------------------------------------------


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
