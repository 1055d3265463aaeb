"""Finished state in gold is what the views, worked out from the whole history, have as now: after every look at the
data, for readers that follow and for cold ones, however the same events come."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import lake.now.fold
from lake.reader import Reader
from lake.store import Lake
from spark_analytics.state.writer import Writer
from tests.reference.compare import differences
from tests.reference.generate import Row, generate
from tests.reference.partials import add_samples
from tests.reference.test_now import (
    SERVED,
    append,
    batches_of,
    declared,
    newest,
    roll_up,
    served,
    without_named_subscribers,
)
from tests.reference.test_views_duckdb import judged
from tests.spark_analytics.events import after, event

#: What goes on changing while nothing of the key does: a row has it as it was at its own data time.
AGING = {
    "tenant_backlog_now": {"as_of", "oldest_age_seconds", "share", "coverage", "reconciled_backlog", "arrival_rate",
                           "completion_rate", "drain_eta_seconds"},
    "concurrency_now": {"as_of", "start_rate", "littles_law", "saturation"},
    "queue_health_now": {"as_of", "oldest_age_seconds", "quiet_oldest_age_seconds", "staleness_seconds"},
    "attempt_age_now": set(),
}  # fmt: skip
TABLE_OF = {
    "tenant_backlog_now": "tenant_state",
    "concurrency_now": "tenant_state",
    "queue_health_now": "queue_state",
    "attempt_age_now": "attempt_age",
}
HISTORY = ("tenant_backlog", "concurrency", "queue_health")
NAMES = ("broker", "queue", "subscriber", "tenant", "kind")


def plain(root: Path, view: str, columns: list[str]) -> list[Row]:
    """The newest row of each key, as anybody reads a Delta table who has none of our code."""
    table = DeltaTable(str(root / "gold" / TABLE_OF[view])).to_pyarrow_table()
    names = [name for name in NAMES if name in table.column_names]
    by = ", ".join(names)
    ages = view == "attempt_age_now"
    newest_first = "revision DESC, second DESC" if ages else "as_of DESC, second DESC, revision DESC"
    newest = (
        f"SELECT {', '.join(columns)} FROM rows WHERE epoch = (SELECT MAX(epoch) FROM rows) "
        f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {newest_first}) = 1"
    )
    with duckdb.connect() as connection:
        connection.register("rows", table)
        rows: list[Row] = connection.sql(newest).to_arrow_table().to_pylist()
    return [row for row in rows if not ages or row["count"]]


def plain_history(root: Path, view: str, columns: list[str]) -> list[Row]:
    """Every row of history, as anybody reads Delta tables: an epoch supersedes the others from its first second on,
    a correction what was told of its queue."""
    table, queues = (
        DeltaTable(str(root / "gold" / name)).to_pyarrow_table() for name in (TABLE_OF[view], "queue_state")
    )
    by = ", ".join(name for name in NAMES if name in table.column_names)
    rows = f"""
    WITH begins AS (
      SELECT broker, epoch, MIN(second) AS first FROM queues WHERE corrects IS NULL GROUP BY broker, epoch
    ),
    ends AS (
      SELECT broker, epoch, MIN(first) OVER (
        PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
      ) AS superseded_from
      FROM begins
    )
    SELECT {", ".join(columns)} FROM (
      SELECT * FROM rows JOIN ends USING (broker, epoch)
    WHERE (superseded_from IS NULL OR second < superseded_from) AND NOT EXISTS (
      SELECT 1 FROM queues AS later
      WHERE later.broker = rows.broker AND later.queue = rows.queue
        AND later.revision > rows.revision AND later.corrects <= rows.second
    )
    QUALIFY ROW_NUMBER() OVER (PARTITION BY {by}, second ORDER BY epoch DESC, revision DESC) = 1
    ) WHERE happened
    """
    with duckdb.connect() as connection:
        connection.register("rows", table)
        connection.register("queues", queues)
        return connection.sql(rows).to_arrow_table().to_pylist()


def compare_history(reader: Reader) -> None:
    """Whatever history comes to by partials, finished state has: by the views, and as anybody reads the tables."""
    expected = declared(reader.root, HISTORY)
    for view in HISTORY:
        wanted, rows = (
            judged(view, each) for each in (expected[view], reader.query(f"SELECT * FROM {view}").to_pylist())
        )
        assert wanted and differences(wanted, rows) == [], view
        assert differences(wanted, plain_history(reader.root, f"{view}_now", list(wanted[0]))) == [], view


def compare(reader: Reader) -> None:
    expected, actual = declared(reader.root), served(reader)
    for view in SERVED:
        assert differences(expected[view], actual[view]) == [], view
    for view, aging in AGING.items():
        rows = reader.query(f"SELECT * FROM {view}")
        columns = [name for name in rows.column_names if name not in aging]
        wanted = [{name: row[name] for name in columns} for row in rows.to_pylist()]
        for row in wanted:
            if "histogram" in row:  # as the reference has it
                row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
        assert differences(wanted, plain(reader.root, view, columns)) == [], view


def replayed(
    root: Path,
    log: tuple[list[Row], list[Row]],
    seed: int,
    *,
    count: int,
    disorder: float,
    rolled: bool = True,
    within: float = math.inf,
) -> None:
    """Commit ``log`` in batches, the writer after most of them, upkeep in between; ``within`` for its steps."""
    rng = random.Random(seed)
    events, samples = log
    store = Lake(root)
    waiting = sorted(samples, key=lambda sample: sample["sampled_at"])
    writer = Writer(root)
    with Reader(root) as reader:
        for batch in batches_of(events, rng, count, disorder):
            until = max(event["occurred_at"] for event in batch)
            taken = [sample for sample in waiting if sample["sampled_at"] <= until]
            waiting = waiting[len(taken) :]
            append(store, batch, taken)
            if rng.random() < 0.2:
                store.compact("partials")
            if rng.random() < 0.2:
                store.compact("tenant_state")
            if rng.random() < 0.25 and rolled:
                roll_up(store, (newest(store) - rng.choice((0, 61, 130, 400))) // 60 * 60, 60)
            if rng.random() < 0.1:
                writer.close()
                writer = Writer(root)
            if rng.random() < 0.8:
                writer.step(within=within)
                served(reader)
                if rng.random() < 0.25:
                    writer.step()
                    compare(reader)
        add_samples(store, waiting) if waiting else None
        writer.step()
        compare(reader)
        with Reader(root) as cold:
            compare(cold)
        if not rolled:
            compare_history(reader)
    writer.close()


@pytest.mark.parametrize("disorder", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("named", [True, False])
def test_readers_of_state_have_what_history_comes_to(tmp_path: Path, disorder: float, named: bool) -> None:
    log = generate(21, messages=300, seconds=900, burst=40)
    replayed(tmp_path, log if named else without_named_subscribers(log), seed=5, count=16, disorder=disorder)


@pytest.mark.parametrize("disorder", [0.0, 3.0, 100.0])
def test_finished_state_tells_every_second_of_history(tmp_path: Path, disorder: float) -> None:
    log = generate(22, messages=200, seconds=300, burst=40)
    replayed(tmp_path, log, seed=6, count=16, disorder=disorder, rolled=False)


def test_history_that_was_rolled_up_is_told_anew_as_it_stands(tmp_path: Path) -> None:
    """Across minutes and hours, with named subscribers, two brokers and pauses."""
    events, samples = generate(25, messages=200, seconds=3 * 3600)
    samples = samples[::10]
    store = Lake(tmp_path)
    append(store, events, samples)
    for seconds in (60, 3600):
        roll_up(store, (newest(store) - 1800) // seconds * seconds, seconds)
    widths = {row["bucket_seconds"] for row in store.read("partials", columns=["bucket_seconds"]).to_pylist()}
    assert widths == {1, 60, 3600}
    writer = Writer(tmp_path)
    writer.step()
    writer.close()
    with Reader(tmp_path) as reader:
        compare(reader)
        compare_history(reader)


@pytest.fixture
def nothing_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake.now.fold, "LONGEST", 0)
    monkeypatch.setattr(lake.now.fold, "UNDOABLE", 5)


@pytest.mark.parametrize("rolled", [False, True])
def test_what_cannot_be_taken_back_is_corrected(tmp_path: Path, nothing_is_taken_back: None, rolled: bool) -> None:
    log = generate(23, messages=80, seconds=240, burst=30)
    replayed(tmp_path, log, seed=7, count=10, disorder=100.0, rolled=rolled, within=0.0)


def test_what_comes_very_late_is_told_anew_of_its_queue_alone(
    tmp_path: Path, nothing_is_taken_back: None, folded_anew: list[None]
) -> None:
    events, samples = without_named_subscribers(generate(24, messages=160, seconds=240, burst=30))
    events.sort(key=lambda event: event["occurred_at"])
    middle = events[len(events) // 2]["occurred_at"]
    queue = events[0]["broker"], events[0]["queue"]
    late = [event for event in events if (event["broker"], event["queue"]) == queue and event["occurred_at"] < middle]
    late = late[len(late) // 3 :]
    store, writer = Lake(tmp_path), Writer(tmp_path)
    store.create()
    with Reader(tmp_path) as reader:
        batches = list(batches_of([event for event in events if event not in late], random.Random(3), 6, 0.0))
        for batch in batches[:4]:
            append(store, batch, samples)
            samples = []
            writer.step()
        for part in (late[::2], late[1::2]):  # the second time it stands apart
            append(store, part, [])
            writer.step(patient=True)
            assert writer.late
            before = told(tmp_path)
            steps = 0
            while writer.late and steps < 1000:  # live rows could go on between
                writer.step(within=0.0)
                steps += 1
            assert not writer.late and steps > 3
            after = told(tmp_path)
            assert [rows for rows in after if rows[1:3] != queue] == [rows for rows in before if rows[1:3] != queue]
            assert {row[0] for row in after} == {row[0] for row in before}, "no epoch begins"
            assert len(after) > len(before)
            compare(reader)
            compare_history(reader)
        for batch in batches[4:]:
            append(store, batch, [])
            writer.step()
            compare(reader)
        compare_history(reader)
    assert len(folded_anew) == 1
    writer.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("sampled", [None, "billing"])
def test_the_past_of_a_queue_is_that_of_whoever_turns_out_to_consume_it(
    tmp_path: Path, restarted: bool, sampled: str | None
) -> None:
    other = {"queue": "other", "message_id": "m9"}
    waits = [event("enqueued", at, enqueued=at, message_id=f"m{at}") for at in (0.0, 1.0, 5.0)]
    works = [event(what, 2000.3 + at, enqueued=0.0, message_id="m0.0", subscriber="billing", attempt=1)
             for at, what in enumerate(("received", "completed"))]  # fmt: skip
    samples = [{"broker": "nats", "queue": "orders", "subscriber": sampled, "sampled_at": after(at), "depth": 3}
               for at in (-5.0, 3.0, 1990.0)]  # fmt: skip
    store, writer = Lake(tmp_path), Writer(tmp_path)
    store.create()
    add_samples(store, samples[:1])
    writer.step()
    append(store, [*waits, event("enqueued", 6.0, **other), event("enqueued", 1995.0, **other)], samples[1:])
    writer.step()
    if restarted:
        writer.close()
        writer = Writer(tmp_path)
    append(store, works, [])
    writer.step(patient=True)
    assert writer.late
    before = DeltaTable(str(tmp_path / "gold" / "tenant_state")).to_pyarrow_table()
    with Reader(tmp_path) as reader:
        compare(reader)
        writer.step()
        assert not writer.late
        compare(reader)
        compare_history(reader)
    after_it = DeltaTable(str(tmp_path / "gold" / "tenant_state")).to_pyarrow_table()
    rows = [pc.sum(pc.equal(each.column("queue"), "other")).as_py() for each in (before, after_it)]
    assert rows[0] == rows[1], "of other queues nothing is told again"
    writer.close()


def told(root: Path) -> list[tuple[Any, ...]]:
    """Every row of finished state, by its epoch and whose it is."""
    found: list[tuple[Any, ...]] = []
    for name in ("tenant_state", "queue_state"):
        for row in DeltaTable(str(root / "gold" / name)).to_pyarrow_table().to_pylist():
            found.append((row["epoch"], row["broker"], row["queue"], repr(row)))
    return sorted(found)


def test_queues_that_are_sampled_alone_have_a_state(tmp_path: Path) -> None:
    _, samples = generate(6, messages=1, seconds=60)
    samples.sort(key=lambda sample: sample["sampled_at"])
    store, writer = Lake(tmp_path), Writer(tmp_path)
    store.create()
    with Reader(tmp_path) as reader:
        for start in range(0, len(samples), 20):
            add_samples(store, samples[start : start + 20])
            writer.step()
            compare(reader)
    writer.close()
