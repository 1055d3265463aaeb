"""What a long-lived reader serves as now is what the views, worked out from the whole history, have as now.

After every commit, however the same events come: in any order, late, rolled up and rearranged in between.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lake.now.fold
import lake.now.intake
import lake.reader
from lake.definitions import Definitions
from lake.now.fold import Fold
from lake.now.outcome import Outcome
from lake.now.present import Present
from lake.now.rows import tenants
from lake.reader import Reader
from lake.store import Lake
from lake.tables import MARKS, PARTIALS
from spark_analytics.transforms.rollup import rolled_up
from tests.reference.compare import differences
from tests.reference.generate import Row, generate, logs
from tests.reference.lives import without_duplicates
from tests.reference.partials import add_samples, marks_of, partials_of
from tests.reference.test_views_duckdb import _fast_folder

SERVED = ("tenant_backlog_now", "concurrency_now", "queue_health_now", "attempt_age_now", "stage_newest")


def declared(root: Path, views: Sequence[str] = SERVED) -> dict[str, list[Row]]:
    """The views as the declared SQL has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.reader, "SERVED", ())
        with Reader(root) as reader:
            rows = {view: reader.query(f"SELECT * FROM {view}").to_pylist() for view in views}
    for row in (*rows.get("attempt_age", ()), *rows.get("attempt_age_now", ())):  # as the reference has it
        row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
    return rows


def served(reader: Reader) -> dict[str, list[Row]]:
    return {view: reader.query(f"SELECT * FROM {view}").to_pylist() for view in SERVED}


def compare(reader: Reader) -> None:
    expected, actual = declared(reader.root), served(reader)
    for view in SERVED:
        assert differences(expected[view], actual[view]) == [], view


def roll_up(lake: Lake, ends: int, seconds: int) -> None:
    """Roll up every partial before unix second ``ends`` (a multiple of ``seconds``) into buckets of ``seconds``."""
    table = lake.ensure("partials")
    until = datetime.fromtimestamp(ends, UTC)
    there = table.to_pyarrow_table(filters=[("bucket_start", "<", until)])
    rows = rolled_up(there.cast(PARTIALS.schema), seconds)
    write_deltalake(table, rows, mode="overwrite", predicate=f"bucket_start < '{until:%Y-%m-%dT%H:%M:%SZ}'")


def newest(lake: Lake) -> int:
    """The unix second that every broker's events have reached."""
    times = lake.read("partials", columns=["broker", "newest_occurred_at"]).group_by("broker")
    return int(min(times.aggregate([("newest_occurred_at", "max")]).column(1).to_pylist()).timestamp())


def batches_of(events: list[Row], rng: random.Random, count: int, disorder: float) -> Iterator[list[Row]]:
    """The events in ``count`` batches, by time with ``disorder`` seconds of delay for some."""

    def arrival(event: Row) -> float:
        late = rng.expovariate(1 / disorder) if disorder and rng.random() < 0.2 else 0.0
        return float(event["occurred_at"].timestamp() + late)

    ordered = sorted(without_duplicates(events), key=arrival)
    size = max(1, -(-len(ordered) // count))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def append(lake: Lake, events: list[Row], samples: list[Row]) -> None:
    lake.append("marks", pa.Table.from_pylist(marks_of(events), MARKS.schema))
    lake.append("partials", pa.Table.from_pylist(partials_of(events), PARTIALS.schema))
    if samples:
        add_samples(lake, samples)


def replayed(root: Path, log: tuple[list[Row], list[Row]], seed: int, *, count: int, disorder: float) -> None:
    """Commit ``log`` in batches, upkeep in between, and hold a warm reader to the declared views."""
    rng = random.Random(seed)
    events, samples = log
    lake = Lake(root)
    waiting = sorted(samples, key=lambda sample: sample["sampled_at"])
    with Reader(root) as reader:
        for batch in batches_of(events, rng, count, disorder):
            until = max(event["occurred_at"] for event in batch)
            taken = [sample for sample in waiting if sample["sampled_at"] <= until]
            waiting = waiting[len(taken) :]
            append(lake, batch, taken)
            if rng.random() < 0.3:
                served(reader)
            if rng.random() < 0.2:
                lake.compact("partials")
            if rng.random() < 0.25:
                roll_up(lake, (newest(lake) - rng.choice((0, 61, 130, 400))) // 60 * 60, 60)
            if rng.random() < 0.05:
                roll_up(lake, (newest(lake) - 61) // 3600 * 3600, 3600)
            if rng.random() < 0.25:
                compare(reader)
        add_samples(lake, waiting) if waiting else None
        compare(reader)


def without_named_subscribers(log: tuple[list[Row], list[Row]]) -> tuple[list[Row], list[Row]]:
    events, samples = log
    return [event for event in events if event.get("subscriber") is None], samples


@pytest.mark.parametrize("disorder", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("named", [True, False])
def test_a_reader_that_follows_serves_what_history_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disorder: float, named: bool
) -> None:
    if disorder > 100:
        monkeypatch.setattr(lake.now.fold, "LONGEST", 0)  # much comes too late to be taken back
    log = generate(21, messages=300, seconds=900, burst=40)
    replayed(tmp_path, log if named else without_named_subscribers(log), seed=5, count=16, disorder=disorder)


def test_commits_upkeep_and_a_little_disorder_cost_no_second_reading(tmp_path: Path, folded_anew: list[None]) -> None:
    events, samples = without_named_subscribers(generate(4, messages=200, seconds=500, burst=40))
    lake, reader = Lake(tmp_path), Reader(tmp_path)
    lake.create()
    for number, batch in enumerate(batches_of(events, random.Random(4), 20, 1.0)):
        append(lake, batch, [] if number else samples)
        served(reader)
        if number % 4 == 3:
            roll_up(lake, (newest(lake) - 90) // 60 * 60, 60)
            served(reader)
            lake.compact("partials")
    compare(reader)
    assert len(folded_anew) == 1


def test_one_event_from_the_future_does_not_make_every_commit_a_new_beginning(
    tmp_path: Path, folded_anew: list[None]
) -> None:
    events, _ = without_named_subscribers(generate(4, messages=100, seconds=60))
    events = [event for event in events if event["broker"] == "nats"]
    lake, reader = Lake(tmp_path), Reader(tmp_path)
    lake.create()
    far = dict(events[0]) | {
        "event_type": "enqueued",
        "tenant": "far",
        "event_id": "far",
        "message_id": "far",
        "occurred_at": datetime(2031, 1, 1, tzinfo=UTC),
    }
    for batch in ([far], *batches_of(events, random.Random(4), 6, 1.0)):
        append(lake, batch, [])
        rows = served(reader)["tenant_backlog_now"]
    compare(reader)
    assert {row["as_of"].year for row in rows} == {2031}
    assert [row["backlog"] for row in rows if row["tenant"] == "far"] == [1]
    assert len(folded_anew) == 1


def test_of_several_commits_of_samples_alone_the_newest_is_the_time(tmp_path: Path) -> None:
    _, samples = generate(6, messages=1, seconds=60)
    samples.sort(key=lambda sample: sample["sampled_at"])
    lake, reader = Lake(tmp_path), Reader(tmp_path)
    lake.create()
    for number in range(0, len(samples), 10):
        add_samples(lake, samples[number : number + 10])
        if number % 30 == 0:
            compare(reader)
    compare(reader)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs(), st.integers(0, 1000), st.sampled_from([0.0, 2.0, 100.0]))
def test_any_log_in_any_order_of_commits(log: Any, seed: int, disorder: float) -> None:
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        replayed(Path(folder), log, seed, count=6, disorder=disorder)


@pytest.mark.parametrize("most", [20, 200_000])
def test_samples_that_go_on_while_events_rest(
    tmp_path: Path, folded_anew: list[None], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lake.now.intake, "MOST_AHEAD", most)
    events, samples = without_named_subscribers(generate(8, messages=60, seconds=200))
    events.sort(key=lambda event: event["occurred_at"])
    store, reader = Lake(tmp_path), Reader(tmp_path)
    store.create()
    append(store, events[: len(events) // 3], [])
    served(reader)
    samples.sort(key=lambda sample: sample["sampled_at"])
    size = -(-len(samples) // 12)
    for start in range(0, len(samples), size):
        add_samples(store, samples[start : start + size])
        served(reader)
    compare(reader)
    kept = [sum(map(len, fold._ahead)) for fold in reader._served._present.folds.values()]
    assert max(kept) <= most + size
    append(store, events[len(events) // 3 :], [])
    compare(reader)
    assert len(folded_anew) == (2 if most == 20 else 1)


def test_what_is_very_late_is_counted_at_once_and_judged_when_history_is_folded_anew(
    tmp_path: Path, folded_anew: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake.now.fold, "LONGEST", 0)
    monkeypatch.setattr(lake.now.fold, "UNDOABLE", 20)
    events, samples = without_named_subscribers(generate(9, messages=400, seconds=900, burst=40))
    store = Lake(tmp_path)
    store.create()
    batches = list(batches_of(events, random.Random(9), 12, 400.0))
    append(store, batches[0], samples)
    present = Present(tmp_path, Definitions())
    present.refresh(patient=True)
    for batch in batches[1:]:
        append(store, batch, [])
        present.refresh(patient=True)
    assert present.late and len(folded_anew) == 1
    anew = Present(tmp_path, Definitions())
    anew.refresh()
    for broker, fold in anew.folds.items():
        assert levels(present.folds[broker]) == levels(fold)
    assert present.refresh() and not present.late
    for broker, fold in anew.folds.items():
        mine, whole = (tenants(Outcome(broker, each)).to_pylist() for each in (present.folds[broker], fold))
        assert sorted(mine, key=repr) == sorted(whole, key=repr)


def levels(fold: Fold) -> dict[Any, Any]:
    """Of each key what is in its backlog, and when the oldest of it was enqueued."""
    state = fold.state
    tenants = state.tenants(slice(0, len(state.names)))[:, :3].tolist()
    return {
        name: (row, int(state.oldest[key])) for key, (name, row) in enumerate(zip(state.names, tenants, strict=True))
    }
