"""An event more than 5 s ahead of our clocks moves no data time: every way in refuses it, keeps it apart, counts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.ahead import EXAMPLES, TIMES, AheadFilter, microseconds, reason
from collectors.buffer import STEP_BITS, Batch
from collectors.records import Event, events_table, stamp
from collectors.replay import replay
from collectors.rollup import Rollup
from collectors.samples import Sample, samples_table
from collectors.selfmetrics import SelfMetrics
from collectors.sink import Sink
from lake.clock import TOLERANCE, Clock
from lake.schema import TIMESTAMP
from lake.store import Lake
from lake.tables import TABLES
from tests.collectors.receive.support import add, receiving, request_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY, INSTANT = timedelta(days=1), timedelta(microseconds=1)
SOURCE = "nats-tap:b"


class Machine:
    """A lake whose collector's clock shows :data:`NOW`; ``set_by`` is how far somebody has set its wall clock."""

    def __init__(self, root: Path) -> None:
        self.lake, self.metrics, self.set_by = Lake(root), SelfMetrics(), timedelta(0)
        self.bronze = AheadFilter(self.lake, Clock(lambda: NOW + self.set_by, lambda: 0.0), self.metrics)

    def counted(self, name: str = "ahead") -> float:
        """The collector's own counter."""
        return self.metrics.registry.get_sample_value(f"sojourn_collector_{name}_total", {"collector": SOURCE}) or 0.0

    def occurred(self) -> list[datetime]:
        """What message events say that they happened, in order."""
        return sorted(row["occurred_at"] for row in self.lake.read("message_events").to_pylist())

    def rejected(self) -> list[dict[str, Any]]:
        """What is kept apart."""
        rows: list[dict[str, Any]] = self.lake.read("rejected_records").to_pylist()
        return rows


def events(*instants: datetime) -> list[Event]:
    """A first attempt at each of ``instants``."""
    return [
        Event("received", "q", "s", "t", f"m{number}", 1, microseconds(at), microseconds(at))
        for number, at in enumerate(instants)
    ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "lake")


def test_what_lies_5_seconds_ahead_is_taken_and_what_lies_further_is_kept_apart(machine: Machine) -> None:
    rows = events_table(events(NOW - DAY, NOW + TOLERANCE, NOW + TOLERANCE + INSTANT, NOW + DAY), "b", SOURCE)
    machine.bronze.append("message_events", rows)
    assert machine.occurred() == [NOW - DAY, NOW + TOLERANCE]
    assert [row["reason"] for row in machine.rejected()] == [reason("occurred_at")] * 2
    assert {row["source"] for row in machine.rejected()} == {SOURCE}
    assert (machine.counted(), machine.counted("rejected")) == (2, 2)


@pytest.mark.parametrize("set_by", [timedelta(hours=-1), timedelta(hours=1)], ids=["set back", "set forward"])
def test_a_clock_that_is_set_refuses_nothing_that_was_taken_before(machine: Machine, set_by: timedelta) -> None:
    machine.set_by = set_by
    machine.bronze.append("message_events", events_table(events(NOW, NOW + max(set_by, timedelta(0))), "b", SOURCE))
    assert (len(machine.occurred()), machine.counted()) == (2, 0)


def test_a_tap_refuses_it_once_though_its_batch_is_written_again_and_reads_on(machine: Machine) -> None:
    sink = Sink(machine.bronze, broker="b", source=SOURCE, app_id=SOURCE)
    rollup = Rollup()
    rollup.add(events(NOW, NOW + DAY))
    batch = Batch(5 << STEP_BITS, events(NOW, NOW + DAY), (), rollup, pa.table({"x": pa.array([], pa.int64())}))
    for _ in range(2):
        sink.write(batch)
    assert machine.occurred() == [NOW]
    assert [row["bucket_start"] for row in machine.lake.read("event_summaries").to_pylist()] == [NOW]
    assert sorted(row["reason"] for row in machine.rejected()) == [reason("bucket_start"), reason("occurred_at")]
    assert sink.recover() == 5 << STEP_BITS


def test_a_sample_of_a_broker_whose_clock_is_fast_moves_no_data_time(machine: Machine) -> None:
    samples = [Sample("q", microseconds(NOW), depth=1), Sample("q", microseconds(NOW + DAY), depth=2)]
    machine.bronze.append("queue_samples", samples_table(samples, "b", SOURCE))
    assert [row["depth"] for row in machine.lake.read("queue_samples").to_pylist()] == [1]
    assert [row["reason"] for row in machine.rejected()] == [reason("sampled_at")]


def test_of_very_many_the_first_are_kept_and_all_are_counted(machine: Machine) -> None:
    machine.bronze.append("message_events", events_table(events(*[NOW + DAY] * 5 * EXAMPLES), "b", SOURCE))
    assert (len(machine.rejected()), sum(row["count"] for row in machine.rejected())) == (EXAMPLES + 1, 5 * EXAMPLES)
    assert machine.counted() == 5 * EXAMPLES


def test_a_record_that_was_refused_can_be_replayed_once_its_time_has_come(machine: Machine, tmp_path: Path) -> None:
    machine.bronze.append("message_events", events_table(events(NOW + DAY), "b", SOURCE))
    path = tmp_path / "refused.jsonl"
    path.write_text("".join(row["raw"] + "\n" for row in machine.rejected()))
    assert replay([path], machine.lake.root, now=lambda: NOW).rejected == 1
    assert replay([path], machine.lake.root, now=lambda: NOW + DAY).written == 1
    assert machine.occurred() == [NOW + DAY]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_is_replayed_up_to_now_however_old_it_is(tmp_path: Path, suffix: str) -> None:
    instants = [NOW - 365 * DAY, NOW + TOLERANCE, NOW + TOLERANCE + INSTANT]
    rows = [
        {"event_type": "enqueued", "broker": "b", "queue": "q", "message_id": f"m{number}", "occurred_at": at}
        for number, at in enumerate(instants)
    ]
    path = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    report = replay([path], tmp_path / "lake", now=lambda: NOW)
    assert (report.written, report.rejected) == (2, 1)
    [kept] = Lake(tmp_path / "lake").read("rejected_records").to_pylist()
    assert (kept["reason"], json.loads(kept["raw"])["message_id"]) == (reason("occurred_at"), "m2")


def test_the_receiver_tells_senders_what_it_refuses(tmp_path: Path) -> None:
    fast = datetime.now(UTC) + DAY
    event = {"event_type": "enqueued", "broker": "b", "queue": "q", "message_id": "m", "occurred_at": 1}
    counts = {field.name: 0 for field in TABLES["event_summaries"].schema if str(field.type) == "int64"}
    summary = counts | {"broker": "b", "queue": "q", "bucket_start": microseconds(fast), "newest_occurred_at": 1}
    body = {
        "version": 1,
        "sender": "x",
        "sequence": 1,
        "events": [event | {"event_id": "old"}, event | {"event_id": "fast", "occurred_at": microseconds(fast)}],
        "summaries": [summary, summary | {"bucket_start": 1, "newest_occurred_at": microseconds(fast)}],
    }
    spans = request_of(("send", 1))
    ahead = round((fast.timestamp() - 1_780_000_000) * 1000)
    add(spans, "send", 2, trace=2, at=ahead)
    with receiving(tmp_path / "lake") as receiver:
        told = httpx.post(f"{receiver.url}/v1/events", json=body).json()
        told_spans = httpx.post(
            f"{receiver.url}/v1/traces",
            content=spans.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        )
        assert (told["accepted"], [one["reason"] for one in told["rejected"]]) == (
            1,
            [reason("occurred_at"), reason("bucket_start"), reason("newest_occurred_at")],
        )
        assert b"ahead of the clock" in told_spans.content
        assert all(row["occurred_at"] < fast - timedelta(hours=1) for row in receiver.rows())
        assert receiver.rows("event_summaries") == []
        assert {row["reason"] for row in receiver.rows("rejected_records")} == {
            reason("occurred_at"),
            *(f"{what}: {reason(column)}" for what, column in (("events", "occurred_at"),)),
            *(f"summaries: {reason(column)}" for column in ("bucket_start", "newest_occurred_at")),
        }


def test_every_column_of_bronze_that_says_when_something_happened_is_judged() -> None:
    told = {"enqueued_at", "ingested_at", "received_at"}  # before it, or by our own clock
    for name, table in TABLES.items():
        if table.layer == "bronze":
            times = {field.name for field in table.schema if field.type == TIMESTAMP} - told
            assert times == set(TIMES.get(name, ())), name
    assert set(stamp("s", 0)) == {"source", "ingested_at", "ingest_date"}
