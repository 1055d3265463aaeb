"""Finished state in gold is what the reference counts: after every look at the data, for readers that follow and for
cold ones, in whatever order the same events come, across roll-ups, restarts and corrections."""

from __future__ import annotations

import math
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_analytics.fold.fold
import spark_analytics.fold.intake
from lake.definitions import Definitions
from lake.reader import Reader
from lake.store import Lake
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.outcome import Outcome
from spark_analytics.state.consumers import Consumers
from spark_analytics.state.feed import Came, Feed
from spark_analytics.state.present import Present
from spark_analytics.state.seconds import Seconds
from spark_analytics.state.writer import Writer
from tests.reference.generate import START, Row, generate, logs
from tests.reference.lives import without_duplicates
from tests.reference.partials import add_samples
from tests.reference.replaying import (
    LOOK_BACK,
    Committed,
    append,
    batches_of,
    newest,
    roll_up,
    served,
    without_named_subscribers,
)
from tests.reference.test_views_duckdb import _fast_folder
from tests.spark_analytics.events import after, event
from tests.support.deep import combinations, examples

#: What is compared with what the broker said then: where that minute was folded anew, with what was so at its end.
COMPARED = frozenset({"coverage", "reconciled_backlog"})


def replayed(
    root: Path,
    log: tuple[list[Row], list[Row]],
    seed: int,
    *,
    count: int,
    disorder: float,
    rolled: bool = False,
    hours: bool = False,
    corrected: bool = False,
) -> None:
    """Commit ``log`` in batches, the writer after most of them, with compactions and, where no minutes are ``rolled``
    up (and ``hours``), restarts in between; ``corrected``: what is late is told by corrections, a little at a time."""
    rng = random.Random(seed)
    events, samples = log
    told = Committed(root)
    waiting = sorted(samples, key=lambda sample: sample["sampled_at"])
    writer = Writer(root)
    anew = LOOK_BACK | COMPARED if rolled and corrected else frozenset()
    with Reader(root) as reader:
        for batch in batches_of(events, rng, count, disorder):
            until = max(event["occurred_at"] for event in batch)
            taken = [sample for sample in waiting if sample["sampled_at"] <= until]
            waiting = waiting[len(taken) :]
            told.append(batch, taken)
            if rng.random() < 0.2:
                told.lake.compact("partials")
            if rng.random() < 0.2:
                told.lake.compact("tenant_state")
            if rolled and rng.random() < 0.3:
                back = (130, 400) if corrected else (0, 61, 130, 400)
                writer.step()  # the analysis is ahead of upkeep: by a quarter of an hour, if nothing is told otherwise
                roll_up(told.lake, (newest(told.lake) - rng.choice(back)) // 60 * 60, 60)
            if hours and rng.random() < 0.3:
                writer.step()
                roll_up(told.lake, (newest(told.lake) - rng.choice((0, 1800))) // 3600 * 3600, 3600)
            if not rolled and rng.random() < 0.1:
                writer.close()
                writer = Writer(root)
            if rng.random() < 0.8:
                writer.step(within=0.0 if corrected else math.inf)
                served(reader)
                if rng.random() < 0.25:
                    writer.step()
                    told.compare(reader, without=anew, ages=not rolled)
        told.append([], waiting)
        writer.step()
        told.compare(reader, without=anew, ages=not rolled)
        with Reader(root) as cold:
            told.compare(cold, without=anew, ages=not rolled)
        if not anew:
            told.compare_history(reader)
    writer.close()


@pytest.mark.parametrize("disorder", [0.0, 100.0, 3.0][: examples(2, 3)])
def test_finished_state_tells_every_second_as_the_reference_does(tmp_path: Path, disorder: float) -> None:
    log = generate(22, messages=120, seconds=240, burst=35)
    replayed(tmp_path, log, seed=6, count=16, disorder=disorder)


@pytest.mark.parametrize(("disorder", "named"), combinations([3.0, 0.0], [True, False]))
def test_what_was_told_by_the_second_stays_so_when_minutes_are_rolled_up(
    tmp_path: Path, disorder: float, named: bool
) -> None:
    log = generate(21, messages=110, seconds=500, burst=35)
    replayed(tmp_path, log if named else without_named_subscribers(log), 5, count=16, disorder=disorder, rolled=True)


def test_what_was_told_by_the_second_stays_so_over_minutes_and_hours(tmp_path: Path) -> None:
    """With all that the order of events must not matter for: the log has each of it, on both sides of an hour."""
    events, samples = generate(26, messages=110, seconds=2 * 3600, burst=25)
    for after_it in (False, True):
        part = [row for row in events if (row["occurred_at"] >= START + timedelta(hours=1)) is after_it]
        assert {"delayed", "dead_lettered", "expired", "sidelined"} <= {row["event_type"] for row in part}
        assert {("nats", "audit"), ("nats", "billing"), ("redis", "workers")} <= {
            (row["broker"], row["subscriber"]) for row in part
        }
    replayed(tmp_path, (events, samples[::8]), 8, count=14, disorder=3.0, rolled=True, hours=True)
    widths = Lake(tmp_path).read("partials", columns=["bucket_seconds"]).column(0).to_pylist()
    assert {1, 60, 3600} <= set(widths)


@settings(max_examples=examples(2, 4), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs(), st.integers(0, 1000), st.sampled_from([0.0, 2.0, 100.0]), st.booleans())
def test_any_log_in_any_order_of_commits(log: Any, seed: int, disorder: float, rolled: bool) -> None:
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        replayed(Path(folder), log, seed, count=6, disorder=min(disorder, 2.0) if rolled else disorder, rolled=rolled)


def test_history_that_was_rolled_up_is_told_anew_as_it_stands(tmp_path: Path) -> None:
    """Across minutes and hours, with named subscribers, two brokers and pauses: as of the end of each, judged there."""
    events, samples = generate(25, messages=120, seconds=3 * 3600, burst=30)
    told = Committed(tmp_path)
    told.append(without_duplicates(events), samples[::10])
    for seconds in (60, 3600):
        roll_up(told.lake, (newest(told.lake) - 1800) // seconds * seconds, seconds)
    widths = {row["bucket_seconds"] for row in told.lake.read("partials", columns=["bucket_seconds"]).to_pylist()}
    assert widths == {1, 60, 3600}
    writer = Writer(tmp_path)
    writer.step()
    writer.close()
    anew = told.rolled()
    assert anew.tenant_backlog() != told.reference.tenant_backlog()
    with Reader(tmp_path) as reader:
        told.compare(reader, anew=anew)
        told.compare_history(reader, anew)


@pytest.fixture
def nothing_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_analytics.fold.fold, "LONGEST", 0)
    monkeypatch.setattr(spark_analytics.fold.fold, "UNDOABLE", 5)


@pytest.mark.parametrize("rolled", [True, False][: examples(1, 2)])
def test_what_cannot_be_taken_back_is_corrected(tmp_path: Path, nothing_is_taken_back: None, rolled: bool) -> None:
    log = generate(23, messages=80, seconds=240, burst=30)
    replayed(tmp_path, log, seed=7, count=10, disorder=100.0, rolled=rolled, corrected=True)


def test_what_comes_very_late_is_told_anew_of_its_queue_alone(
    tmp_path: Path, nothing_is_taken_back: None, folded_anew: list[None]
) -> None:
    events, samples = without_named_subscribers(generate(24, messages=160, seconds=240, burst=30))
    events.sort(key=lambda event: event["occurred_at"])
    middle = events[len(events) // 2]["occurred_at"]
    queue = events[0]["broker"], events[0]["queue"]
    late = [event for event in events if (event["broker"], event["queue"]) == queue and event["occurred_at"] < middle]
    late = late[len(late) // 3 :]
    log, writer = Committed(tmp_path), Writer(tmp_path)
    with Reader(tmp_path) as reader:
        batches = list(batches_of([event for event in events if event not in late], random.Random(3), 6, 0.0))
        for batch in batches[:4]:
            log.append(batch, samples)
            samples = []
            writer.step()
        for part in (late[::2], late[1::2]):  # the second time it stands apart
            log.append(part)
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
            log.compare(reader)
            log.compare_history(reader)
        for batch in batches[4:]:
            log.append(batch)
            writer.step()
            log.compare(reader)
        log.compare_history(reader)
    assert len(folded_anew) == 1
    writer.close()


@pytest.mark.parametrize(("restarted", "sampled"), combinations([True, False], [None, "billing"]))
def test_the_past_of_a_queue_is_that_of_whoever_turns_out_to_consume_it(
    tmp_path: Path, restarted: bool, sampled: str | None
) -> None:
    other = {"queue": "other", "message_id": "m9"}
    waits = [event("enqueued", at, enqueued=at, message_id=f"m{at}") for at in (0.0, 1.0, 5.0)]
    works = [event(what, 2000.3 + at, enqueued=0.0, message_id="m0.0", subscriber="billing", attempt=1)
             for at, what in enumerate(("received", "completed"))]  # fmt: skip
    samples = [{"broker": "nats", "queue": "orders", "subscriber": sampled, "sampled_at": after(at), "depth": 3}
               for at in (-5.0, 3.0, 1990.0)]  # fmt: skip
    log, writer = Committed(tmp_path), Writer(tmp_path)
    add_samples(log.lake, samples[:1])
    log.samples += samples[:1]
    writer.step()
    log.append([*waits, event("enqueued", 6.0, **other), event("enqueued", 1995.0, **other)], samples[1:])
    writer.step()
    if restarted:
        writer.close()
        writer = Writer(tmp_path)
    log.append(works)
    writer.step(patient=True)
    assert writer.late
    before = DeltaTable(str(tmp_path / "gold" / "tenant_state")).to_pyarrow_table()
    with Reader(tmp_path) as reader:
        log.compare(reader)
        writer.step()
        assert not writer.late
        log.compare(reader)
        log.compare_history(reader)
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
    log, writer = Committed(tmp_path), Writer(tmp_path)
    with Reader(tmp_path) as reader:
        for start in range(0, len(samples), 20):
            log.append([], samples[start : start + 20])
            writer.step()
            log.compare(reader)
    writer.close()


def test_commits_upkeep_and_a_little_disorder_cost_no_second_reading(tmp_path: Path, folded_anew: list[None]) -> None:
    events, samples = without_named_subscribers(generate(4, messages=200, seconds=500, burst=40))
    log, writer = Committed(tmp_path), Writer(tmp_path)
    for number, batch in enumerate(batches_of(events, random.Random(4), 20, 1.0)):
        log.append(batch, [] if number else samples)
        writer.step()
        if number % 4 == 3:
            roll_up(log.lake, (newest(log.lake) - 90) // 60 * 60, 60)
            writer.step()
            log.lake.compact("partials")
    writer.step()
    with Reader(tmp_path) as reader:
        log.compare(reader, ages=False)
    assert len(folded_anew) == 1
    writer.close()


def test_one_event_from_the_future_does_not_make_every_commit_a_new_beginning(
    tmp_path: Path, folded_anew: list[None]
) -> None:
    events, _ = without_named_subscribers(generate(4, messages=100, seconds=60))
    events = [event for event in events if event["broker"] == "nats"]
    log, writer = Committed(tmp_path), Writer(tmp_path)
    far = dict(events[0]) | {
        "event_type": "enqueued",
        "tenant": "far",
        "event_id": "far",
        "message_id": "far",
        "occurred_at": datetime(2031, 1, 1, tzinfo=UTC),
    }
    for batch in ([far], *batches_of(events, random.Random(4), 6, 1.0)):
        log.append(batch)
        writer.step()
    with Reader(tmp_path) as reader:
        rows = served(reader)["tenant_backlog_now"]
        log.compare(reader)
    assert {row["as_of"].year for row in rows} == {2031}
    assert [row["backlog"] for row in rows if row["tenant"] == "far"] == [1]
    assert len(folded_anew) == 1
    writer.close()


@pytest.mark.parametrize("most", [20, 200_000])
def test_samples_that_go_on_while_events_rest(
    tmp_path: Path, folded_anew: list[None], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(spark_analytics.fold.intake, "MOST_AHEAD", most)
    events, samples = without_named_subscribers(generate(8, messages=60, seconds=200))
    events.sort(key=lambda event: event["occurred_at"])
    log, writer = Committed(tmp_path), Writer(tmp_path)
    log.append(events[: len(events) // 3])
    writer.step()
    samples.sort(key=lambda sample: sample["sampled_at"])
    size = -(-len(samples) // 12)
    with Reader(tmp_path) as reader:
        for start in range(0, len(samples), size):
            log.append([], samples[start : start + size])
            writer.step()
        log.compare(reader)
        assert writer._present is not None
        kept = [sum(map(len, fold._ahead)) for _, fold in writer._present.folds]
        assert max(kept) <= most + size
        log.append(events[len(events) // 3 :])
        writer.step()
        log.compare(reader)
    assert len(folded_anew) == (2 if most == 20 else 1)
    writer.close()


def test_what_is_very_late_is_counted_at_once_and_judged_when_history_is_folded_anew(
    tmp_path: Path, folded_anew: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_analytics.fold.fold, "LONGEST", 0)
    monkeypatch.setattr(spark_analytics.fold.fold, "UNDOABLE", 20)
    events, samples = without_named_subscribers(generate(9, messages=400, seconds=900, burst=40))
    store = Lake(tmp_path)
    store.create()
    batches = list(batches_of(events, random.Random(9), 12, 400.0))
    append(store, batches[0], samples)
    feed = Feed(tmp_path)
    present = Present(feed, Definitions(), unread())
    present.refresh(feed.look(), patient=True)
    for batch in batches[1:]:
        append(store, batch, [])
        present.refresh(feed.look(), patient=True)
    assert present.late and len(folded_anew) == 1
    other = Feed(tmp_path)
    anew = Present(other, Definitions(), unread())
    anew.refresh(other.look())
    for broker, fold in anew.folds:
        assert levels(present.wholes[broker]) == levels(fold)
    assert present.refresh(Came()) and not present.late
    for broker, fold in anew.folds:
        mine, whole = (tenants(broker, each) for each in (present.wholes[broker], fold))
        assert sorted(mine, key=repr) == sorted(whole, key=repr)


def unread() -> Seconds:
    """Rows that nobody takes."""
    return Seconds(Consumers(), flush=lambda: None, ended=lambda: None)


def tenants(broker: str, fold: Fold) -> list[Row]:
    outcome = Outcome(broker, fold)
    columns = outcome.tenant_columns | outcome.columns_of_queues | {"consumer": outcome.keys}
    names = [fold.state.names[key] for key in outcome.keys]
    return [
        dict(zip(columns, map(str, row), strict=True)) | {"consumer": name}
        for name, *row in zip(names, *columns.values(), strict=True)
    ]


def levels(fold: Fold) -> dict[Any, Any]:
    """Of each key what is in its backlog, and when the oldest of it was enqueued."""
    state = fold.state
    tenants = state.tenants(slice(0, len(state.names)))[:, :3].tolist()
    return {
        name: (row, int(state.oldest[key])) for key, (name, row) in enumerate(zip(state.names, tenants, strict=True))
    }
