"""Finished state gets coarser with age, loses no key's newest row, and leaves alone what is being written."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import spark_analytics.fold.fold
from lake.errors import UserError
from lake.finished import QUEUE_STATE
from lake.reader import Reader
from lake.store import Lake
from spark_analytics.maintenance.retention import Retention
from spark_analytics.maintenance.slices import MOST_ROWS
from spark_analytics.maintenance.states import Epochs, prune, pruned
from spark_analytics.run import rebuild_state
from spark_analytics.state import ages, feed
from spark_analytics.state.feed import Came, Feed
from spark_analytics.state.runner import StateRunner
from spark_analytics.state.writer import Writer, last_revision
from tests.reference.compare import differences
from tests.reference.generate import generate
from tests.reference.lives import Key, Queue, numbered, without_duplicates
from tests.reference.reference import Reference
from tests.reference.replaying import Committed, append, batches_of, served, without_named_subscribers
from tests.support.deep import examples
from tests.support.finishing import finish
from tests.support.waiting import wait_until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RETENTION = Retention(timedelta(minutes=15), timedelta(hours=24), timedelta(days=400))

KEY = ("broker", "queue", "subscriber", "tenant", "second")


def rows_of(instants: list[tuple[str, float]], epoch: int = 1) -> pa.Table:
    """Rows of queue_state: (queue, seconds before now), in the order of their revisions."""
    blank = {field.name: _blank(field.type) for field in QUEUE_STATE.schema if not field.nullable}
    rows = [
        blank
        | {"epoch": epoch, "revision": number, "key": 0, "broker": "nats", "queue": queue}
        | {"as_of": NOW - timedelta(seconds=ago)}
        for number, (queue, ago) in enumerate(instants)
    ]
    return pa.Table.from_pylist(rows, QUEUE_STATE.schema)


def _blank(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_timestamp(kind):
        return NOW
    return "" if pa.types.is_string(kind) else 0


def kept(instants: list[tuple[str, float]]) -> list[int]:
    return pruned(rows_of(instants), RETENTION, NOW).column("revision").to_pylist()


def test_within_a_second_minute_or_hour_the_newest_row_of_a_key_stays() -> None:
    day = 86_400.0
    assert kept([("a", 10.4), ("a", 10.2), ("b", 10.3), ("a", 9.9)]) == [1, 2, 3]
    assert kept([("a", 1800 + 30), ("a", 1800 + 20), ("a", 1800 - 5)]) == [1, 2]
    assert kept([("a", 2 * day + 1800), ("a", 2 * day + 60), ("a", 2 * day - 60)]) == [1, 2]
    assert kept([("a", 401 * day), ("a", 10)]) == [1]
    assert kept([("a", 1800 + 20), ("a", 1800 + 30)]) == [0], "a row that corrects an earlier second is not the newest"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3e5)), max_size=40))
def test_thinning_keeps_the_newest_of_each_window_and_thins_no_further(instants: list[tuple[str, float]]) -> None:
    instants.sort(key=lambda instant: -instant[1])
    rows = pruned(rows_of(instants), RETENTION, NOW)
    assert pruned(rows, RETENTION, NOW).equals(rows)
    for queue in {queue for queue, _ in instants}:
        newest = max((-ago // 1, number) for number, (name, ago) in enumerate(instants) if name == queue)[1]
        assert newest in rows.column("revision").to_pylist()


def test_time_of_which_nothing_is_told_is_worth_no_commit(tmp_path: Path) -> None:
    """However many quarters of an hour lie between the first and the last row of more than one file."""
    lake, day = Lake(tmp_path), 86_400.0
    for first in (1.0, 2.0):
        lake.append("queue_state", rows_of([("a", 4 * day + first), ("a", day / 2 + first)]))
    lake.append("queue_state", rows_of([("a", 1.0)], epoch=2))
    version = lake.version("queue_state")
    assert prune(lake, "queue_state", RETENTION, NOW, lambda: Epochs(lake), thorough=True) == 2
    assert lake.version("queue_state") - version == 3, "two for what is days old, one for what is hours old"


def test_readers_notice_nothing_of_upkeep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_analytics.state.writer.MOST_REVISIONS", 5)
    events, samples = without_named_subscribers(generate(3, messages=200, seconds=600))
    lake, writer = Lake(tmp_path), Writer(tmp_path)
    newest = max(event["occurred_at"] for event in events) + timedelta(days=2)
    with Reader(tmp_path) as warm:
        for batch in batches_of(events, random.Random(1), 60, 1.0):
            append(lake, batch, samples)
            samples = []
            writer.step()
            served(warm)
        before = {name: lake.ensure(name).to_pyarrow_table().num_rows for name in ("tenant_state", "queue_state")}
        wanted = served(warm)
        gone = {name: prune(lake, name, RETENTION, newest, lambda: Epochs(lake), thorough=True) for name in before}
        assert all(gone.values())
        assert {name: lake.ensure(name).to_pyarrow_table().num_rows + gone[name] for name in before} == before
        assert served(warm) == wanted
        with Reader(tmp_path) as cold:
            assert _sorted(served(cold)) == _sorted(wanted)
    writer.close()


#: What comes late is taken back and told anew, or told by corrections; in a deep run also what is in order throughout.
LATE = [(30.0, 900), (60.0, 0), (0.0, 900)]


@pytest.mark.parametrize(("disorder", "taken_back"), LATE[: examples(1, 3)])
def test_upkeep_leaves_each_second_of_history_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disorder: float, taken_back: int
) -> None:
    if taken_back == 0:  # what comes late is told by corrections
        monkeypatch.setattr(spark_analytics.fold.fold, "LONGEST", 0)
        monkeypatch.setattr(spark_analytics.fold.fold, "UNDOABLE", 5)
    monkeypatch.setattr("spark_analytics.state.writer.MOST_REVISIONS", 4)
    monkeypatch.setattr("spark_analytics.maintenance.states.MANY_FILES", 2)
    events, samples = without_named_subscribers(generate(5, messages=150, seconds=300, burst=30))
    log, writer = Committed(tmp_path), Writer(tmp_path)
    store = log.lake
    for batch in batches_of(events, random.Random(2), 20, disorder):
        log.append(batch, samples)
        samples = []
        writer.step()
    writer.close()
    now = max(event["occurred_at"] for event in events)
    with Reader(tmp_path) as reader:
        log.compare_history(reader)
        rows = {name: store.ensure(name).to_pyarrow_table() for name in ("tenant_state", "queue_state")}
        assert disorder == 0 or pc.any(pc.is_valid(rows["queue_state"].column("corrects"))).as_py()
        epochs = cache(lambda: Epochs(store))
        tables = "queue_state", "tenant_state"
        assert sum(prune(store, name, RETENTION, now, epochs, thorough=True) for name in tables)
        assert all(store.ensure(name).to_pyarrow_table().num_rows < each.num_rows for name, each in rows.items())
        log.compare_history(reader)


@pytest.mark.parametrize("most", [MOST_ROWS, 100], ids=["at once", "in parts"])
def test_history_is_told_by_the_minute_before_its_hour_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("spark_analytics.maintenance.states.MOST_ROWS", most)
    monkeypatch.setattr("spark_analytics.state.writer.MOST_REVISIONS", 2)
    monkeypatch.setattr("spark_analytics.maintenance.states.MANY_FILES", 1000)  # none is rewritten for being small
    store, writer = Lake(tmp_path), Writer(tmp_path)
    events, _ = without_named_subscribers(generate(3, messages=300, seconds=600))
    for batch in batches_of(events, random.Random(1), 20, 0.0):
        append(store, batch, [])
        writer.step()
    writer.close()
    begins = min(event["occurred_at"] for event in events)
    now = begins.replace(minute=0, second=0) + timedelta(minutes=31)
    assert begins >= now - timedelta(minutes=31) and max(event["occurred_at"] for event in events) < now
    before = store.ensure("tenant_state").version()
    assert prune(store, "tenant_state", RETENTION, now, lambda: Epochs(store), thorough=True)
    assert (store.ensure("tenant_state").version() - before > 1) == (most < MOST_ROWS)
    rows = store.read("tenant_state")
    closed = rows.filter(pc.less(rows.column("epoch"), pc.max(rows.column("epoch"))))
    minutes = [
        (*key, second // 60) for *key, second in zip(*(closed.column(name).to_pylist() for name in KEY), strict=True)
    ]
    assert minutes and len(minutes) == len(set(minutes))


def test_history_by_the_minute_and_hour_has_the_newest_row_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named subscribers, two brokers, pauses; every row is what the reference counts for its second."""
    monkeypatch.setattr("spark_analytics.state.writer.MOST_REVISIONS", 2)
    monkeypatch.setattr("spark_analytics.maintenance.states.MANY_FILES", 1)
    events, samples = generate(26, messages=80, seconds=9000, burst=30)
    samples = samples[::10]
    events = numbered(without_duplicates(events))
    events.sort(key=lambda event: event["occurred_at"])
    store, writer = Lake(tmp_path), Writer(tmp_path)
    append(store, events[:-8], samples)
    writer.step()
    append(store, events[-8:], [])
    writer.step()
    writer.close()
    reference = Reference(events, samples)
    now = max(event["occurred_at"] for event in events)
    kept = Retention(seconds_for=timedelta(minutes=15), minutes_for=timedelta(hours=1), hours_for=timedelta(days=1))
    epochs = cache(lambda: Epochs(store))
    gone = {name: prune(store, name, kept, now, epochs, thorough=True) for name in ("queue_state", "tenant_state")}
    assert all(gone.values())
    instants: dict[tuple[Any, ...], list[int]] = {
        (*key.queue, key.tenant): reference.key_instants(key) for key in reference.keys
    }
    instants |= {(*queue, None): reference.queue_instants(queue) for queue in reference.queues()}
    widths = set()
    for view in ("tenant_backlog", "concurrency", "queue_health"):
        told: dict[tuple[Any, ...], list[int]] = {}
        with Reader(tmp_path) as reader:
            rows = reader.query(f"SELECT * FROM {view}").to_pylist()
        for row in rows:
            second = int((row["as_of"] - timedelta(microseconds=1)).timestamp())
            queue = Queue(row["broker"], row["queue"], row["subscriber"] or "")
            of = queue if view == "queue_health" else Key(queue, row["tenant"])
            names = {name: row[name] for name in ("as_of", "broker", "queue", "subscriber", "tenant") if name in row}
            assert differences([names | getattr(reference, f"_{view}")(of, second)], [row]) == []
            told.setdefault((*queue, row.get("tenant")), []).append(second)
        for name, seconds in told.items():
            assert len(seconds) == len(set(seconds))
            shown = set()
            for second in instants[name]:
                age = now.timestamp() - second - 1
                width = 3600 if age > 3600 else 60 if age > 900 else 1
                after = [each for each in seconds if second <= each < second // width * width + width]
                assert after, (view, name, second)
                shown |= set(after)
                widths.add(width)
            assert shown == set(seconds), "a row of a time in which nothing happened"
        assert told.keys() == {name for name in instants if (name[3] is None) == (view == "queue_health")}
        assert len(rows) < sum(len(instants[name]) for name in told)
    assert widths == {1, 60, 3600}


def _finished(root: Path) -> Committed:
    """What a lake with finished state is of."""
    log = Committed(root)
    log.append(*without_named_subscribers(generate(7, messages=120, seconds=200, burst=30)))
    finish(root)
    return log


def _spoil_ages(log: Committed, queue: str | None = None) -> int:
    """Have ages, of ``queue`` alone, wrong, and some of a time when nothing was; how many rows there are."""
    lake = log.lake
    rows = lake.ensure("age_state").to_pyarrow_table()
    mine = pa.array([queue in (None, name) for name in rows.column("queue").to_pylist()])
    its, others = rows.filter(mine), rows.filter(pc.invert(mine))
    place = rows.schema.get_field_index("bucket_start")
    wrong = its.set_column(place, rows.schema.field(place), pa.array([NOW] * len(its), rows.schema.field(place).type))
    spoilt = pa.concat_tables([its[len(its) // 3 :], wrong, others])
    write_deltalake(lake.ensure("age_state"), spoilt, mode="overwrite")
    with pytest.raises(AssertionError):
        _check_ages(log, queue)
    return len(rows)


def _check_ages(log: Committed, queue: str | None = None) -> None:
    with Reader(log.lake.root) as reader:
        rows = reader.query("SELECT * FROM attempt_age").to_pylist()
    of_queue = ([row for row in each if queue in (None, row["queue"])] for each in (log.reference.attempt_age(), rows))
    assert differences(*of_queue) == []


def test_state_that_was_spoilt_is_told_anew(tmp_path: Path) -> None:
    log = _finished(tmp_path)
    lake = log.lake
    rows = lake.ensure("tenant_state").to_pyarrow_table()
    wrong = rows.set_column(
        rows.schema.get_field_index("backlog"), rows.schema.field("backlog"), pa.array([7] * len(rows))
    )
    write_deltalake(
        lake.ensure("tenant_state"), wrong.filter(pa.array([row % 3 > 0 for row in range(len(rows))])), mode="overwrite"
    )
    with Reader(tmp_path) as reader, pytest.raises(AssertionError):
        log.compare_history(reader)
    _spoil_ages(log)
    assert rebuild_state(tmp_path) >= len(rows)
    _check_ages(log)
    _compare(log, tmp_path)


def test_the_state_of_one_queue_is_told_anew(tmp_path: Path) -> None:
    log = _finished(tmp_path)
    lake, events = log.lake, log.events
    broker, queue = events[0]["broker"], events[0]["queue"]
    rows = lake.ensure("tenant_state").to_pyarrow_table()
    its = pc.and_(pc.equal(rows.column("broker"), broker), pc.equal(rows.column("queue"), queue))
    wrong = pc.if_else(its, 7, rows.column("backlog"))
    place = rows.schema.get_field_index("backlog")
    spoilt = rows.set_column(place, rows.schema.field("backlog"), wrong)
    write_deltalake(lake.ensure("tenant_state"), spoilt, mode="overwrite")
    with Reader(tmp_path) as reader, pytest.raises(AssertionError):
        log.compare_history(reader)
    ages = _spoil_ages(log, queue)
    assert 0 < rebuild_state(tmp_path, f"{broker}/{queue}") < len(rows) + ages
    _check_ages(log, queue)
    _compare(log, tmp_path)
    with pytest.raises(UserError, match="nothing is known"):
        rebuild_state(tmp_path, f"{broker}/nowhere")


def _sorted(views: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {view: sorted(map(repr, rows)) for view, rows in views.items()}


def test_a_writer_that_was_killed_half_way_is_followed_by_one_that_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, samples = without_named_subscribers(generate(3, messages=60, seconds=60))
    lake, writer = Lake(tmp_path), Writer(tmp_path)
    half = len(events) // 2
    append(lake, events[:half], samples)
    writer.step()
    wanted = _sorted(_read(tmp_path))
    append(lake, events[half:], [])
    add = Lake.add

    def killed(self: Lake, name: str, *args: Any, **more: Any) -> bool:
        if name == QUEUE_STATE.name:
            raise KeyboardInterrupt
        return add(self, name, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.step()
    assert _sorted(_read(tmp_path)) == wanted  # what was not told to the end counts for nothing
    again = Writer(tmp_path)
    again.step()
    assert _sorted(_read(tmp_path)) != wanted
    again.close()


def _with_late_ones(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Batches of events and samples, the second of which comes too late to be undone for it."""
    monkeypatch.setattr(spark_analytics.fold.fold, "LONGEST", 0)
    monkeypatch.setattr(spark_analytics.fold.fold, "UNDOABLE", 5)
    events, samples = without_named_subscribers(generate(12, messages=80, seconds=200, burst=30))
    events.sort(key=lambda event: event["occurred_at"])
    late = [event for event in events[20:60] if (event["broker"], event["queue"]) == ("nats", "orders")]
    rest = [event for event in events if event not in late]
    return [(rest[:-30], samples), (late, []), (rest[-30:], [])]


def test_whoever_takes_over_tells_what_was_late_and_not_corrected_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, writer = Committed(tmp_path), Writer(tmp_path)
    for batch, more in _with_late_ones(monkeypatch):
        log.append(batch, more)
        writer.step(patient=True)
    assert writer.late
    writer.close()
    again = Writer(tmp_path)
    again.step()
    again.close()
    _compare(log, tmp_path)


def test_a_run_that_ends_finishes_beside_its_batches_and_leaves_nothing_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, runner = Committed(tmp_path), StateRunner(tmp_path, whole=True)
    runner.start()
    for batch, more in _with_late_ones(monkeypatch):
        before = last_revision(log.lake)
        log.append(batch, more)
        runner.wake(len(batch))
        wait_until(lambda before=before: last_revision(log.lake) > before, "the batch to be finished")  # type: ignore[misc]
    runner.close()
    _compare(log, tmp_path)


def test_files_that_went_before_the_next_writer_read_them_leave_nothing_out(tmp_path: Path) -> None:
    events, samples = without_named_subscribers(generate(3, messages=60, seconds=60))
    log, half = Committed(tmp_path), len(events) // 2
    log.append(events[:half], samples)
    finish(tmp_path)
    log.append(events[half:])
    log.lake.compact("partials")
    table = log.lake.ensure("partials")
    assert table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    finish(tmp_path)
    _compare(log, tmp_path)


@pytest.mark.parametrize("gone", [False, True])
def test_a_writer_that_was_long_down_reads_file_by_file_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Also where the files were replaced, and removed, before it came to them."""
    monkeypatch.setattr(feed, "MOST_BYTES", 20_000)
    monkeypatch.setattr(ages, "MOST_WAITING", 20)
    events, _ = generate(3, messages=80, seconds=60)
    log, looks = Committed(tmp_path), list[Came]()
    look = Feed.look
    monkeypatch.setattr(Feed, "look", lambda self, **how: looks.append(look(self, **how)) or looks[-1])
    [first, *others] = batches_of(events, random.Random(3), 6, 5.0)
    log.append(first)
    finish(tmp_path)
    for batch in others:
        log.append(batch)
    if gone:
        log.lake.compact("partials")
        table = log.lake.ensure("partials")
        assert table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    before = last_revision(log.lake)
    finish(tmp_path)
    assert looks[-1].much and not looks[-1].rows and not looks[-1].rebuild
    assert gone or last_revision(log.lake) > before + 2, "no more rows of ages wait than may"
    _compare(log, tmp_path)


def test_of_what_came_while_a_step_took_long_no_more_is_held_than_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is folded anew for it: the rest is the next look's, of the same step."""
    monkeypatch.setattr(feed, "MOST_BYTES", 30_000)
    events, _ = generate(4, messages=80, seconds=60)
    log, looks = Committed(tmp_path), list[Came]()
    look = Feed.look
    monkeypatch.setattr(Feed, "look", lambda self, **how: looks.append(look(self, **how)) or looks[-1])
    batches = list(batches_of(events, random.Random(4), 8, 5.0))
    writer = Writer(tmp_path)
    for batch in batches[:2]:
        log.append(batch)
        writer.step(patient=True)
    looks.clear()
    for batch in batches[2:]:
        log.append(batch)
    writer.step()
    writer.close()
    assert len(looks) > 1 and not any(one.much or one.rebuild for one in looks)
    _compare(log, tmp_path)


def _read(root: Path) -> dict[str, list[dict[str, Any]]]:
    with Reader(root) as reader:
        return served(reader)


def _compare(log: Committed, root: Path) -> None:
    with Reader(root) as reader:
        log.compare(reader)
        log.compare_history(reader)
        wanted = log.reference.attempt_age()
        assert wanted and differences(wanted, reader.query("SELECT * FROM attempt_age").to_pylist()) == []
